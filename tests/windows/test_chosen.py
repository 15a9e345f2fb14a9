"""Windows of chosen entities, and parts at the end of each series, in everything that is made of windows.

The oracle of both is a stash that holds only these rows: its windows come in the same order, so all that samples, whose
orders depend on numbers alone, must give the same batches, bit by bit.
"""

import math
import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import kernel, processes
from tests.oracle_load import like
from tests.windows.test_splits import Case, cases, keys

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* (entities have no latest window|series end before)",
    "ignore:.*Gaps cost",
    "ignore:Gaps make",
    "ignore:None of .* chosen entity",
)

LENGTHS = {"ash": 23, "birch": 40, "cedar": 17, "elm": 31, "fir": 3, "oak": 26}
CHOSEN = ["oak", "birch", "fir", "cedar"]
END = 6


def rows(names: Sequence[str] = (*LENGTHS,), without: int = 0, *, slots: bool = True) -> pl.DataFrame:
    """Series with a step missing in each, without their last steps of time, or rows."""
    frames = []
    for k, (name, n) in enumerate(LENGTHS.items()):
        t = np.arange(n) + (np.arange(n) >= 12)
        t = t[t <= t[-1] - without] if slots else t[: n - without]
        values = 1000.0 * k + t
        columns = {"tree": [name] * len(t), "t": t, "y": values, "z": -values, "c": values % 7}
        frames.append(pl.DataFrame(columns))
    frame = pl.concat(frames).filter(pl.col("tree").is_in([*names]))
    return frame.with_columns(size=pl.col("y") // 1000)


def stash_of(frame: pl.DataFrame, **more: Any) -> ts.Stash:
    columns = {"y": ts.column("y", empty=-1.0), "x": ["y", "z"], "c": "c"}
    return ts.load(frame, columns, entity="tree", time="t", static=["size"], **more)


SPANS: dict[str, Any] = {"past": ("y", -4, 0), "target": ("y", 0, 2)}
PRICES = {"t": [*range(0, 50, 3)], "price": [*map(float, range(17))]}


def plain(stash: ts.Stash, **more: Any) -> ts.Windows:
    return ts.Windows(stash, spans=SPANS, frequency=1, **more)


def at_points(stash: ts.Stash) -> ts.Windows:
    points = [(name, t) for t in range(4, 40) for name in stash.entities if (t * 7 + len(name)) % 3]
    frame = pl.DataFrame(points, ["tree", "t"], orient="row")
    return plain(stash, at=frame, unmatched="drop")


def with_tables(stash: ts.Stash) -> ts.Windows:
    spans = SPANS | {"price": ts.During("price", -9, 0, max_rows=3, age=True, table="prices")}
    return ts.Windows(stash, spans=spans, tables={"prices": ts.load(PRICES, ["price"], time="t")}, frequency=1)


def drawn(stash: ts.Stash) -> ts.Windows:
    return ts.Windows(stash, spans={"past": ("y", ts.Draw(-6, -2, step=2), 0), "target": ("y", 0, 1)}, frequency=1)


def each(stash: ts.Stash) -> ts.Windows:
    return ts.Windows(stash, spans={"past": (ts.each("x"), -4, 0), "next": (ts.each("x"), 0, 2)}, frequency=1)


def masked(stash: ts.Stash) -> ts.Windows:
    spans = {"past": ("y", -4, 0), "target": ("y", 0, 1)}
    return ts.Windows(stash, spans=spans, gaps="mask", min_history=2, frequency=1)


def events(stash: ts.Stash) -> ts.Windows:
    return ts.Windows(stash, spans={"near": ts.During("y", -5, 0, max_rows=4)})


KINDS: dict[str, tuple[Callable[[ts.Stash], ts.Windows], int | None, Callable[[ts.Windows], dict[str, Any]]]] = {
    "sequential": (plain, 5, lambda _: {}),
    "shuffled": (plain, 5, lambda _: {"shuffle": True}),
    "blocks": (plain, 5, lambda _: {"order": ts.Blocks(4)}),
    "by time": (plain, None, lambda _: {"order": ts.ByTime(shuffle=True)}),
    "by time, of a size": (plain, 2, lambda _: {"order": ts.ByTime()}),
    "weighted": (plain, 5, lambda w: {"order": ts.Weighted(np.arange(len(w)) % 5 + 0.5)}),
    "weighted entities": (
        plain,
        5,
        lambda w: {"order": ts.Weighted({name: 1.0 + len(name) for name in w.stash.entities}, per="entity")},
    ),
    "lanes": (lambda stash: plain(stash, stride=4), 6, lambda _: {"order": ts.Lanes(6)}),
    "points": (at_points, 5, lambda _: {"shuffle": True}),
    "tables": (with_tables, 5, lambda _: {"shuffle": True}),
    "drawn": (drawn, 5, lambda _: {"shuffle": True}),
    "each": (each, 5, lambda _: {"shuffle": True}),
    "masked": (masked, 5, lambda _: {"shuffle": True}),
    "events": (events, 5, lambda _: {"shuffle": True}),
    "packed": (
        lambda stash: plain(stash, min_history=1),
        5,
        lambda _: {"shuffle": True, "transform": [ts.PackSequences("past", length=8)]},
    ),
    "resident": (plain, 5, lambda _: {"shuffle": True, "resident": True}),
    "endless": (plain, 5, lambda _: {"shuffle": True, "steps": 7}),
}

Batches = list[dict[str, torch.Tensor]]


def passes(windows: ts.Windows, size: int | None, arguments: dict[str, Any]) -> Batches:
    """An epoch of one rank, then the first steps of two ranks, and the rest of these on three, or two with lanes."""
    seen = [*ts.Loader(windows, size, with_ids=True, seed=3, **arguments)]
    state, more = dict[str, Any](), 2 if isinstance(arguments.get("order"), ts.Lanes) else 3
    for rank in range(2):
        loader = ts.Loader(windows, size and size // 2, num_replicas=2, rank=rank, with_ids=True, seed=3, **arguments)
        steps = iter(loader)
        seen += [next(steps) for _ in range(2)]
        state = loader.state_dict()
    for rank in range(more):
        batch_size = size and (size // 2 if more == 2 else max(1, size // 3))
        loader = ts.Loader(windows, batch_size, num_replicas=more, rank=rank, with_ids=True, seed=3, **arguments)
        loader.load_state_dict(state)
        seen += [*loader]
    return seen


def check_same(found: Batches, expected: Batches, ignored: Sequence[str] = ()) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected):
        assert one.keys() == other.keys()
        for name in one.keys() - {*ignored}:
            assert torch.equal(one[name].nan_to_num(-7.5), other[name].nan_to_num(-7.5)), name


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_chosen_entities_are_sampled_as_if_there_were_no_others(
    kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.take(way, monkeypatch)
    make, size, arguments = KINDS[kind]
    windows = make(stash_of(rows()))
    one, other = windows.of(CHOSEN), make(stash_of(rows(CHOSEN)))
    assert 0 < len(one) == len(other) < len(windows)
    check_same(passes(one, size, arguments(one)), passes(other, size, arguments(other)), ["entity"])


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "points"])
def test_the_part_before_the_last_slots_is_sampled_as_if_there_were_no_more_rows(
    kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all entities that have rows before them; at points, windows depend on the frame."""
    kernel.take(way, monkeypatch)
    make, size, arguments = KINDS[kind]
    long = [name for name, n in LENGTHS.items() if n > END]
    windows = make(stash_of(rows(long)))
    before = rows(long, without=END, slots=kind != "events")
    (train, test), other = windows.split_last(END), make(stash_of(before))
    assert len(test)
    check_same(passes(train, size, arguments(train)), passes(other, size, arguments(other)))


@pytest.mark.parametrize("weights", [None, {"one": 2.0, "two": 1.0}])
def test_they_are_components_of_a_mix(weights: Any) -> None:
    def mix(one: ts.Windows, two: ts.Windows) -> Batches:
        return passes(ts.Mix({"one": one, "two": two}, weights=weights), 5, {"shuffle": True})  # type: ignore[arg-type]

    windows, others = plain(stash_of(rows())), [name for name in LENGTHS if name not in CHOSEN]
    found = mix(windows.of(CHOSEN), windows.of(others))
    check_same(found, mix(plain(stash_of(rows(CHOSEN))), plain(stash_of(rows(others)))), ["entity"])
    (train, test), before = windows.split_last(END), plain(stash_of(rows(without=END).filter(pl.col("tree") != "fir")))
    found = mix(train, windows.of(["birch"]))
    expected = mix(before, plain(stash_of(rows(["birch"]))))
    check_same(found, expected, ["entity"])
    assert len(test)


def test_scalers_see_the_rows_of_these_windows_alone() -> None:
    windows, few = plain(stash_of(rows())), plain(stash_of(rows(CHOSEN)))
    one, other = ts.Scaler.fit(windows.of(CHOSEN), ["y"]), ts.Scaler.fit(few, ["y"])
    assert one.rows == other.rows
    assert torch.equal(one.center["y"], other.center["y"])
    train, _ = plain(stash_of(rows(["birch", "oak"]))).split_last(END)
    before = plain(stash_of(rows(["birch", "oak"], without=END)))
    one, other = ts.Scaler.fit(train, ["y"], by="entity"), ts.Scaler.fit(before, ["y"], by="entity")
    assert torch.equal(one.center["y"], other.center["y"])


def _first_batches(windows: tuple[ts.Windows, ...]) -> list[Any]:
    return [next(iter(ts.Loader(part, 4, shuffle=True)))["past"].tolist() for part in windows]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_see_the_same(method: str, processes_from_the_template: None) -> None:
    windows = plain(stash_of(rows()))
    parts = (windows.of(CHOSEN), *windows.split_last(END, 4), windows.of(CHOSEN).split_last(END)[1])
    assert processes.in_child(method, _first_batches, parts) == _first_batches(parts)


@pytest.mark.usefixtures("shm")
def test_pickles_and_fingerprints_keep_them() -> None:
    windows = plain(stash_of(rows(), share="trees"))
    parts = (windows.of(CHOSEN), *windows.split_last(END), windows.of(["ash"]).split_last(END)[0])
    prints = [part.fingerprint() for part in parts]
    assert len({str(one) for one in (*prints, windows.fingerprint())}) == len(parts) + 1
    for part, one in zip(parts, prints):
        again = pickle.loads(pickle.dumps(part))
        assert again.fingerprint() == one
        assert names_of(again.latest()) == names_of(part.latest())
        loader = ts.Loader(part, 4, shuffle=True)
        next(iter(loader))
        with pytest.raises(ValueError, match="differ"):
            ts.Loader(windows, 4, shuffle=True).load_state_dict(loader.state_dict())


def names_of(windows: ts.Windows) -> set[str]:
    """The entities that have windows."""
    return {windows.stash.entities[k] for k in windows.anchors(slice(None))["entity"].tolist()}


@settings(max_examples=200)
@given(
    cases(), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.lists(st.integers(1, 4), min_size=1, max_size=2)
)
def test_of_keeps_the_windows_of_the_entities_and_commutes_with_cuts(
    case: Case, chosen: list[int], lengths: list[int]
) -> None:
    windows = case.windows([1.0] * len(case.events))
    if windows is None:
        return
    entities = [e for e in chosen if e in case.entities]
    if not entities:
        with pytest.raises(ts.errors.ColumnError, match="has no entity"):
            windows.of(chosen)
        return
    part, numbers = windows.of(entities), {windows.stash.entities.index(e) for e in entities}
    assert keys(part) == [key for key in keys(windows) if key[0] in numbers]
    try:
        cut = windows.split_last(*lengths)
        one = [piece.of(entities).fingerprint() for piece in cut]
        assert one == [piece.fingerprint() for piece in part.split_last(*lengths)]
    except ts.errors.NoWindowError:  # only the chosen entities have to be as long
        return


def test_they_stay_chosen_whatever_is_made_of_them() -> None:
    """On other data by name: there entities have other numbers, some are missing, and new ones are not chosen."""
    windows = plain(stash_of(rows()))
    frame = rows(["birch", "cedar", "elm", "oak"])
    other = stash_of(pl.concat([frame, frame.filter(pl.col("tree") == "elm").with_columns(tree=pl.lit("alder"))]))
    part, mine = windows.of(CHOSEN), {*CHOSEN} - {"fir"}  # which is too short for a window
    early, late = part.split(20)
    for kept in (part, early, late, part.split_last(4)[1], part.folds(2, 2, per="entity")[0][1], part.latest()):
        assert names_of(kept) <= mine
        assert names_of(kept.latest()) == mine
        moved = kept.on(other)
        assert names_of(moved) == names_of(moved.latest()) == mine
        assert names_of(moved.on(windows.stash)) == mine
    assert names_of(part.of(["oak", "ash"])) == {"oak"}
    assert names_of(part.of(["oak"]).of(["birch", "oak"]).latest()) == {"oak"}
    halves = part.split_entities(0.5, seed=1)
    assert names_of(halves[0]) | names_of(halves[1]) == mine
    assert early.on(windows.stash).fingerprint() == part.fingerprint(), "cuts in time go"


ENTITIES = ("birch", "elm")
FORMS: dict[str, Callable[[], Any]] = {
    "list": lambda: ["elm", "birch"],
    "repeats": lambda: ["elm", "birch", "elm"],
    "tuple": lambda: ("birch", "elm"),
    "set": lambda: {"birch", "elm"},
    "generator": lambda: (name for name in ENTITIES),
    "array": lambda: np.array(["birch", "elm"]),
    "objects": lambda: np.array(["birch", "elm"], object),
    "pandas": lambda: pd.Series(["elm", "birch"]),
    "index": lambda: pd.Index(["elm", "birch"]),
    "polars": lambda: pl.Series(["elm", "birch"]),
    "arrow": lambda: pa.array(["elm", "birch"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_order_and_repeats_of_names_mean_nothing(form: str) -> None:
    windows = plain(stash_of(rows()))
    assert windows.of(FORMS[form]()).fingerprint() == windows.of([*ENTITIES]).fingerprint()
    numbers = ts.load({"e": np.repeat([5, 7, 9], 4), "y": np.ones(12)}, ["y"], entity="e")
    for names in ([9, 5], np.array([5, 9]), torch.tensor([9, 5]), pd.Series([5, 9]), range(5, 10, 4)):
        assert ts.Windows(numbers, 1).of(names).per_entity()["count"].tolist() == [4, 0, 4]  # type: ignore[arg-type]


def test_names_of_several_columns_are_tuples() -> None:
    stash = ts.load({"shop": [*"aabbb"], "item": [1, 2, 1, 1, 2], "y": np.ones(5)}, ["y"], entity=["shop", "item"])
    windows = ts.Windows(stash, 1)
    for names in ([("b", 1), ("a", 2)], [["b", 1], ["a", 2]], pd.MultiIndex.from_tuples([("a", 2), ("b", 1)])):
        assert windows.of(names).per_entity()["count"].tolist() == [0, 1, 2, 0]
    with pytest.raises(TypeError, match=like("names must be a list of entities, got ('b', 1). Write [('b', 1)].")):
        windows.of(("b", 1))
    with pytest.raises(ts.errors.ColumnError, match=like("the stash has no entity ('b', 3); did you mean ('b', 2)")):
        windows.of([("b", 3)])


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("elm", TypeError, "names must be a list of entities, got 'elm'. Write ['elm']."),
        (3, TypeError, "names must be a list of entities, got 3. Write [3]."),
        (None, TypeError, "names must be a list of entities, got None. Write ['ash', 'birch']."),
        ({"elm": 1}, TypeError, "names must be a list of entities, got {'elm': 1}. Write ['elm']."),
        (
            pl.DataFrame({"tree": ["elm"]}),
            TypeError,
            "names must be a list of entities, got ... Write ['ash', 'birch']",
        ),
        ([], ValueError, "names must have at least one entity, got none."),
        (["elms"], ts.errors.ColumnError, "the stash has no entity 'elms'; did you mean 'elm'"),
        (["elm", 3], ts.errors.ColumnError, "the stash has no entity 3"),
        (["elm", {}], ts.errors.ColumnError, "the stash has no entity {}"),
        ((["elm"],), ts.errors.ColumnError, "the stash has no entity ['elm']"),
        ([("elm", {})], ts.errors.ColumnError, "the stash has no entity ('elm', {})"),
        ([math.nan], ts.errors.ColumnError, "the stash has no entity nan"),
    ],
)
def test_what_is_no_list_of_entities_is_refused(names: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=like(message)):
        plain(stash_of(rows())).of(names)


def test_a_near_name_is_found_among_many() -> None:
    names = [f"series {k:06}" for k in range(20_000)]
    windows = ts.Windows(ts.load({"e": names, "y": np.ones(20_000)}, ["y"], entity="e"), 1)
    for wrong in ("series 19998", "series 019998x", "Series 019998"):
        with pytest.raises(
            ts.errors.ColumnError, match=like(f"has no entity {wrong!r}; did you mean ... 'series 019998'")
        ):
            windows.of([wrong])


def test_entities_without_any_window_are_told() -> None:
    windows = plain(stash_of(rows()))
    with pytest.warns(UserWarning, match=r"None of the \d+ windows is of a chosen entity, such as 'fir'") as told:
        part = windows.of(["fir"])
    assert [one.filename for one in told] == [__file__]
    assert len(part) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(part.of(["fir"])) == 0, "it was told before"


def test_groups_are_folded_as_scikit_learn_does() -> None:
    """Its `GroupKFold` gives the largest group left to the fold with the fewest samples; `of` takes each fold."""
    windows = plain(stash_of(rows()))
    names, counts = windows.stash.entities, windows.per_entity()["count"].numpy()
    held: list[list[str]] = [[], [], []]
    sizes = [0, 0, 0]
    for k in np.argsort(counts)[::-1]:
        if counts[k]:
            least = sizes.index(min(sizes))
            held[least].append(names[k])
            sizes[least] += counts[k]
    try:
        from sklearn.model_selection import GroupKFold
    except ImportError:
        pass  # folds are compared with its rule alone
    else:
        groups = [names[k] for k in windows.anchors(slice(None))["entity"].tolist()]
        folds = [{groups[k] for k in test} for _, test in GroupKFold(3).split(groups, groups=groups)]
        assert folds == [{*fold} for fold in held]
    everything = windows[:]["past"]
    entity = windows.anchors(slice(None))["entity"]
    for fold in held:
        inside = torch.tensor([names[k] in fold for k in entity.tolist()])
        train = windows.of([name for name in names if name not in fold])
        assert torch.equal(windows.of(fold)[:]["past"], everything[inside])
        assert torch.equal(train[:]["past"], everything[~inside])


def test_shards_choose_and_cut_as_one_stash_does(tmp_path: Path) -> None:
    frame = rows()
    keys: dict[str, Any] = {"entity": "tree", "time": "t"}
    ts.cluster.shard(frame, ["y"], **keys, shards=4, to=tmp_path / "shards")
    whole = plain(ts.load(frame, ["y"], **keys))
    sharded = ts.cluster.windows(ts.cluster.open(tmp_path / "shards", 0, 1), spans=SPANS, frequency=1)

    def pasts(windows: Any) -> list[list[float]]:
        batches = ts.Loader(windows, 7, shuffle=True, with_valid=True)
        return sorted(row for batch in batches for row in batch["past"][batch["valid"]].tolist())

    for lengths in ((END,), (END, 4), (20, 15)):  # longer than all series of some shards
        for one, other in zip(sharded.split_last(*lengths), whole.split_last(*lengths), strict=True):
            assert len(one) == len(other)
            if len(other):
                assert pasts(one) == pasts(other)
    for names in (CHOSEN, ["elm"], [*LENGTHS]):
        part = sharded.of(names)
        assert pasts(part) == pasts(whole.of(names))
        assert (part.fingerprint() == sharded.fingerprint()) == (len(names) == len(LENGTHS))
        assert pasts(part.split_last(END)[1]) == pasts(whole.of(names).split_last(END)[1])
    with pytest.raises(ts.errors.ColumnError, match=like("has no entity 'yew'")):
        sharded.of(["elm", "yew"])
