"""`windows.on(stash)`: the arguments of windows on other data; one test resets what the inside has warned of."""

import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tensorstash.windows import latest
from tests import oracle
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:(Gaps|require=|.* entities have no|.* series end)")


def frame(rows: int, seed: int = 0, entities: str = "ab") -> dict[str, Any]:
    """A gap in some series, a missing value here and there, a mask, and a text."""
    rng, parts = np.random.default_rng(seed), []
    for k, name in enumerate(entities):
        times = np.sort(rng.choice(rows + 3, rows, replace=False))
        part = {"e": [name] * rows, "t": times * 2, "y": rng.normal(size=rows), "even": times % 2 == 0}
        part |= {"kind": rng.choice([*"pq"], rows), "size": [float(k)] * rows}
        parts.append(pl.DataFrame(part))
    whole = pl.concat(parts)
    return dict(whole.with_columns(y=pl.when(pl.col("y") > 1.8).then(None).otherwise(pl.col("y"))).to_dict())


def load(data: dict[str, Any], **options: Any) -> ts.Stash:
    columns = {"y": "y", "even": ts.column("even", empty=False), "kind": "kind"}
    return ts.load(data, columns, **{"entity": "e", "time": "t", "static": ["size"], **options})


def same(one: ts.Windows, two: ts.Windows) -> None:
    assert one.fingerprint() == two.fingerprint()
    assert (one.history, one.horizon, one.stride) == (two.history, two.horizon, two.stride)
    assert (one.points is None) == (two.points is None)
    batch, other = one[:], two[:]
    assert batch.keys() == other.keys()
    assert all(oracle.same(batch[name], other[name]) for name in batch)


SPANS = {"past": ("y", -3, 0), "kind": ("kind", -2, 1), "even": ("even", 0, 1)}
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "gaps": st.sampled_from(["split", "mask"]),
        "min_history": st.integers(1, 2),
        "min_horizon": st.just(0),
        "stride": st.integers(1, 3),
        "tolerance": st.just(1),
        "require": st.sampled_from([["y"], ["past"], ["even"]]),
        "where": st.just("even"),
    },
)


@settings(max_examples=60)
@given(ARGUMENTS, st.integers(0, 5), st.sampled_from([SPANS, SPANS | {"last": ts.During("y", -5, 0, max_rows=2)}]))
def test_windows_on_other_data_are_windows_with_the_same_arguments(
    arguments: dict[str, Any], seed: int, spans: dict[str, Any]
) -> None:
    arguments |= {"spans": spans, "frequency": 2}
    try:
        windows = ts.Windows(load(frame(24, seed)), **arguments)
    except ts.errors.NoWindowError:
        return
    other = load(frame(30, seed + 100, "abc"))
    try:
        expected = ts.Windows(other, **arguments)
    except ts.errors.NoWindowError:
        with suppress(ts.errors.NoWindowError):
            assert len(windows.on(other)) == 0  # only horizons lack what is required
        return
    same(windows.on(other), expected)
    same(windows.on(other).on(other), expected)


@pytest.mark.parametrize("closed", ["left", "right"])
def test_windows_at_points_take_other_points(closed: Any) -> None:
    arguments: dict[str, Any] = {"spans": SPANS, "gaps": "mask", "closed": closed, "unmatched": "drop", "frequency": 2}
    points = {"e": [*"abab"], "t": [20, 30, 21, 31]}
    windows = ts.Windows(load(frame(24)), at=points, **arguments)
    other, at = load(frame(24, 7)), {"e": [*"bba"], "t": [40, 17, 3000]}
    same(windows.on(other, at=at), ts.Windows(other, at=at, **arguments))
    with pytest.raises(ValueError, match=like("given points ... at=")):
        windows.on(other)


def test_points_take_the_place_of_stride_and_where() -> None:
    data = load(frame(24))
    windows = ts.Windows(data, spans=SPANS, gaps="mask", stride=3, where="even")
    masked = ts.Windows(data, spans=SPANS, gaps="mask", where=data["even"])
    at = {"e": [*"ab"], "t": [20, 22]}
    for each in (windows, masked):
        same(each.on(data, at=at), ts.Windows(data, spans=SPANS, gaps="mask", at=at))


