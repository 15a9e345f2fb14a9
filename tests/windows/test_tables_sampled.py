"""Windows over tables in everything that samples: orders, ranks, resume, mixes, splits, processes, transforms."""

import pickle
import tracemalloc
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests import kernel, processes
from tests.oracle_load import like
from tests.windows.test_tables import equal

HOURS = 60
SPANS: dict[str, Any] = {
    "load": ("y", -4, 0),
    "target": ("y", 0, 2),
    "wind": ts.During("wind", 0, 6, every=1, age=True, table="runs", by="site"),
    "price": ts.During("price", -9, 0, max_rows=5, age=True, table="prices"),
}


def own(name: str = "a", extra: float = 0.0) -> ts.Stash:
    """Two series of hours, each at a site."""
    frame = pl.DataFrame({"series": [f"{name}1"] * HOURS + [f"{name}2"] * HOURS, "t": [*range(HOURS)] * 2})
    frame = frame.with_columns(y=pl.int_range(pl.len()) + extra)
    static = pl.DataFrame({"series": [f"{name}1", f"{name}2"], "site": ["north", "south"]})
    return ts.load(frame, ["y"], entity="series", time="t", static=static)


def runs(extra: float = 0.0, *, sites: tuple[str, ...] = ("north", "south")) -> ts.Stash:
    """A run every 3 hours, with 9 leads; its values tell the run and the time."""
    rows = [
        (s, run + lead, run, 1000.0 * run + run + lead + extra)
        for s in sites
        for run in range(-6, HOURS, 3)
        for lead in range(9)
    ]
    frame = pl.DataFrame(rows, ["site", "valid", "issued", "wind"], orient="row")
    return ts.load(frame, ["wind"], entity="site", time="valid", known="issued")


def prices(extra: float = 0.0) -> ts.Stash:
    """A price every other hour, the same for all."""
    return ts.load(
        {"t": [*range(-10, HOURS, 2)], "price": [k + extra for k in range(-10, HOURS, 2)]}, ["price"], time="t"
    )


def windows_of(name: str = "a", extra: float = 0.0, **more: Any) -> ts.Windows:
    tables = {"runs": runs(extra), "prices": prices(extra)}
    return ts.Windows(own(name, extra), spans=SPANS, tables=tables, **more)


