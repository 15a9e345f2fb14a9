"""The inside of `sampling/by_time.py`: the windows of one time in a batch, resumed anywhere, in 20 bytes a window."""

import hashlib
import tracemalloc
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.errors import NoMemoryError
from tensorstash.sampling import sections as by_time
from tensorstash.sampling.by_time import ByTime
from tensorstash.sampling.hashes import checksum
from tensorstash.sampling.sections import Sections, cuts, sections, whole
from tensorstash.sampling.steps import Layout, share
from tests.inside import ids_at
from tests.spaces import limit
from tests.words import Int64s

TIMES = st.lists(st.one_of(st.integers(-3, 6), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=60)


def sections_of(times: list[int]) -> Sections:
    array = np.array(times, np.int64)
    return sections(lambda ids: array[ids], len(array))


def groups_of(times: list[int]) -> list[list[int]]:
    """The oracle: the windows of each time, ascending."""
    ids = sorted(range(len(times)), key=lambda k: times[k])
    return [list(group) for _, group in groupby(ids, key=lambda k: times[k])]


def steps_of(
    of: Sections, shuffle: bool, seed: int, epoch: int, consumed: int, size: int | None, drop: bool = False
) -> list[tuple[list[int], int]]:
    """The windows of each step of one rank, and what is consumed behind it; without a size, of whole times."""
    order = ids_at(shuffle, len(of.ends), seed, epoch)
    made = whole(of, order, consumed, 1, 0) if size is None else cuts(of, order, consumed, size, drop)
    return [
        (of.ids[begin:end].tolist(), int(behind))
        for group in made
        for begin, end, behind in zip(group.start, group.stop, group.consumed)
    ]


def shares_of(
    of: Sections, shuffle: bool, epoch: int, consumed: int, ranks: int, rank: int
) -> list[tuple[list[int], int, bool]]:
    """The windows of one rank in each step of whole times, what is consumed behind it, and whether they are filler."""
    order = ids_at(shuffle, len(of.ends), 5, epoch)
    return [
        (of.ids[begin:end].tolist(), int(behind), bool(is_filler))
        for group in whole(of, order, consumed, ranks, rank)
        for begin, end, behind, is_filler in zip(group.start, group.stop, group.consumed, group.is_filler)
    ]


def expected_steps(
    groups: list[list[int]], places: Int64s, consumed: int, size: int | None, drop: bool
) -> list[tuple[list[int], int]]:
    """The oracle: the rest of the order in groups, each cut into steps."""
    steps, behind = [], 0
    for group in (groups[place] for place in places):
        left = group[max(0, consumed - behind) :]
        begin = behind + len(group) - len(left)
        behind += len(group)
        for k in range(0, len(left), size or len(group)):
            step = left[k : k + (size or len(group))]
            if not (drop and size and len(step) < size):
                steps.append((step, begin + k + len(step)))
    return steps


def checksum_of(of: Sections) -> int:
    return checksum(of.ends, of.ids)


@given(TIMES)
@settings(max_examples=100)
def test_windows_are_sorted_by_time_and_then_by_id(times: list[int]) -> None:
    of = sections_of(times)
    assert [part.tolist() for part in np.split(of.ids, of.ends[:-1])] == groups_of(times)
    assert of.ends[-1] == len(times)


@given(TIMES, st.booleans(), st.one_of(st.none(), st.integers(1, 9)), st.booleans(), st.integers(0, 3), st.data())
@settings(max_examples=200)
def test_each_time_is_cut_into_steps_of_its_own_from_any_position_on(
    times: list[int], shuffle: bool, size: int | None, drop: bool, epoch: int, data: st.DataObject
) -> None:
    of, groups = sections_of(times), groups_of(times)
    drop = drop and size is not None
    places = ids_at(shuffle, len(of.ends), 5, epoch)(np.arange(len(groups)))
    assert np.array_equal(np.sort(places), np.arange(len(groups)))
    assert shuffle or np.array_equal(places, np.arange(len(groups)))
    consumed = data.draw(st.integers(0, len(times)))
    assert steps_of(of, shuffle, 5, epoch, consumed, size, drop) == expected_steps(groups, places, consumed, size, drop)


@given(TIMES, st.booleans(), st.integers(1, 7), st.integers(0, 3), st.data())
@settings(max_examples=200)
def test_ranks_share_times_from_any_position_on(
    times: list[int], shuffle: bool, ranks: int, epoch: int, data: st.DataObject
) -> None:
    """Also from the middle of a time, of which the rest is left."""
    of, consumed = sections_of(times), data.draw(st.integers(0, len(times)))
    places = ids_at(shuffle, len(of.ends), 5, epoch)(np.arange(len(of.ends)))
    left = expected_steps(groups_of(times), places, consumed, None, False)
    steps = [left[k : k + ranks] for k in range(0, len(left), ranks)]
    for rank in range(ranks):
        expected = [(step[rank if rank < len(step) else 0][0], step[-1][1], rank >= len(step)) for step in steps]
        assert shares_of(of, shuffle, epoch, consumed, ranks, rank) == expected


def test_blocks_of_windows_times_and_steps_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.random.default_rng(0).integers(0, 150, 1000).tolist()
    every = sections_of(times)
    expected = [steps_of(every, True, 1, 0, consumed, size) for consumed in (0, 7, 500) for size in (None, 1, 4)]
    shares = [shares_of(every, True, 0, 7, 4, rank) for rank in range(4)]
    for block in (1, 7, 100):
        monkeypatch.setattr("tensorstash.sampling.hashes.CHUNK", block)
        of = sections_of(times)
        assert np.array_equal(of.ids, every.ids)
        assert np.array_equal(of.ends, every.ends)
        assert checksum_of(of) == checksum_of(every)
        found = [steps_of(of, True, 1, 0, consumed, size) for consumed in (0, 7, 500) for size in (None, 1, 4)]
        assert found == expected
        assert [shares_of(of, True, 0, 7, 4, rank) for rank in range(4)] == shares


def test_other_sizes_take_over_in_the_middle_of_a_time() -> None:
    """Every window once, whatever the sizes of the steps before and behind."""
    times = np.random.default_rng(1).integers(0, 9, 200).tolist()
    of, shown, consumed = sections_of(times), list[int](), 0
    for size, taken in ((3, 11), (50, 2), (1, 5), (None, 200)):
        steps = steps_of(of, True, 0, 0, consumed, size)[:taken]
        shown += [k for step, _ in steps for k in step]
        consumed = steps[-1][1]
        assert len(shown) == consumed
    assert sorted(shown) == list(range(200))
    assert steps_of(of, True, 0, 0, 200, 3) == []


@given(st.integers(0, 50), st.integers(1, 9))
@settings(max_examples=50)
def test_ranks_share_a_step(count: int, replicas: int) -> None:
    """Each rank without a window of the step has the first one as filler."""
    parts = []
    for rank in range(replicas):
        positions, valid = share(np.array([100]), count, Layout(replicas, rank, 50, "keep", varies=False))
        assert positions[0, valid:].tolist() == [100] * (not valid)
        parts.append(positions[0, :valid].tolist())
    assert [k for part in parts for k in part] == list(range(100, 100 + count))
    sizes = [*map(len, parts)]
    assert max(sizes) - min(sizes) <= 1


def test_epochs_permute_the_times_anew() -> None:
    orders = [ids_at(True, 300, 0, epoch)(np.arange(300)) for epoch in range(4)]
    for one in range(4):
        for two in range(one):
            assert (orders[one] == orders[two]).mean() < 0.05


# Users resume in the middle of these orders: a release that changes one of them breaks their runs.
GOLDEN_DIGESTS = {
    (10, False, 0, None): "aa900225dc1179bd",
    (10, True, 0, 3): "33e8d146297cd598",
    (5000, False, 0, 16): "85210581a80cb88f",
    (5000, True, 0, None): "33d7304aa71738ee",
    (5000, True, 1, 16): "54fb16eb58fa1459",
    (100000, True, 2, 64): "012575c2d1eff857",
}


@pytest.mark.parametrize(("n", "shuffle", "epoch", "size"), GOLDEN_DIGESTS)
def test_the_steps_never_change(n: int, shuffle: bool, epoch: int, size: int | None) -> None:
    of = sections(lambda ids: ids**2 % 997, n)
    steps = steps_of(of, shuffle, 0, epoch, 0, size)
    flat = np.array([k for step, behind in steps for k in (*step, -behind)], "<i8")
    assert hashlib.blake2b(flat.tobytes(), digest_size=8).hexdigest() == GOLDEN_DIGESTS[n, shuffle, epoch, size]


@pytest.mark.parametrize("distinct", [1, 1000, 10**9])
def test_building_the_table_takes_at_most_20_bytes_a_window(distinct: int) -> None:
    """With one time, with as many as a panel has, and with one for each window."""
    n = 1 << 20
    tracemalloc.start()
    of = sections(lambda ids: ids * 7919 % distinct, n)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 20 * n + 2**22
    assert kept <= 4 * n + 4 * len(of.ends) + 2**16


def test_the_memory_is_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_time, "memory_limits", lambda: [limit(1_000_000_000)])
    message = r"a table of 100,000,000 windows needs 2,000 MB and 1,000 MB are free in RAM"
    with pytest.raises(NoMemoryError, match=message):
        sections(lambda ids: ids, 10**8)


