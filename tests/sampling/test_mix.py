"""Mixes through loaders: what is refused, what batches carry, how much of each component, a thousand components."""

import gc
import json
import re
import warnings
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.errors import SchemaError
from tests import kernel, oracle
from tests.data import DTYPES, Table
from tests.epochs import OBJECTS, shuffle_of
from tests.oracle_load import like
from tests.words import ScalerKind as Kind


@pytest.fixture(params=kernel.WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the kernel, where it was compiled, and without."""
    kernel.take(request.param, monkeypatch)


def stash(rows: int, first: int = 0, **more: Any) -> ts.Stash:
    """Two entities, a text column, a static column."""
    table = {
        "e": ["a"] * (rows // 2) + ["b"] * (rows - rows // 2),
        "t": [*range(rows // 2), *range(rows - rows // 2)],
        "y": np.arange(first, first + rows, dtype=np.float32),
        "k": ["u", "v"] * (rows // 2) + ["u"] * (rows % 2),
        "size": np.repeat([first + 0.5, first + 1.5], [rows // 2, rows - rows // 2]),
    }
    return ts.load(table | more, ["y", "k"], static=["size"], entity="e", time="t")


def windows(of: ts.Stash, **arguments: Any) -> ts.Windows:
    return ts.Windows(of, spans={"past": ("y", -2, 0), "kind": ("k", 0, 1)}, **arguments)


def test_static_columns_and_ids_are_those_of_the_component() -> None:
    parts = {"one": windows(stash(12)), "two": windows(stash(20, 100)), "three": windows(stash(9, 1000))}
    loader = ts.Loader(ts.Mix(parts), 7, shuffle=True, with_ids=True)
    seen = []
    for batch in loader:
        for k, (source, window) in enumerate(zip(batch["source"].tolist(), batch["window"].tolist())):
            own = [*parts.values()][source]
            for name, value in own[window].items():
                assert torch.equal(batch[name][k], value), name
            about = own.anchors([window])
            assert batch["entity"][k] == about["entity"][0]
            assert batch["anchor"][k] == about["time"][0]
            seen.append((source, window))
    assert sorted(seen) == [(c, k) for c, part in enumerate(parts.values()) for k in range(len(part))]


def test_observed_is_there_if_any_component_has_it() -> None:
    plain, padded = windows(stash(12)), windows(stash(20, 100), min_history=1)
    for batch in ts.Loader(ts.Mix({"plain": plain, "padded": padded}), 9, shuffle=True, with_ids=True):
        for k, (source, window) in enumerate(zip(batch["source"].tolist(), batch["window"].tolist())):
            expected = [plain, padded][source][window]
            assert torch.equal(batch["past"][k].nan_to_num(-1), expected["past"].nan_to_num(-1))
            observed = expected.get("past.observed", torch.tensor([True, True]))
            assert torch.equal(batch["past.observed"][k], observed)
            assert batch["kind.observed"][k].all()


@pytest.mark.filterwarnings("ignore:Gaps cost")
@pytest.mark.parametrize("gaps", ["split", "mask"])
def test_calendar_columns_and_spans_in_time_are_those_of_the_component(gaps: Literal["split", "mask"]) -> None:
    def part(first: int, empty: float) -> ts.Windows:
        table = {"t": first + np.delete(np.arange(20), [6, 7]) * 86_400_000_000, "y": np.arange(18.0)}
        table["t"] = table["t"].astype("M8[us]")
        columns = {"y": ts.column("y", empty=empty), "day": ts.calendar("day")}
        recent = ts.During("y", "-3d", "0d", max_rows=4, age=True)
        spans = {"recent": recent, "day": ("day", -2, 1)}
        return ts.Windows(ts.load(table, columns, time="t"), spans=spans, gaps=gaps)

    parts = [part(0, -1), part(10**15, -1)]
    mix, first = ts.Mix({"a": parts[0], "b": parts[1]}), len(parts[0])
    for k in range(len(mix)):
        expected = parts[k >= first][k - first * (k >= first)]
        assert list(mix[k]) == list(expected)
        assert all(torch.equal(values, expected[name]) for name, values in mix[k].items())
    with pytest.raises(SchemaError, match="must have the same value in empty slots of 'y'"):
        ts.Mix({"a": parts[0], "b": part(0, -2)})


def test_spans_of_all_types_and_steps_are_those_of_each_component() -> None:
    """Also packs, spans that are sliced and strided, and empty slots in one of the components."""
    spans: dict[str, tuple[Any, ...]] = {name: (name, -2, 1) for name in DTYPES}
    spans |= {
        "pack": ("pack", 0, 1),
        "sliced": ("i64", -4, 1, 2),
        "strided": ("f32", -6, 1, 6),
        "bits": ("pack", -5, 0, 5),
    }
    tables = [
        Table([9, 12], [*range(9), *range(12)]),
        Table([20], [*range(5), *range(7, 22)]),
        Table([15], [*range(15)]),
    ]
    parts = {
        f"part {k}": ts.Windows(table.stash(fills=True), spans=spans, gaps="mask" if k == 1 else "split")
        for k, table in enumerate(tables)
    }
    assert len(parts["part 1"]) == 16
    for batch in ts.Loader(ts.Mix(parts), 11, shuffle=True, with_ids=True):
        for k, (source, window) in enumerate(zip(batch["source"].tolist(), batch["window"].tolist())):
            expected = parts[f"part {source}"][window]
            for name in spans:
                assert oracle.same(batch[name][k], expected[name]), name
                seen = expected.get(f"{name}.observed", torch.ones(len(expected[name]), dtype=torch.bool))
                assert torch.equal(batch[f"{name}.observed"][k], seen)


def test_stats_count_the_windows_of_each_component() -> None:
    parts = {"one": windows(stash(12)), "two": windows(stash(20, 100))}
    loader = ts.Loader(ts.Mix(parts, weights={"one": 3, "two": 1}, epoch_size=40), 8, shuffle=True, with_ids=True)
    assert loader.stats()["windows"] == {"one": 0, "two": 0}
    for epoch in range(2):
        counted = [0, 0]
        for k, batch in enumerate(loader):
            for source in batch["source"].tolist():
                counted[source] += 1
            assert loader.stats()["windows"] == {"one": counted[0], "two": counted[1]}
            assert abs(counted[0] - 6 * (k + 1)) <= 2
        assert loader.stats()["windows"] == {"one": 30, "two": 10}, epoch


@cache
def thousand() -> list[ts.Stash]:
    """Loaded once for the kernel and for torch."""
    return [ts.load({"y": values}) for values in torch.arange(5000.0).reshape(1000, 5)]


def test_a_thousand_components() -> None:
    """Each batch is from hundreds of stashes; an epoch shows every window once."""
    spans = {"past": ("y", -2, 1)}
    mix = ts.Mix({f"part {k}": ts.Windows(stash, spans=spans) for k, stash in enumerate(thousand())})
    assert len(mix) == 3000
    seen: list[float] = []
    for batch in ts.Loader(mix, 1024, shuffle=True, seed=1):
        past = batch["past"]
        assert torch.equal(past, past[:, :1] + torch.arange(3))
        seen += past[:, 0].tolist()
    assert sorted(seen) == [5.0 * k + j for k in range(1000) for j in range(3)]
    assert repr(mix).count("\n") == 9


def test_components_without_a_weight_need_no_windows() -> None:
    whole = windows(stash(12))
    some, none = whole.split(5)[0], whole.split(-5)[0]
    assert not len(none)
    mix = ts.Mix({"none": none, "some": some})
    assert sorted(k for batch in ts.Loader(mix, 3, with_ids=True) for k in batch["window"].tolist()) == [
        *range(len(some))
    ]


def test_components_that_differ_are_refused_with_what_differs() -> None:
    one = windows(stash(12))
    untimed = ts.load({"y": np.zeros(9, np.float32), "k": ["u", "v", "u"] * 3})
    zoned: dict[str, Any] = {"t": np.arange("2020-01-01", "2020-01-13", dtype="M8[D]").astype("M8[us]")}
    for two, message in (
        (
            ts.Windows(one.stash, spans={"past": ("y", -3, 0), "kind": ("k", 0, 1)}),
            "spans; 'one' has ['past=y[-2:0]', ",
        ),
        (windows(stash(12, y=np.zeros(12))), "type of 'y'; 'one' has 'float32', 'two' has 'float64'."),
        (windows(stash(12, k=["w", "v"] * 6)), "vocabulary of 'k'; 'one' has ['u', 'v'], 'two' has ['v', 'w']."),
        (windows(stash(12, k=np.zeros(12, np.int32))), "kind of 'k'; 'one' has 'category', 'two' has 'number'."),
        (windows(untimed), "static columns; 'one' has ['size'], 'two' has []."),
        (windows(stash(12, size=np.zeros(12, np.int64))), "type of 'size'; 'one' has 'float64', 'two' has "),
        (windows(stash(12, **zoned)), "unit of times; 'one' has 'integers', 'two' has 'us'."),
    ):
        with pytest.raises(SchemaError, match="^" + re.escape(f"The components of a mix must have the same {message}")):
            ts.Mix({"one": one, "two": two})


def test_what_does_not_fit_is_refused() -> None:
    one = windows(stash(12))
    with pytest.raises(TypeError, match=r"got a list"):
        ts.Mix([one])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'a' is a Stash"):
        ts.Mix({"a": one.stash})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"epoch_size.*got 0"):
        ts.Mix({"a": one}, epoch_size=0)
    with pytest.raises(ValueError, match=r"^weights must name each component; 'a' has none\. Give it 0 to leave"):
        ts.Mix({"a": one}, weights={})
    source = ts.Windows(one.stash, spans={"source": ("y", -1, 0)})
    with pytest.raises(SchemaError, match="No span or static column of a mix may be named 'source'"):
        ts.Mix({"a": source})
    mix = ts.Mix({"a": one})
    known = (shuffle_of(kind, 2, 12) for kind in OBJECTS)
    for order in (*known, ts.ByTime(), ts.PerEntity(), ts.Weighted([1.0])):
        with pytest.raises(ValueError, match=like("order must be left out for a mix or shards")):
            ts.Loader(mix, 2, order=order)
    with pytest.raises(ValueError, match=r"order must be left out for a mix or shards"):
        ts.Loader(mix, 2, order=[0, 1])


def test_a_state_of_another_mix_is_refused() -> None:
    one, two = windows(stash(12)), windows(stash(20))
    state = ts.Loader(ts.Mix({"a": one, "b": two}), 4, shuffle=True).state_dict()
    for other in (
        ts.Mix({"a": one, "b": two}, epoch_size=10),
        ts.Mix({"b": two, "a": one}),
        ts.Mix({"a": one, "c": two}),
    ):
        with pytest.raises(
            ValueError, match=r"^A state must continue the same windows in the same order; these differ: "
        ):
            ts.Loader(other, 4, shuffle=True).load_state_dict(state)
    ts.Loader(ts.Mix({"a": one, "b": two}), 4, shuffle=True).load_state_dict(state)


@pytest.mark.parametrize("kind", ["standard", "minmax", "maxabs"])
def test_a_scaler_of_a_mix_is_that_of_its_windows_together(kind: Kind) -> None:
    """As if the rows stood in one stash; by entity, as the scaler of each component scales its windows."""
    parts = {"one": windows(stash(12)), "none": windows(stash(6)).split(-5)[0], "two": windows(stash(20, 100))}
    mix = ts.Mix(parts)
    both = torch.cat([part.stash["y"] for part in parts.values() if len(part)])
    expected = ts.Scaler.fit(ts.load({"y": both}), ["y"], kind=kind)
    together = ts.Scaler.fit(mix, ["y"], kind=kind)
    with pytest.warns(UserWarning, match=like("'y' in 2 of 6 entities (('none', 'a'), ('none', 'b'))")):
        by_entity = ts.Scaler.fit(mix, ["y"], kind=kind, by="entity")
    assert by_entity.center["y"][2].equal(together.center["y"][0])
    by_entity = ts.Scaler.from_state(json.loads(json.dumps(by_entity.state_dict()))).bind(mix)
    fits = {
        k: (ts.Scaler.fit(part, ["y"], kind=kind, by="entity"), part)
        for k, part in enumerate(parts.values())
        if len(part)
    }
    own = {k: scaler.bind(part) for k, (scaler, part) in fits.items()}
    torch.testing.assert_close(together.center["y"], expected.center["y"])
    torch.testing.assert_close(together.scale["y"], expected.scale["y"])
    for batch in ts.Loader(mix, 5, shuffle=True, with_ids=True):
        before = batch["past"].clone()
        by_entity(batch)
        for k, source in enumerate(batch["source"].tolist()):
            alone = {"past": before[k : k + 1].clone(), "entity": batch["entity"][k : k + 1]}
            assert torch.equal(batch["past"][k], own[source](alone)["past"][0])
        again = by_entity.inverse(batch["past"], "y", batch["entity"], batch["source"])
        torch.testing.assert_close(again, before)
        del batch["source"]
        with pytest.raises(
            ValueError, match=r"^A scaler by entity needs the entity of each window, and in a mix its component"
        ):
            by_entity(batch)
    with pytest.raises(
        ValueError, match=r"^sample= needs the rows of one stash\. Fit a scaler on the windows of a component\.$"
    ):
        ts.Scaler.fit(mix, ["y"], by="entity", sample=3)


def in_two(rows: int, cut: int) -> tuple[ts.Windows, ts.Mix]:
    """Windows of one stash, and a mix of its first and its last rows, with missing values and rows that none sees."""
    random = np.random.default_rng(rows)
    table: dict[str, Any] = {"y": random.normal(size=rows), "x": random.normal(size=(rows, 2)).astype(np.float32)}
    table["y"][random.random(rows) < 0.2] = np.nan
    table["y"][[0, -1]] = 1.5  # each part has a value
    spans = {"past": ("y", -1, 0), "pack": ("x", -1, 0)}
    one = ts.Windows(ts.load(table), spans=spans, stride=2)
    parts = {"a": slice(None, cut), "b": slice(cut, None)}
    cuts = {name: {key: values[part] for key, values in table.items()} for name, part in parts.items()}
    return one, ts.Mix({name: ts.Windows(ts.load(cut), spans=spans, stride=2) for name, cut in cuts.items()})


@pytest.mark.parametrize("kind", ["standard", "minmax", "robust", "maxabs"])
@pytest.mark.parametrize("sample", [None, 1, 7, 20, 1000])
def test_a_scaler_of_a_mix_is_that_of_its_rows_in_one_stash(kind: Kind, sample: int | None) -> None:
    one, mix = in_two(60, 14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one value is equal to all
        try:
            whole = ts.Scaler.fit(one, ["y", "x"], kind=kind, sample=sample, seed=5)
        except ts.errors.DataError as error:  # the one row has no value
            with pytest.raises(ts.errors.DataError, match=f"^{re.escape(str(error))}$"):
                ts.Scaler.fit(mix, ["y", "x"], kind=kind, sample=sample, seed=5)
            return
        found = ts.Scaler.fit(mix, ["y", "x"], kind=kind, sample=sample, seed=5)
    assert found.rows == whole.rows == min(30, sample or 30)
    assert found.spans == whole.spans
    for name in ("y", "x"):
        torch.testing.assert_close(found.center[name], whole.center[name], rtol=0, atol=1e-12)
        torch.testing.assert_close(found.scale[name], whole.scale[name], rtol=0, atol=1e-12)


def batch_of(mix: ts.Mix, ids: list[int]) -> dict[str, torch.Tensor]:
    """The oracle: the windows of the components one by one, `observed` where any component has it."""
    every = [(own, k) for own in mix.windows.values() for k in range(len(own))]
    made = []
    for k in ids:
        own, number = every[k]
        window = own[number]
        for name in ("past", "kind") if any("past.observed" in one[0] for one in mix.windows.values()) else ():
            window.setdefault(f"{name}.observed", torch.ones(len(window[name]), dtype=torch.bool))
        made.append(window)
    return {name: torch.stack([window[name] for window in made]) for name in made[0]}


def assert_equal(batch: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> None:
    assert batch.keys() == exact.keys()
    for name, tensor in exact.items():
        assert batch[name].dtype == tensor.dtype
        assert oracle.same(batch[name], tensor), name


@pytest.mark.parametrize("padded", [False, True])
def test_a_mix_is_a_data_set_whose_windows_are_those_of_its_components(padded: bool) -> None:
    parts = {"one": windows(stash(12)), "two": windows(stash(20, 100), **({"min_history": 1} if padded else {}))}
    mix: Any = ts.Mix(parts, weights={"one": 3, "two": 1})
    assert len(mix) == len(parts["one"]) + len(parts["two"])
    for ids in ([3, 0, len(mix) - 1, 3, 9, 12], [1, 2], [len(mix) - 1]):
        exact = batch_of(mix, ids)
        assert_equal(mix[ids], exact)
        assert_equal(mix[torch.tensor(ids)], exact)
        for k, sample in enumerate(mix.__getitems__(ids)):
            assert_equal(sample, {name: tensor[k] for name, tensor in exact.items()})
            assert_equal(mix[ids[k]], sample)
    assert_equal(mix[:], batch_of(mix, [*range(len(mix))]))
    assert_equal(mix[[-1]], batch_of(mix, [len(mix) - 1]))
    assert {name: len(tensor) for name, tensor in mix[[]].items()} == dict.fromkeys(mix[[0]], 0)
    with pytest.raises(IndexError, match=rf"\[-{len(mix)}, {len(mix)}\), got 1000"):
        mix[[0, 1000]]


def test_the_sampler_of_a_loader_gives_a_data_loader_the_batches_of_the_loader() -> None:
    """In the process and in forked workers, whose state of the sampler resumes."""
    parts = {"one": windows(stash(12)), "two": windows(stash(20, 100))}
    for shuffle in (False, True):
        mix: Any = ts.Mix(parts, weights={"one": 1, "two": 2}, epoch_size=30)
        exact = [*ts.Loader(mix, 7, shuffle=shuffle, seed=3)]
        for workers in (0, 2):
            sampler: Any = ts.Loader(mix, 7, shuffle=shuffle, seed=3).sampler
            kind: Any = {"multiprocessing_context": "fork"} if workers else {}
            loader = torch.utils.data.DataLoader(mix, sampler=sampler, batch_size=None, num_workers=workers, **kind)
            batches = [*loader]
            assert len(batches) == len(exact) == 5
            for batch, expected in zip(batches, exact):
                assert_equal(batch, expected)


def test_a_data_loader_makes_batches_of_a_mix_of_its_own() -> None:
    mix: Any = ts.Mix({"one": windows(stash(12)), "two": windows(stash(20, 100))})
    batches = [*torch.utils.data.DataLoader(mix, batch_size=10)]
    for k, batch in enumerate(batches):
        assert_equal(batch, batch_of(mix, [*range(len(mix))][10 * k : 10 * k + 10]))


def test_the_first_batch_makes_few_objects_of_each_component() -> None:
    """The garbage collector visits all of them, and a mix may have thousands of components."""
    if not kernel.is_compiled():
        return  # torch gathers from views of each component
    many = ts.Mix({f"part {k}": ts.Windows(ts.load({"y": [1.0, 2], "z": [1, 2]}), 1) for k in range(200)})
    batches = iter(ts.Loader(many, 16, shuffle=True))
    gc.collect()
    before = len(gc.get_objects())
    batch = next(batches)
    gc.collect()
    assert (len(gc.get_objects()) - before) / 200 < 8
    assert len(batch["y"]) == 16
