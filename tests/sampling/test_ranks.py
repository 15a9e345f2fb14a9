"""Every world size, tail and order: all ranks together take every window once, in equally many steps, all marked."""

import pytest

from tests import oracle
from tests.epochs import KINDS, TAILS, Batch, loaders_of, numbers, order_of, valid_numbers
from tests.oracle_load import like
from tests.words import Tail

BATCH_SIZE = 3


def looks(batch: Batch) -> list[tuple[object, ...]]:
    """What all batches of a loader have in common."""
    return [(name, tensor.dtype, tensor.shape[1:]) for name, tensor in batch.items()]


def sizes(ranks: int) -> list[int]:
    """Numbers of windows: fewer than ranks, as many, and around one and two whole steps."""
    size = ranks * BATCH_SIZE
    return sorted({1, ranks - 1, ranks, ranks + 1, size - 1, size, size + 1, 2 * size - ranks, 2 * size + 2} - {0})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("ranks", range(1, 10))
def test_ranks_take_every_window_once_in_equally_many_steps(ranks: int, tail: Tail, kind: str) -> None:
    for n in sizes(ranks):
        loaders = loaders_of(n, ranks, BATCH_SIZE, kind, tail)
        size = ranks * BATCH_SIZE
        order = order_of(kind, n, size)
        if tail == "drop" and n < size:
            for loader in loaders:
                with pytest.raises(ValueError, match=like(f'tail="drop" leaves nothing: {n} windows make no')):
                    next(iter(loader))
            continue

        made = [list(loader) for loader in loaders]

        steps = n // size if tail == "drop" else -(-n // size)
        assert [len(batches) for batches in made] == [len(loader) for loader in loaders] == [steps] * ranks
        assert all(looks(batch) == looks(made[0][0]) for batches in made for batch in batches)
        assert ("valid" in made[0][0]) == (tail == "pad" or (tail == "keep" and ranks > 1))
        every = [k for step in zip(*made) for batch in step for k in valid_numbers(n, batch)]
        assert every == order[: steps * size]
        assert sorted(every) == (list(range(n)) if tail != "drop" else sorted(set(every)))
        check_shares(n, made, tail)


def check_shares(n: int, made: list[list[Batch]], tail: str) -> None:
    """No batch is empty, shares differ by at most one, and filler repeats the first window of its step."""
    for step in zip(*made):
        ids = [numbers(n, batch) for batch in step]
        shares = [len(valid_numbers(n, batch)) for batch in step]
        if tail == "keep":
            assert max(shares) - min(shares) <= 1
            assert [len(part) for part in ids] == [max(1, share) for share in shares]
        else:
            assert {len(part) for part in ids} == {BATCH_SIZE}
            assert tail == "pad" or shares == [BATCH_SIZE] * len(step)
        filler = {k for part, share in zip(ids, shares) for k in part[share:]}
        assert filler <= {ids[0][0]}
        for batch, share in zip(step, shares):
            marks = [k < share for k in range(len(batch["past"]))]
            assert "valid" not in batch or batch["valid"].tolist() == marks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("ranks", range(1, 10))
def test_every_batch_is_the_one_that_the_oracle_cuts(ranks: int, tail: Tail, kind: str) -> None:
    n = 2 * ranks * BATCH_SIZE + ranks // 2 + 1
    expected = oracle.steps(order_of(kind, n, ranks * BATCH_SIZE), BATCH_SIZE, ranks, tail)
    for rank, loader in enumerate(loaders_of(n, ranks, BATCH_SIZE, kind, tail)):
        made = [(numbers(n, batch), len(valid_numbers(n, batch))) for batch in loader]
        assert made == [step[rank] for step in expected]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lanes"])
def test_the_order_is_the_same_on_any_number_of_ranks(kind: str) -> None:
    n, orders = 60, []
    for ranks, batch_size in ((1, 60), (1, 7), (2, 5), (5, 2), (9, 3), (9, 9)):
        made = [list(loader) for loader in loaders_of(n, ranks, batch_size, kind, "pad")]
        orders.append([k for step in zip(*made) for batch in step for k in valid_numbers(n, batch)])
    assert orders == [orders[0]] * 6


def test_an_epoch_of_one_window_on_nine_ranks() -> None:
    """One rank has the window, the others have it as filler, so that none waits for a batch that never comes."""
    made = [list(loader) for loader in loaders_of(1, 9, 3)]
    assert [[len(batch["past"]) for batch in batches] for batches in made] == [[1]] * 9
    assert [batches[0]["valid"].tolist() for batches in made] == [[True], *[[False]] * 8]