def test_checksums_tell_sections_apart() -> None:
    """Also where only the windows of two times are exchanged."""
    assert checksum_of(sections_of([1, 2, 3])) == checksum_of(sections_of([10, 20, 30]))
    assert checksum_of(sections_of([1, 2, 3])) != checksum_of(sections_of([1, 3, 2]))
    assert checksum_of(sections_of([1, 2, 2])) != checksum_of(sections_of([1, 1, 2]))


def test_shuffle_is_a_truth_value() -> None:
    with pytest.raises(TypeError, match=r"shuffle.*got 'yes'"):
        ByTime("yes")  # type: ignore[arg-type]  # wrong on purpose


@given(
    points=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=25),
    size=st.one_of(st.none(), st.integers(1, 4)),
    shuffle=st.booleans(),
    data=st.data(),
)
@settings(max_examples=60)
def test_windows_at_points_come_by_entity_whatever_the_order_of_the_frame(
    points: list[tuple[int, int]], size: int | None, shuffle: bool, data: st.DataObject
) -> None:
    """On one rank and on two, whole and resumed on the other number; windows of one entity and time as in the frame."""
    stash = ts.load({"e": [0, 1, 2, 3], "t": [0, 0, 0, 0], "y": [0.0, 1.0, 2.0, 3.0]}, entity="e", time="t")
    at = {"e": [e for e, _ in points], "t": [t for _, t in points], "row": [*range(len(points))]}
    windows = ts.Windows(stash, spans={"past": ts.During("y", -9, 1, max_rows=1)}, at=at)
    frame = sorted((t, e, row) for row, (e, t) in enumerate(points))
    sections_of_frame = [[row for _, _, row in group] for _, group in groupby(frame, key=lambda point: point[0])]

    def loader(**options: Any) -> ts.Loader:
        return ts.Loader(windows, size, order=ts.ByTime(shuffle), seed=2, **options)

    shown = [batch["row"].tolist() for batch in loader()]
    expected = [
        rows[k : k + (size or len(rows))] for rows in sections_of_frame for k in range(0, len(rows), size or len(rows))
    ]
    assert sorted(shown) == sorted(expected)
    assert shuffle or shown == expected
    ranks = zip(*(loader(num_replicas=2, rank=rank) for rank in range(2)))
    together = [batch["row"][batch["valid"]].tolist() for step in ranks for batch in step]
    assert [row for rows in together for row in rows] == [row for rows in shown for row in rows]
    if size is None:
        assert [rows for rows in together if rows] == shown  # each batch a whole cross-section
    begun, taken = loader(), data.draw(st.integers(0, len(shown) - 1))
    for _, _ in zip(range(taken), begun):
        pass
    resumed = loader()
    resumed.load_state_dict(begun.state_dict())
    assert [batch["row"].tolist() for batch in resumed] == shown[taken:]
    halves = [loader(num_replicas=2, rank=rank) for rank in range(2)]
    for half in halves:
        half.load_state_dict(begun.state_dict())
    left = [batch["row"][batch["valid"]].tolist() for step in zip(*halves) for batch in step]
    assert [row for rows in left for row in rows] == [row for rows in shown[taken:] for row in rows]