def test_windows_of_a_part_are_on_all_rows() -> None:
    data, other = load(frame(24)), load(frame(24, 3))
    windows = ts.Windows(data, spans=SPANS, gaps="mask", frequency=2)
    expected = windows.on(other)
    (train, test), *_ = windows.folds(1, 4)
    for part in (*windows.split(20), *windows.split_fraction(0.5), train, test):
        same(part.on(other), expected)
    same(windows.latest().on(other), expected)
    same(windows.latest().on(other).latest(), expected.latest())
    same(
        ts.Windows(other, spans=SPANS, gaps="mask", frequency=2, require=["y"]).latest().on(data).latest(),
        ts.Windows(data, spans=SPANS, gaps="mask", frequency=2, require=["y"]).latest(),
    )


ENTITIES = [*"abcdefgh"]


def of_entities(windows: ts.Windows) -> set[str]:
    """The entities that have a window."""
    return {windows.stash.entities[k] for k in windows.anchors(slice(None))["entity"].tolist()}


@pytest.mark.usefixtures("shm")
@pytest.mark.parametrize("seed", range(4))
def test_parts_of_entities_keep_to_them_whatever_is_made_of_them(seed: int) -> None:
    """On other data by name: there entities have other numbers, some are missing, and new ones are not chosen."""
    data, other = load(frame(24, 1, "abcdefgh"), share="parts"), load(frame(24, 3, "xaceghz"))
    windows = ts.Windows(data, spans=SPANS, gaps="mask", frequency=2, stride=2)
    parts = windows.split_entities(0.5, 0.75, seed=seed)
    mine = [of_entities(part) for part in parts]
    assert [len(part) for part in mine] == [4, 2, 2]
    assert set().union(*mine) == {*ENTITIES}
    for part, names in zip(parts, mine):
        early, late = part.split(24)
        again = pickle.loads(pickle.dumps(part))
        for kept in (part, early, late, part.split_fraction(0.5)[1], part.folds(1, 4)[0][1], part.latest(), again):
            assert of_entities(kept.latest()) == names
            for k, piece in enumerate(kept.split_entities(0.5, 0.75, seed=seed)):
                assert of_entities(piece) == (of_entities(kept) if names == mine[k] else set())
        if names & {*"xaceghz"}:
            for moved in (part.on(other), late.on(other), part.latest().on(other), part.on(other).on(other)):
                assert of_entities(moved) == of_entities(moved.latest()) == names & {*"xaceghz"}
            assert of_entities(part.on(other).on(data)) == names & {*"xaceghz"}
        same(part.on(data), part)


def test_the_latest_windows_of_a_part_tell_only_of_its_entities() -> None:
    times = {"a": 9, "b": 9, "c": 1, "d": 1}
    rows = {
        "e": [name for name, n in times.items() for _ in range(n)],
        "t": [t for n in times.values() for t in range(n)],
    }
    windows = ts.Windows(ts.load(rows | {"y": [1.0] * 20}, ["y"], entity="e", time="t"), 3, min_horizon=None)
    for seed in range(6):
        for part in windows.split_entities(0.5, seed=seed):
            assert part.placement.chosen is not None
            chosen = [windows.stash.entities[k] for k in np.flatnonzero(part.placement.chosen)]
            short = [name for name in chosen if times[name] < 3]
            latest._has_warned["short"] = False
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if len(short) == len(chosen):
                    with pytest.raises(ts.errors.NoWindowError, match="no entity has as many"):
                        part.latest()
                else:
                    assert len(part.latest()) == len(chosen) - len(short)
            told = [
                f"{len(short)} of {len(chosen)} entities have no latest window, such as {name!r}" for name in short[:1]
            ]
            if len(short) < len(chosen):
                assert [str(each.message).split(":")[0] for each in caught] == told


def test_points_of_entities_outside_a_part_are_told() -> None:
    data = load(frame(24, 1, "abcd"))
    at = {"e": [*"abcd"], "t": [20] * 4}
    arguments: dict[str, Any] = {"spans": SPANS, "gaps": "mask", "at": at, "unmatched": "drop", "frequency": 2}
    part, other = ts.Windows(data, **arguments).split_entities(0.5)
    assert (len(part), len(other)) == (2, 2)
    for windows in (part, ts.Windows(data, spans=SPANS, gaps="mask", frequency=2).split_entities(0.5)[0]):
        if windows.points is not None:
            assert len(windows.on(data, at=at)) == 2
        else:
            with pytest.raises(
                ts.errors.DataError, match=like("2 of an entity that `of` or split_entities has left out")
            ):
                windows.on(data, at=at)


