"""Windows over a stash that is scaled once: the oracle is the scaler as a transform in a loader over the raw ones."""

import gc
import multiprocessing
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.errors import ColumnError, DataError, SchemaError
from tests.everywhere import DAYS, KINDS, plain, stash_of, windows_of
from tests.oracle_load import like
from tests.transforms.test_scaled_stash import bits
from tests.windows.test_everywhere import ORDERS

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* entit",
    "ignore:.*in no window of cover",
    "ignore:cover shows",
    "ignore:Part ",
    "ignore:.*targets",
    "ignore:.*series end before",
    "ignore:.*Gaps cost",
    "ignore:Gaps make",
    "ignore:No value, or only one",
)

RUNS = pl.DataFrame(
    {
        "tree": ["ash", "birch", "cedar", "elm", "fir"] * 40,
        "t": [k // 5 * 2 for k in range(200)],
        "known": [k // 5 * 2 - k % 3 for k in range(200)],
        "wind": [float(k % 17) for k in range(200)],
    }
)


def at_points(stash: ts.Stash, **more: Any) -> ts.Windows:
    at = pl.DataFrame({"tree": ["elm", "ash", "birch", "elm"], "t": [30, 9, 25, 16], "label": [1.0, 2.0, 3.0, 4.0]})
    return plain(stash, at=at, gaps="mask", frequency=1, min_history=1, min_horizon=0, **more)


def with_versions(stash: ts.Stash) -> ts.Windows:
    runs = ts.load(RUNS, ["wind"], entity="tree", time="t", known="known")
    ahead = ts.During("wind", -2, 6, every=2, age=True, table="runs")
    spans: dict[str, Any] = {"past": ("x", -4, 0), "next": ("y", 0, 2), "ahead": ahead}
    return plain(stash, spans=spans, tables={"runs": runs}, frequency=DAYS)


def beside_itself(stash: ts.Stash) -> ts.Windows:
    """A table that is the stash of the windows."""
    spans: dict[str, Any] = {"past": ("y", -4, 0), "own": ts.During("y", -9, 0, max_rows=4, table="same")}
    return plain(stash, spans=spans, tables={"same": stash}, frequency=DAYS)


WAYS: dict[str, Callable[[ts.Stash], ts.Windows]] = {kind: partial(windows_of, kind) for kind in KINDS} | {
    "at points": at_points,
    "stretches": lambda stash: plain(stash, spans={"own": ts.During("x", -9, 0, max_rows=4, age=True)}, frequency=None),
    "versions": with_versions,
    "its own table": beside_itself,
}
PARTS: dict[str, Callable[[ts.Windows], Any]] = {
    "all": lambda windows: [windows],
    "split": lambda windows: windows.split(20, 34),
    "fractions": lambda windows: windows.split_fraction(0.6),
    "the last": lambda windows: windows.split_last(5),
    "entities": lambda windows: windows.split_entities(0.6, seed=1),
    "of": lambda windows: [windows.of(["elm", "ash"])],
    "folds": lambda windows: [part for pair in windows.folds(2, 3) for part in pair],
    "latest": lambda windows: [windows, windows.latest()],
    "cover": lambda windows: [windows.cover(windows.spans[0].name)],
    "on": lambda windows: [windows.on(windows.stash)],
}


def daily(stash: ts.Stash, **more: Any) -> ts.Windows:
    return plain(stash, frequency=DAYS, **more)


def columns_of(windows: ts.Windows) -> list[str]:
    held = {name for span in windows.spans for name in span.columns}
    return sorted(held & {"x", "y", "price", "wind"})


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, values in one.items():
        assert values.dtype == two[name].dtype
        assert torch.equal(bits(values), bits(two[name])), name


def check(windows: ts.Windows, scaled: ts.Windows, scaler: ts.Scaler, more: dict[str, Any]) -> None:
    """Every batch of an epoch, and what windows are to a state."""
    assert scaled.fingerprint() == windows.fingerprint()
    assert str(scaled) == str(windows)
    arguments = {"batch_size": 6, "with_ids": True, "seed": 5} | more
    transforms = arguments.pop("transform", [])
    expected = ts.Loader(windows, **arguments, transform=[scaler, *transforms])
    found = ts.Loader(scaled, **arguments, transform=transforms)
    for k, (one, two) in enumerate(zip(expected, found, strict=True)):
        same(one, two)
        if k == 1:
            state = expected.state_dict()
            assert found.state_dict() == state
            found.load_state_dict(state)


@pytest.mark.parametrize("by", [None, "entity"])
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_those_of_the_scaler_as_a_transform(way: str, by: Any) -> None:
    windows = WAYS[way](stash_of())
    columns = [name for name in columns_of(windows) if by is None or name not in ("price", "wind")]
    scaler = ts.Scaler.fit(windows, columns, by=by)
    if way == "its own table" and by:
        with pytest.raises(ValueError, match=like("'own' has rows of the table 'same'. Scale each batch")):
            scaler.transform(windows)
        return
    for order in ("shuffled", "resident"):
        if ORDERS[order](windows).get("resident") and windows.placement.time_spans:
            continue
        check(windows, scaler.transform(windows), scaler, ORDERS[order](windows))


@given(
    way=st.sampled_from([*WAYS]),
    part=st.sampled_from([*PARTS]),
    kind=st.sampled_from(["standard", "minmax", "robust", "maxabs"]),
    by=st.sampled_from([None, "entity"]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    pack=st.booleans(),
)
@settings(max_examples=120)
def test_parts_are_those_of_the_raw_windows(way: str, part: str, kind: Any, by: Any, dtype: Any, pack: bool) -> None:
    stash = stash_of(dtype)
    windows = WAYS[way](stash)
    try:
        parts = PARTS[part](windows)
    except (ValueError, DataError):
        return  # such windows have no such parts, which other tests say
    columns = [name for name in columns_of(windows) if by is None or name not in ("price", "wind")]
    scaler = ts.Scaler.fit(windows, columns, kind=kind, by=by)
    if way == "its own table" and by:
        return
    scaled = [*map(scaler.transform, parts)]
    again = PARTS[part](scaler.transform(windows)) if part != "on" else scaled
    packing = [ts.PackSequences(windows.spans[0].name)] if pack and way not in ("each variate", "drawn") else []
    for raw, one, two in zip(parts, scaled, again, strict=True):
        if len(raw):
            check(raw, one, scaler, {"shuffle": True, "transform": packing})
            check(raw, two, scaler, {"shuffle": True, "transform": packing})


def test_all_parts_have_one_copy_which_goes_with_the_last_of_them() -> None:
    stash = stash_of()
    spans = {"past": ("x", -4, 0), "next": ("y", 0, 2)}
    train, valid = daily(stash, spans=spans).split(30)
    scaler = ts.Scaler.fit(train, ["x", "y"])
    one, two = map(scaler.transform, (train, valid))
    assert one.stash is two.stash is not stash
    for name in stash:
        assert one.stash[name].data_ptr() == two.stash[name].data_ptr() != stash[name].data_ptr()
    again = ts.Scaler.from_state(scaler.state_dict()).transform(train.latest())
    assert again.stash is one.stash
    others = [
        ts.Scaler.fit(train, ["y"]).transform(train),
        ts.Scaler.fit(valid, ["x", "y"]).transform(train),
        scaler.transform(train, dtype=torch.float32),
        scaler.transform(daily(stash_of(), spans=spans)),
    ]
    assert len({id(windows.stash) for windows in [one, *others]}) == 5
    sizes = [segment.size for segment in (stash.segment, one.stash.segment)]
    assert sizes[0] == sizes[1]
    # the copy is held by its windows alone
    kept = id(one.stash.segment)
    del one, two, again
    gc.collect()
    alive = [thing for thing in gc.get_objects() if id(thing) == kept and type(thing).__name__ == "Segment"]
    assert not alive


def test_windows_of_new_data_are_scaled_as_those_of_the_training() -> None:
    """A service loads rows with `like=`, takes the newest windows, and scales them."""
    stash = stash_of()
    windows = daily(stash)
    scaler = ts.Scaler.fit(windows, ["y"], by="entity", unknown="pooled")
    rows = stash.to_polars().filter(pl.col("tree").is_in(["elm", "ash"]))
    more = ts.load(rows.with_columns(z=pl.col("x").arr.get(1)), like=stash.without_rows())
    newest = windows.on(more).latest()
    check(newest, scaler.transform(newest), scaler, {})
    predictions = torch.zeros(len(newest), newest.horizon)
    found = scaler.transform(newest)
    assert found.to_frame(slice(None), predictions).equals(newest.to_frame(slice(None), predictions))
    same(scaler.transform(windows).on(scaler.transform(more)).latest()[:], found[:])
    with pytest.raises(SchemaError, match=like("need the same ... Apply a scaler to both")):
        scaler.transform(windows).on(more)


def test_components_of_a_mix_may_be_scaled() -> None:
    one, other = (daily(stash_of()) for _ in range(2))
    mix = ts.Mix({"one": one, "other": other})
    scaler = ts.Scaler.fit(mix, ["y"])
    scaled = ts.Mix({name: scaler.transform(part) for name, part in mix.windows.items()})
    assert scaled.fingerprint() == mix.fingerprint()
    expected, found = ts.Loader(mix, 7, shuffle=True, transform=[scaler]), ts.Loader(scaled, 7, shuffle=True)
    for two in zip(expected, found, strict=True):
        same(*two)
    with pytest.raises(TypeError, match=like("takes windows or a stash, got a Mix")):
        scaler.transform(mix)  # type: ignore[call-overload]


def test_a_loader_does_not_scale_them_again_and_inverse_undoes_it() -> None:
    windows = WAYS["a calendar with empty slots"](stash_of())
    scaler = ts.Scaler.fit(windows, ["y"], by="entity")
    scaled = scaler.transform(windows)
    with pytest.raises(ValueError, match=like("A column must be scaled once; 'y'")):
        ts.Loader(scaled, 4, transform=[scaler])
    with pytest.raises(ValueError, match=like("A column must be scaled once; 'y'")):
        scaler.transform(scaled)
    with pytest.raises(ValueError, match=like("A column must be scaled once; 'y'")):
        ts.Scaler.fit(scaled, ["y"])
    raw, batch = (next(iter(ts.Loader(part, 500, with_ids=True))) for part in (windows, scaled))
    for name, values in scaler.bind(scaled).inverse(batch).items():
        torch.testing.assert_close(values, raw[name], equal_nan=True)


def test_values_are_those_of_the_first_call() -> None:
    stash = stash_of()
    windows = daily(stash)
    scaler = ts.Scaler.fit(windows, ["y"])
    stash["y"][0] = 500.0
    first = scaler.transform(windows)
    assert first.stash["y"][0] == (500.0 - scaler.center["y"][0]) / scaler.scale["y"][0]
    stash["y"][0] = 0.0
    assert scaler.transform(windows.latest()).stash is first.stash
    assert scaler.transform(stash)["y"][0] == -scaler.center["y"][0] / scaler.scale["y"][0]


def _batch(windows: ts.Windows, results: Any) -> None:
    torch.set_num_threads(1)
    results.put(windows[:5]["past"].nan_to_num(-7.5).tolist())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_take_them(method: str, processes_from_the_template: None) -> None:
    windows = daily(stash_of())
    scaled = ts.Scaler.fit(windows, ["y"]).transform(windows)
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=_batch, args=(scaled, results))
    child.start()
    assert results.get(timeout=300) == scaled[:5]["past"].nan_to_num(-7.5).tolist()
    child.join()


def test_ranks_share_one_copy_and_one_rank_never_writes_into_it(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stash = stash_of().share("trees")
    windows = daily(stash)
    scaler = ts.Scaler.fit(windows, ["y"])
    loaded = stash["y"].clone()
    stash["y"][0] = 500.0  # of this process alone
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=like("each of 2 ranks would hold one. Write ... share=")):
        scaler.transform(windows)
    one = scaler.transform(windows, share="scaled")
    assert scaler.transform(windows.latest(), share="scaled").stash is one.stash
    other = scaler.transform(daily(ts.attach("trees")), share="scaled")  # as another rank
    assert other.stash is not one.stash
    assert other.stash.path == one.stash.path
    expected = (loaded - scaler.center["y"]) / scaler.scale["y"]
    assert torch.equal(bits(other.stash["y"]), bits(expected))
    assert pickle.loads(pickle.dumps(one)).fingerprint() == one.fingerprint()
    again = scaler.transform(daily(stash_of()), share="scaled")  # equal bytes of a private stash
    more = scaler.transform(daily(stash_of()), share="scaled")
    assert again.stash.path == more.stash.path
    assert ts.shared.list()["label"].to_list().count("scaled") == 2
    assert scaler.transform(stash_of(), share="a-stash").path is not None


def _rank(rank: int, results: Any) -> None:
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank)}
    windows = daily(ts.attach("trees"))
    scaled = ts.Scaler.fit(windows, ["y"], by="entity").transform(windows, share="scaled")
    results.put((rank, scaled.stash.path, scaled[:3]["past"].nan_to_num(-7.5).tolist()))