def test_one_window_by_hand() -> None:
    windows = windows_of()
    batch = windows[[0]]  # t = 4
    assert batch["load"].tolist() == [[0, 1, 2, 3]]
    assert batch["wind"].tolist() == [[3000.0 + 3 + t for t in range(1, 7)]]
    assert batch["wind.age"].tolist() == [[0, -1, -2, -3, -4, -5]]
    assert batch["wind.delay"].tolist() == [[1] * 6]
    assert batch["price"][0, 1:].tolist() == [-4.0, -2.0, 0.0, 2.0]
    assert batch["price.observed"].tolist() == [[False, True, True, True, True]]
    assert "of runs by site, in 6 buckets, with age" in repr(windows)


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize(
    "order", [None, ts.Blocks(7), ts.ByTime(), ts.PerEntity(25), ts.Weighted([1.0, 3.0], per="entity")]
)
def test_ranks_and_resumed_runs_share_the_batches_of_one(way: str, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.take(way, monkeypatch)
    windows = windows_of()
    arguments: dict[str, Any] = {"order": order, "with_ids": True, "seed": 5}
    for number, batch in enumerate(ts.Loader(windows, 6, **arguments)):
        expected = windows[batch["window"]]
        assert equal(expected, {name: batch[name] for name in expected})
        if number == 4:
            break
    first = ts.Loader(windows, 6, num_replicas=2, rank=0, **arguments)
    seen = []
    for batch in first:
        seen.append(batch["window"])
        if len(seen) == 3:
            state = first.state_dict()
            break
    rest = ts.Loader(windows_of(), 4, num_replicas=3, rank=1, **arguments)
    rest.load_state_dict(state)
    for batch in rest:
        expected = windows[batch["window"]]
        assert equal(expected, {name: batch[name] for name in expected})


@pytest.mark.parametrize("changed", ["times", "known times", "rows", "entities", "by", "columns"])
def test_a_state_of_other_tables_is_refused(changed: str) -> None:
    loader = ts.Loader(windows_of(), 6)
    next(iter(loader))
    tables: dict[str, ts.Stash] = {"runs": runs(), "prices": prices()}
    spans = dict(SPANS)
    if changed == "times":
        tables["prices"] = ts.load({"t": [*range(-9, HOURS + 1, 2)], "price": [0.0] * 35}, ["price"], time="t")
    elif changed == "rows":
        tables["runs"] = runs(sites=("north", "south", "west"))
    elif changed == "entities":
        tables["runs"] = runs(sites=("north", "west"))
    elif changed == "known times":
        frame = tables["runs"].to_polars().with_columns(pl.col("issued") - pl.int_range(pl.len()) % 2)
        tables["runs"] = ts.load(frame, ["wind"], entity="site", time="valid", known="issued")
    elif changed == "by":
        frame = pl.DataFrame({"site": ["a1", "a2"]}).join(
            pl.DataFrame({"valid": [1], "issued": [0], "wind": [0.0]}), how="cross"
        )
        spans["wind"] = ts.During("wind", 0, 6, every=1, age=True, table="runs")
        tables["runs"] = ts.load(frame, ["wind"], entity="site", time="valid", known="issued")
    else:
        spans["price"] = ts.During("price", -9, 0, every=3, age=True, table="prices")
    other = ts.Loader(ts.Windows(own(), spans=spans, tables=tables), 6)
    with pytest.raises(ValueError, match=r"other windows|other data|differ"):
        other.load_state_dict(loader.state_dict())


def test_a_state_of_buckets_is_not_one_of_as_many_rows() -> None:
    def loader(**slots: int) -> ts.Loader:
        span = ts.During("price", -9, 0, table="prices", **slots)  # type: ignore[arg-type]
        return ts.Loader(ts.Windows(own(), spans={"price": span}, tables={"prices": prices()}), 6)

    state = loader(every=3).state_dict()
    loader(every=3).load_state_dict(state)
    with pytest.raises(ValueError, match=like("these differ ... spans")):
        loader(max_rows=3).load_state_dict(state)


def test_values_of_tables_may_change_between_runs() -> None:
    """As those of the windows' stash may: a state says which rows, not what they hold."""
    loader = ts.Loader(windows_of(), 6)
    next(iter(loader))
    ts.Loader(windows_of(extra=7.0), 6).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize("resident", [False, True])
def test_components_of_a_mix_have_tables_of_their_own(
    way: str, resident: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.take(way, monkeypatch)
    parts = {"a": windows_of("a"), "b": windows_of("b", 0.25)}
    mix = ts.Mix(parts)
    for batch in ts.Loader(mix, 9, shuffle=True, with_ids=True, device="cpu", resident=resident):
        for number, part in enumerate(parts.values()):
            of_part = batch["source"] == number
            expected = part[batch["window"][of_part]]
            assert equal(expected, {name: batch[name][of_part] for name in expected})


def test_components_of_a_mix_have_tables_that_mean_the_same() -> None:
    def part(table: ts.Stash) -> ts.Windows:
        return ts.Windows(own(), spans={"price": SPANS["price"]}, tables={"prices": table})

    single = ts.load({"t": [1, 2], "price": [1.0, 2.0]}, {"price": ts.column("price", dtype=torch.float32)}, time="t")
    with pytest.raises(ts.errors.SchemaError, match=like("same type of 'prices.price' ... float64 ... float32")):
        ts.Mix({"a": part(prices()), "b": part(single)})
    known = ts.load({"t": [1, 2], "k": [0, 1], "price": [1.0, 2.0]}, ["price"], time="t", known="k")
    with pytest.raises(ts.errors.SchemaError, match=like("same unit of known times of prices")):
        ts.Mix({"a": part(prices()), "b": part(known)})


def test_stretches_ahead_count_for_a_split_unless_they_are_over_known_times() -> None:
    ahead = {"next": ts.During("price", 0, 4, max_rows=2, table="prices")}
    known = {"wind": SPANS["wind"]}
    past = {"load": ("y", -4, 0)}
    stash = own()
    cases: list[tuple[str, Any, Any]] = [
        ("neither", {}, None),
        ("known", known, {"runs": runs()}),
        ("ahead", ahead, {"prices": prices()}),
    ]
    counts = {}
    for name, spans, tables in cases:
        windows = ts.Windows(stash, spans=past | spans, tables=tables)
        parts = windows.split(30)
        fractions = windows.split_fraction(0.5)
        counts[name] = ([len(part) for part in parts], [len(part) for part in fractions])
        times = [part.anchors(range(len(part)))["time"] for part in parts]
        assert int(times[0].max()) + 4 * (name == "ahead") == 29
    assert counts["neither"] == counts["known"]
    assert counts["ahead"][0] == [counts["known"][0][0] - 2 * 4, counts["known"][0][1]]
    assert counts["ahead"][1] == counts["ahead"][0]
    assert len(ts.Windows(stash, spans=past | known, tables={"runs": runs()}).folds(2, 5)) == 2
    with pytest.raises(ValueError, match="reaches into the future"):
        ts.Windows(stash, spans=past | ahead, tables={"prices": prices()}).folds(2, 5)


def test_the_latest_window_has_the_newest_run_for_tomorrow() -> None:
    newest = windows_of().latest()
    batch = newest[:]
    assert newest.anchors([0, 1])["time"].tolist() == [HOURS, HOURS]
    last_run = HOURS - 3
    expected = [1000.0 * last_run + last_run + HOURS + k - last_run for k in range(6)]
    assert batch["wind"].tolist() == [expected] * 2
    assert batch["wind.observed"].all()
    assert batch["wind.delay"].tolist() == [[3] * 6] * 2
    assert batch["price"][:, 1:].tolist() == [[52.0, 54.0, 56.0, 58.0]] * 2
    frame = newest.to_frame([0, 1], torch.zeros(2, 2))
    assert frame["t"].to_list() == [HOURS, HOURS + 1] * 2


def test_windows_with_few_rows_are_left_out() -> None:
    """Filled buckets count."""
    span = ts.During("price", -6, 0, every=1, min_rows=3, table="prices")
    windows = ts.Windows(own(), spans={"price": span}, tables={"prices": prices()})
    flags = windows[:]["price.observed"].sum(1)
    assert int(flags.min()) == 3
    assert len(windows) == 2 * HOURS  # every stretch of 6 hours has 3 prices
    with pytest.raises(ts.errors.NoWindowError, match="min_rows"):
        span = ts.During("price", -6, 0, every=1, min_rows=4, table="prices")
        ts.Windows(own(), spans={"price": span}, tables={"prices": prices()})


def test_a_stash_with_known_times_is_looked_at_from_points() -> None:
    """Its own spans are as known too; a split goes by t."""
    stash = runs()
    at = {"site": ["north", "south", "west"], "valid": [4, 20, 3]}
    windows = ts.Windows(stash, spans={"wind": ts.During("wind", 0, 3, every=1, age=True)}, at=at, unmatched="drop")
    batch = windows[:]
    assert batch["wind"].tolist() == [[3000.0 + 3 + k for k in (1, 2, 3)], [18_000.0 + 18 + k for k in (2, 3, 4)]]
    assert batch["wind.delay"].tolist() == [[1] * 3, [2] * 3]
    first, second = windows.split(10)
    assert (len(first), len(second)) == (1, 1)
    with pytest.raises(ValueError, match="split_fraction goes by rows"):
        windows.split_fraction(0.5)


def test_sequences_of_buckets_are_packed() -> None:
    windows = windows_of()
    packed = next(iter(ts.Loader(windows, 5, transform=[ts.PackSequences("price")])))
    whole = next(iter(ts.Loader(windows, 5)))
    assert torch.equal(packed["price"], whole["price"][whole["price.observed"]])
    assert torch.equal(packed["price.age"], whole["price.age"][whole["price.observed"]])


def test_a_scaler_takes_each_version_that_a_window_sees_once() -> None:
    windows = windows_of()
    scaler = ts.Scaler.fit(windows, ["wind", "y", "price"])
    ids, wind, price = np.arange(len(windows)), set(), set()
    batch = windows[ids]
    sites = windows.anchors(ids)["entity"].tolist()
    for site, values, seen in zip(sites, batch["wind"].tolist(), batch["wind.observed"].tolist()):
        wind |= {(site, value) for value, flag in zip(values, seen) if flag}
    price = {float(value) for value in batch["price"][batch["price.observed"]]}
    assert scaler.center["wind"].item() == pytest.approx(np.mean([value for _, value in wind]))
    assert scaler.center["price"].item() == pytest.approx(np.mean([*price]))
    scaled = scaler(windows[[3]])
    assert scaled["wind"][0, 0].item() == pytest.approx(
        (batch["wind"][3, 0].item() - scaler.center["wind"].item()) / scaler.scale["wind"].item()
    )
    with pytest.raises(ValueError, match=like("by='entity' needs rows ... 'wind' is a column of a table")):
        ts.Scaler.fit(windows, ["wind"], by="entity")
    both = {"own": ("y", -2, 0), "other": ts.During("y", -3, 0, max_rows=2, table="others")}
    twice = ts.Windows(own(), spans=both, tables={"others": own("a", 0.5)})
    with pytest.raises(ts.errors.SchemaError, match=like("of one stash ... 'y' from 2")):
        ts.Scaler.fit(twice, ["y"])


def test_a_neighbour_is_read_by_a_table_of_the_same_stash() -> None:
    frame = pl.DataFrame({"series": ["a"] * 5 + ["b"] * 5, "t": [*range(5)] * 2, "y": [float(k) for k in range(10)]})
    static = pl.DataFrame({"series": ["a", "b"], "near": ["b", "a"]})
    stash = ts.load(frame, ["y"], entity="series", time="t", static=static)
    span = ts.During("y", -2, 0, max_rows=2, table="all", by="near", closed="left")
    windows = ts.Windows(stash, spans={"own": ("y", -2, 0), "other": span}, tables={"all": stash})
    assert windows[0]["other"].nan_to_num(-1.0).tolist() == [-1.0, 5.0]
    assert windows[-1]["other"].tolist() == [2.0, 3.0]


def _bytes(windows: ts.Windows) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in windows[[0, 50]].items()}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_see_the_same(method: str, processes_from_the_template: None) -> None:
    windows = windows_of()
    assert processes.in_child(method, _bytes, windows) == _bytes(windows)


def test_windows_over_saved_tables_are_pickled(tmp_path: Any) -> None:
    """By reference: the times of a table are not in the pickle."""
    paths = [str(tmp_path / f"{name}.safetensors") for name in ("own", "runs", "prices")]
    stashes = []
    for stash, path in zip((own(), runs(), prices()), paths):
        stash.save(path)
        stashes.append(ts.open(path))
    windows = ts.Windows(stashes[0], spans=SPANS, tables={"runs": stashes[1], "prices": stashes[2]})
    dumped = pickle.dumps(windows)
    assert len(dumped) < 8_000
    assert equal(pickle.loads(dumped)[:], windows_of()[:])
    assert equal(
        next(iter(ts.Loader(windows, 60, shuffle=True))), next(iter(ts.Loader(windows_of(), 60, shuffle=True)))
    )


@kernel.needed
def test_a_batch_takes_little_memory_beside_the_stashes() -> None:
    """At most 16 bytes for each slot of the batches in flight, and nothing for each window of the epoch."""
    windows = windows_of()
    loader = ts.Loader(windows, 50)
    assert len([*loader]) == 3  # and what is made once for all is there
    slots = 50 * (4 + 2 + 2 * 6 + 2 * 5 + 6 + 5)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    windows.contents.chain.rows(windows.contents.chain.locate(np.arange(50)))
    most = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert most <= 16 * slots + 20_000


def test_windows_on_other_data_have_other_tables_or_the_same() -> None:
    """Tables that are not given stay; those that are given must mean the same."""
    windows = windows_of()
    other = windows.on(own("a", 0.5), tables={"prices": prices(7.0)})
    batch, before = other[:], windows[:]
    assert torch.equal(batch["wind"], before["wind"])
    assert torch.equal(batch["price"][batch["price.observed"]], before["price"][before["price.observed"]] + 7.0)
    assert torch.equal(batch["load"], before["load"] + 0.5)
    single = ts.load({"t": [1, 2], "price": [1.0, 2.0]}, {"price": ts.column("price", dtype=torch.float32)}, time="t")
    with pytest.raises(ts.errors.SchemaError, match=like("same type of 'prices.price' ... float64 ... float32")):
        windows.on(own(), tables={"prices": single})
    tables = {"runs": {"wind": 0}, "prices": {"price": -9}}
    assert windows.needs() == {"slots": 4, "during": {}, "tables": tables}