def test_other_data_without_an_entity_of_the_part_are_refused() -> None:
    windows = ts.Windows(load(frame(24, 1, "abcd")), spans=SPANS, gaps="mask")
    part = windows.split_entities(0.5)[0]
    with pytest.raises(ts.errors.NoWindowError, match=like("keep to the entities ... has none of these 2, such as")):
        part.on(load(frame(24, 1, "xyz")))
    assert len(windows.on(load(frame(24, 1, "xyz"))))


def test_a_column_of_another_source_is_refused() -> None:
    data = {"e": [*"aaaa"], "t": [1, 2, 3, 4], "temp": [1.0] * 4, "dewp": [2.0] * 4, "k": [*"pqpq"], "size": [1.0] * 4}
    keys: dict[str, Any] = {"entity": "e", "time": "t"}
    spans = {"past": ("y", -2, 0), "p": ts.During("y", -2, 0, max_rows=2, table="o")}
    stash = ts.load(data, {"y": "temp", "k": "k"}, static={"s": "size"}, **keys)
    windows = ts.Windows(stash, spans=spans, tables={"o": stash})

    def other(**columns: Any) -> ts.Stash:
        return ts.load(data, {"y": "temp", **columns}, static={"s": "size"}, **keys)

    wrong = other(y="dewp")
    with pytest.raises(
        ts.errors.SchemaError, match=like("source column of 'y' ... 'temp' ... 'dewp' ... {'y': 'temp'}")
    ):
        windows.on(wrong)
    with pytest.raises(ts.errors.SchemaError, match=like("source column of 'o.y' ... 'temp' ... 'dewp'")):
        windows.on(stash, tables={"o": wrong})
    with pytest.raises(ts.errors.SchemaError, match=like("source column of 's' ... 'size' ... 'temp'")):
        windows.on(ts.load(data | {"temp": [1.0] * 4}, {"y": "temp"}, static={"s": "temp"}, **keys))
    renamed = pl.DataFrame(data).drop("temp").rename({"dewp": "temp"})  # the remedy
    assert len(windows.on(ts.load(renamed, {"y": "temp"}, static={"s": "size"}, **keys))) == len(windows)
    # a column that the windows do not show, an expression, and the same column under other names of the load
    for right in (other(k="e"), other(y=pl.col("dewp") * 1.0), other(y=pl.col("temp")), other(z="dewp")):
        assert len(windows.on(right)) == len(windows)
    assert len(ts.Windows(other(y=pl.col("dewp") * 1.0), 2, columns=["y"]).on(stash)) == 3


def test_a_table_of_another_name_is_refused() -> None:
    stash = load(frame(24))
    spans = {"past": ("y", -3, 0), "w": ts.During("y", -9, 0, max_rows=3, table="weather")}
    windows = ts.Windows(stash, spans=spans, tables={"weather": stash})
    with pytest.raises(ts.errors.ColumnError, match=like("spans= has no table 'wether'; did you mean 'weather'?")):
        windows.on(stash, tables={"wether": stash})
    with pytest.raises(ts.errors.ColumnError, match=like("spans= has no table 'wether'; did you mean 'weather'?")):
        ts.Windows(stash, spans=spans, tables={"weather": stash, "wether": stash})
    with pytest.raises(ValueError, match=like("tables= must hold tables that spans take ... table='weather'")):
        ts.Windows(stash, 2, gaps="mask", tables={"weather": stash})


def test_the_short_form_keeps_its_columns() -> None:
    windows = ts.Windows(load(frame(24)), 3, 1, gaps="mask")
    more = ts.load(
        frame(24),
        {"z": "y", "y": "y", "even": ts.column("even", empty=False), "kind": "kind"},
        entity="e",
        time="t",
        static=["size"],
    )
    assert [span.column for span in windows.on(more).spans] == ["y", "even", "kind"]


