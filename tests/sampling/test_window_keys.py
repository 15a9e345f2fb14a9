"""The inside of `sampling/window_keys.py`: draws are uniform, and keys do not collide."""

import numpy as np

import tensorstash as ts
from tensorstash.sampling.sampler import begin
from tensorstash.sampling.steps import Steps
from tensorstash.sampling.window_keys import draws, window_keys
from tests.sampling.test_keys import hashed


def test_draws_are_uniform_and_independent_of_the_key_and_of_each_other() -> None:
    """Chi-square over many seeds and epochs; the seeds are fixed, so it either always holds or never."""
    windows = ts.Windows(ts.load({"y": np.arange(400.0)}), history=1)
    counts, pairs, parity = np.zeros(7), np.zeros((5, 7)), np.zeros((2, 7))
    for seed in range(60):
        loader = ts.Loader(windows, 64, seed=seed)
        loader.set_epoch(seed % 3)
        plan, begun = begin(loader.sampler)
        for steps in plan.groups(begun.start):
            first, second = draws(seed, steps, 0, 7), draws(seed, steps, 1, 5)
            np.add.at(counts, first, 1)
            np.add.at(pairs, (second, first), 1)
            np.add.at(parity, (window_keys(seed, steps) & 1, first), 1)
            expected = [[hashed(seed, seed % 3, k, 1) % 7 for k in row] for row in steps.positions.tolist()]
            assert first.tolist() == expected
    for table in (counts, pairs, parity):
        mean = table.sum() / table.size
        freedom = table.size - 1
        chi_square = ((table - mean) ** 2).sum() / mean
        assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


def test_keys_of_many_epochs_and_seeds_do_not_collide() -> None:
    steps = Steps(np.arange(1000)[None], np.arange(1000)[None], 1000, 0, [1000])
    keys = [window_keys(seed, steps._replace(epoch=epoch)) for seed in range(10) for epoch in range(20)]
    assert len(np.unique(np.concatenate(keys))) == 200_000
