"""The batches of Chronos-2's own data set, beside its rule as the tests have it written anew."""

import numpy as np
import pytest
import torch

from tests.variates import chronos_batch, same


def test_the_rule_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("chronos.chronos2", reason="chronos-forecasting is not installed: make adapters")
    rng, context, horizon = np.random.default_rng(0), 16, 4
    tasks, prepared = [], []
    for count, seen, known in ((1, 0, 0), (2, 1, 3), (3, 2, 0), (1, 0, 30)):
        values = rng.random((count + seen + known, int(rng.integers(horizon + 1, 60)))).astype(np.float32)
        tasks.append((values, count, known))
        numbers = {"n_targets": count, "n_covariates": seen + known, "n_future_covariates": known}
        tensors = {"context": torch.from_numpy(values), "future_covariates": torch.zeros(len(values), horizon)}
        prepared.append(tensors | numbers)
    data = module.Chronos2Dataset(prepared, context, horizon, 64, 1)
    for _ in range(20):
        which = rng.integers(0, len(tasks), 6).tolist()
        cuts = [int(rng.integers(1, tasks[k][0].shape[1] - horizon + 1)) for k in which]
        drawn = iter(cuts)
        with monkeypatch.context() as patched:
            patched.setattr(np.random, "randint", lambda *_, drawn=drawn: next(drawn))
            built = data._build_batch(which)
        expected = chronos_batch([tasks[k] for k in which], cuts, context, horizon)
        for name, tensor in expected.items():
            assert same(built[name], tensor), name