@pytest.mark.parametrize(
    ("times", "arguments"),
    [
        ([0, 2, 4, 6, 10], {}),
        ([0, 2, 4, 7, 9], {"tolerance": 1}),
        ([0, 2, 4, 6, 10], {"frequency": 2}),
        (pl.date_range(pl.date(2024, 1, 31), pl.date(2024, 8, 31), "1mo", eager=True), {}),
        (pl.datetime_range(pl.date(2024, 3, 29), pl.date(2024, 4, 9), "1d", time_zone="Europe/Berlin", eager=True), {}),
    ],
)
def test_the_frequency_that_was_found_is_kept(times: Any, arguments: dict[str, Any]) -> None:
    """Of two rows, of which one is missing between them, no other frequency could be found than their distance."""
    whole = pl.DataFrame({"t": times}).with_columns(y=pl.int_range(pl.len()).cast(pl.Float64))
    windows = ts.Windows(ts.load(whole, ["y"], time="t"), 2, gaps="mask", **arguments)
    rest = windows.on(ts.load(whole[[0, 2]], ["y"], time="t"))
    assert rest.placement.slots.frequency == windows.placement.slots.frequency
    assert rest[:]["y.observed"].tolist() == [[True, False], [False, True]]
    single = windows.on(ts.load(whole[[3, 4]], ["y"], time="t")).latest()
    assert single.placement.slots.frequency == windows.placement.slots.frequency


def test_rows_for_the_history_alone_have_the_window_that_follows_them() -> None:
    data = load(frame(24, entities="a"))
    windows, last = ts.Windows(data, spans={"past": ("y", -3, 0), "next": ("y", 0, 2)}, gaps="ignore"), 21
    rest = windows.on(load({name: values[last:] for name, values in frame(24, entities="a").items()}, like=data))
    assert len(rest) == 0
    newest, expected = rest.latest(), windows.latest()
    assert all(oracle.same(newest[0][name], value) for name, value in expected[0].items())
    with pytest.raises(ts.errors.NoWindowError, match=like("need 5 consecutive rows ... has 2")):
        windows.on(load({name: values[22:] for name, values in frame(24, entities="a").items()}, like=data))


KEPT_SPANS = st.sampled_from(
    [
        SPANS,
        SPANS | {"last": ts.During("y", -5, 0, max_rows=2, min_rows=2)},
        SPANS | {"seen": ts.During("y", -4, 0, max_rows=3, min_rows=2, table="late")},
        {"past": ("y", -3, 0)},
        {"last": ts.During("y", -5, 0, max_rows=3, min_rows=2)},
    ]
)


def kept(data: dict[str, Any], slots: int, start: int, of: str | None) -> dict[str, Any]:
    """The last rows of each entity, and those from a time before its last row on, by a loop over rows."""
    columns, rows = [list(values) for values in data.values()], []
    table = [dict(zip(data, row)) for row in zip(*columns)]
    for name in dict.fromkeys(data["e"]):
        own = [row for row in table if row["e"] == name]
        last = max((k for k, row in enumerate(own) if of is None or row[of] is not None), default=-1)
        rows += [row for k, row in enumerate(own) if k > last - slots or row["t"] > own[last]["t"] + start]
    return {name: [row[name] for row in rows] for name in data}


@settings(max_examples=150)
@given(ARGUMENTS, st.integers(0, 30), KEPT_SPANS, st.integers(0, 2), st.sampled_from([None, "y"]), st.integers(0, 2))
def test_the_rows_that_windows_need_have_their_latest_windows(
    arguments: dict[str, Any], seed: int, spans: dict[str, Any], more: int, of: Any, ahead: int
) -> None:
    """Whatever leaves out the windows that these rows have: what is required, strides, `where=`, `min_rows=`."""
    if not {"past", "kind"} & spans.keys():
        arguments = {name: arguments[name] for name in ("where", "stride") if name in arguments}
    else:
        arguments |= {"frequency": 2}
    if arguments.get("require") in (["past"], ["even"]) and len(spans) < 3:
        arguments |= {"require": ["y"]}
    data = frame(24, seed)
    last = np.arange(48) % 24 >= 24 - ahead
    data["y"] = [None if is_ahead else value for is_ahead, value in zip(last, data["y"])]
    stash = load(data)
    arguments |= {"tables": {"late": stash}} if "seen" in spans else {}
    try:
        windows = ts.Windows(stash, spans=spans, **arguments)
    except ts.errors.NoWindowError:
        return
    rows = load(kept(data, windows.needs()["slots"] + more, -5, of), like=stash)
    try:
        expected = windows.latest(of=of)
    except ts.errors.NoWindowError:
        with pytest.raises(ts.errors.NoWindowError):
            windows.on(rows).latest(of=of)
        return
    newest = windows.on(rows).latest(of=of)
    batch, other = newest[:], expected[:]
    assert batch.keys() == other.keys()
    assert all(oracle.same(batch[name], other[name]) for name in batch)
    assert newest.anchors(slice(None))["time"].tolist() == expected.anchors(slice(None))["time"].tolist()