def test_processes_that_begin_together_build_one_copy(shm: Path, processes_from_the_template: None) -> None:
    windows = daily(stash_of().share("trees"))
    expected = ts.Scaler.fit(windows, ["y"], by="entity").transform(windows)[:3]["past"].nan_to_num(-7.5).tolist()
    context: Any = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    found = [results.get(timeout=300) for _ in ranks]
    for rank in ranks:
        rank.join()
    assert {path for _, path, _ in found} == {ts.attach("scaled").path}
    assert [values for *_, values in found] == [expected, expected]


def test_what_cannot_be_scaled_once_is_refused() -> None:
    stash = stash_of()
    windows = daily(stash, spans={"past": ("y", -4, 0), "day": ("day", 0, 2)})
    scaler = ts.Scaler.fit(windows, ["y"])
    with pytest.raises(SchemaError, match=like("A column of ts.calendar cannot be scaled in a stash")):
        ts.Scaler.fit(windows, ["y", "day"]).transform(windows)
    with pytest.raises(ColumnError, match=like("no column 'x'")):
        ts.Scaler.fit(stash, ["x", "y"]).transform(ts.Windows(ts.load({"y": [1.0, 2.0]}), 1))
    with pytest.raises(ValueError, match=like("A label is a text ... share='a b'")):
        scaler.transform(windows, share="a b")
    with pytest.raises(TypeError, match=like("got a dict ... scaler(batch)")):
        scaler.transform(windows[:])  # type: ignore[call-overload]
    strangers = ts.Windows(ts.load({"tree": ["oak"] * 3, "y": np.ones(3)}, entity="tree"), 1)
    with pytest.raises(DataError, match=like("1 of 1 are unknown, such as 'oak'")):
        ts.Scaler.fit(windows, ["y"], by="entity").transform(strangers)