def test_rows_without_a_window_or_a_latest_one_are_refused_for_what_leaves_their_windows_out() -> None:
    nan, spans = float("nan"), {"past": ("y", -2, 0), "next": ("y", 0, 1)}
    stash = ts.load({"t": range(20), "y": [1.0] * 20, "w": [True] * 20}, time="t")
    few = ts.During("y", -3, 0, max_rows=3, min_rows=3)

    def on(y: list[float], **arguments: Any) -> ts.Windows:
        rows = {"t": range(100, 100 + len(y)), "y": y, "w": [False] * len(y)}
        return ts.Windows(stash, **{"spans": spans, **arguments}).on(ts.load(rows, like=stash))

    assert len(on([nan, 2.0, 3.0], require=["past"])) == len(on([1.0, 2.0, 3.0], where="w")) == 0
    with pytest.raises(ts.errors.NoWindowError, match=like("each of the 1 windows has too many in 'past'")):
        on([nan, 2.0, nan], require=["past"])
    with pytest.raises(ts.errors.NoWindowError, match=like("where= keeps ... none of the 2 windows")):
        on([1.0, 2.0, 3.0, nan, 5.0], where="w", require=["past"])
    with pytest.raises(ts.errors.NoWindowError, match=like("min_rows= keeps ... none of the 1 windows has so many")):
        on([1.0, 2.0, 3.0], spans=spans | {"few": few}, gaps="ignore")  # the time after the rows is not known


def test_the_times_of_a_forecast_follow_from_the_frequency_that_was_found() -> None:
    windows = ts.Windows(load(frame(24)), spans=SPANS, gaps="mask", min_history=1)
    first = {name: values[:1] for name, values in frame(24).items()}
    newest = windows.on(load(first, like=windows.stash)).latest()
    assert newest.to_frame([0], torch.zeros(1, 1))["t"].to_list() == [frame(24)["t"][0] + 2]


def test_a_mask_of_rows_is_refused_and_a_column_is_not() -> None:
    data = load(frame(24))
    masked = ts.Windows(data, spans=SPANS, where=data["even"])
    for part in (masked, masked.split(20)[0]):
        with pytest.raises(ValueError, match=like("where= with booleans ... column")):
            part.on(data)
    same(ts.Windows(data, spans=SPANS, where="even").on(data), ts.Windows(data, spans=SPANS, where="even"))


def hours(unit: Any = "us", zone: str | None = None) -> pl.Series:
    return pl.datetime_range(
        pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 2), "1h", eager=True, time_unit=unit, time_zone=zone
    )


TIMED = {
    "y": "y",
    "pack": ["y", "x"],
    "hash": ts.hashed("k", 9),
    "when": ts.calendar("hour"),
    "k": "k",
    "z": ts.column("x", fill=1.0),
}


def timed(columns: Any = TIMED, time: pl.Series | None = None, **values: Any) -> ts.Stash:
    count = len(hours())
    data = {"t": hours() if time is None else time, "y": np.arange(count * 1.0), "x": np.arange(count * 1.0)}
    return ts.load(data | {"k": [*"abcde"] * 5} | values, columns, time="t")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: timed(["y"]), "no column 'pack'"),
        (lambda: timed(time=hours("ns")), "unit of times ... 'us' ... 'ns'"),
        (lambda: timed(time=hours(zone="UTC")), "zone of times ... none ... 'UTC'"),
        (lambda: timed({**TIMED, "y": ts.column("y", dtype=torch.float32)}), "type of 'y' ... 'float64' ... 'float32'"),
        (lambda: timed({**TIMED, "pack": ["x", "y"]}), "members of 'pack' ... ['y', 'x'] ... ['x', 'y']"),
        (lambda: timed({**TIMED, "pack": ["x", "y", "y"]}), "shape of 'pack' ... [2] ... [3]"),
        (lambda: timed({**TIMED, "hash": ts.hashed("k", 8)}), "number of buckets of 'hash' ... 9 ... 8"),
        (lambda: timed({**TIMED, "when": ts.calendar("day")}), "fields of 'when' ... 'hour' ... 'day'"),
        (lambda: timed({**TIMED, "z": ts.column("x", fill=2.0)}), "fill= of 'z' ... 1.0 ... 2.0"),
        (lambda: timed({**TIMED, "z": ts.column("x", fill=1.0, empty=3.0)}), "value in empty slots of 'z'"),
        (lambda: timed(k=[*"bcdea"] * 4 + ["A"] * 5), "vocabulary of 'k' ... like="),
        (lambda: timed({**TIMED, "k": "y"}), "type of 'k' ... 'int32' ... 'float64'"),
    ],
)
def test_what_means_something_else_is_told(other: Any, said: str) -> None:
    windows = ts.Windows(timed(), 3, gaps="mask")
    with pytest.raises((ts.errors.SchemaError, ts.errors.ColumnError), match=like(said)):
        windows.on(other())


def test_other_columns_and_further_texts_mean_the_same() -> None:
    windows = ts.Windows(timed(), 3, gaps="mask")
    given = {**TIMED, "k": ts.column("k", vocabulary=[*"abcde"])}
    others = [timed(given, k=["a"] * 25), timed(k=[*"abcdef"] * 4 + ["a"]), timed({"more": "x", **TIMED})]
    assert [len(windows.on(other)) for other in others] == [len(windows)] * 3


def test_a_given_vocabulary_does_not_grow() -> None:
    """The code of unknown values is its length."""
    four, five = ({**TIMED, "k": ts.column("k", vocabulary=[*names])} for names in ("abcd", "abcde"))
    with pytest.raises(ts.errors.SchemaError, match=like("vocabulary of 'k'")):
        ts.Windows(timed(four), 3).on(timed(five))


def test_static_columns_are_the_same() -> None:
    windows = ts.Windows(load(frame(24)), spans=SPANS)
    with pytest.raises(ts.errors.SchemaError, match=like("static columns ... ['size'] ... []")):
        windows.on(load(frame(24), static=None))
    with pytest.raises(ts.errors.SchemaError, match=like("type of 'size' ... 'float64' ... 'float32'")):
        windows.on(load(frame(24), static={"size": ts.column("size", dtype=torch.float32)}))


def test_only_columns_that_windows_show_are_compared() -> None:
    windows = ts.Windows(timed(), spans={"past": ("y", -3, 0)}, require=["z"])
    assert len(windows.on(timed({"y": "y", "z": "x"}))) == len(windows)
    with pytest.raises(ts.errors.ColumnError, match="'z'"):
        windows.on(timed(["y"]))


def test_other_data_are_a_stash() -> None:
    wrong: Any = frame(24)
    with pytest.raises(TypeError, match=like("stash must be a stash")):
        ts.Windows(load(frame(24)), spans=SPANS).on(wrong)


def test_warnings_name_the_line_of_the_caller() -> None:
    windows = ts.Windows(ts.load({"t": range(20), "y": range(20)}, ["y"], time="t"), 3)
    gappy = ts.load({"t": [0, 1, 2, 10, 11, 12], "y": range(6)}, ["y"], time="t")
    makers: list[Callable[[], ts.Windows]] = [lambda: windows.on(gappy), lambda: ts.Windows(gappy, 3)]
    for make in makers:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make()
        assert [each.filename for each in caught] == [__file__]
        assert "Gaps cost" in str(caught[0].message)


@pytest.mark.parametrize("require", [["past", "target"], {"past": 1.0, "target": 0.5}, ["kw"]])
def test_rows_known_ahead_are_enough_for_the_latest_window_whatever_is_required_of_the_horizon(require: Any) -> None:
    spans = {"past": ("kw", -6, 0), "target": ("kw", 0, 4), "weather": ("temp", 0, 4)}

    def data(kw: list[float], first: int) -> ts.Stash:
        times = range(first, first + len(kw))
        return ts.load({"t": times, "kw": kw, "temp": [*map(float, times)]}, ["kw", "temp"], time="t")

    known, nan = [float(k) for k in range(7)], float("nan")
    windows = ts.Windows(data(known * 6, 0), spans=spans, require=require)
    for rows in (6, 7):
        tail = windows.on(data(known[:rows] + [nan] * 4, 50))
        assert len(tail) == 0
        batch = tail.latest(of="kw")[:]
        assert batch["past"].tolist() == [known[rows - 6 : rows]]
        assert batch["weather"].tolist() == [[50.0 + rows + k for k in range(4)]]
    with pytest.raises(ts.errors.NoWindowError, match=like("each of the 1 windows has too many in")):
        windows.on(data([nan, *known[:5]] + [nan] * 4, 50))
