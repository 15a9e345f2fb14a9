"""Arguments that no function can use: each is refused at once, by the rule, with what was given and the remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import whole

STASH = ts.load({"t": np.arange(20), "y": np.arange(20.0)}, ["y"], time="t")
WINDOWS = ts.Windows(STASH, 2, 1)
STATE = ts.Scaler.fit(STASH, ["y"]).state_dict()
LONG = "a" * 300

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "folds, too many": (
        lambda: WINDOWS.folds(2**40, 1),
        ts.errors.DataError,
        "A fold has windows in both parts; fold 0 of 1099511627776, whose cut is -1099511627756, has no training "
        "window. Anchors lie in [2, 20): take fewer folds, or another step= or gap=.",
    ),
    "folds, count beyond int64": (
        lambda: WINDOWS.folds(2**70, 1),
        ValueError,
        "The cuts of folds lie at most 2**61 ticks before the last anchor; 1180591620717411303424 x step=1 is longer. "
        "Take fewer folds, or a shorter step= or gap=.",
    ),
    "folds, step beyond int64": (
        lambda: WINDOWS.folds(1, 2**70),
        ValueError,
        "The cuts of folds lie at most 2**61 ticks before the last anchor; 1 x step=1180591620717411303424 is longer. "
        "Take fewer folds, or a shorter step= or gap=.",
    ),
    "folds, gap beyond int64": (
        lambda: WINDOWS.folds(1, 1, gap=2**70),
        ValueError,
        "The cuts of folds lie at most 2**61 ticks before the last anchor; gap=1180591620717411303424 is longer. "
        "Take fewer folds, or a shorter step= or gap=.",
    ),
    "transform, a number": (
        lambda: ts.Loader(WINDOWS, 2, transform=5),  # type: ignore[arg-type]
        TypeError,
        "transform= is a list of callables; got 5. For none, leave it out.",
    ),
    "transform, None": (
        lambda: ts.Loader(WINDOWS, 2, transform=None),  # type: ignore[arg-type]
        TypeError,
        "transform= is a list of callables; got None. For none, leave it out.",
    ),
    "sampler, a number": (
        lambda: ts.Loader(WINDOWS, 2, sampler=torch.tensor(2)),
        TypeError,
        "sampler= is a list of ids; got the single tensor(2). Write [...] around it.",
    ),
    "ids without values": (
        lambda: WINDOWS[torch.zeros(2, dtype=torch.int64, device="meta")],
        TypeError,
        "Ids have values; got a tensor on the device 'meta', which has none. Make it on the CPU.",
    ),
    "one id without a value": (
        lambda: WINDOWS[torch.tensor(0, device="meta")],
        TypeError,
        "Ids have values; got a tensor on the device 'meta', which has none. Make it on the CPU.",
    ),
    "history": (
        lambda: ts.Windows(STASH, 2**70),
        ValueError,
        "history= is below 2**40; got 1180591620717411303424. Take a shorter one.",
    ),
    "horizon": (
        lambda: ts.Windows(STASH, 2, 2**40, min_horizon=0),
        ValueError,
        "horizon= is below 2**40; got 1099511627776. Take a shorter one.",
    ),
    "span": (
        lambda: ts.Windows(STASH, spans={"y": ("y", -(2**40), 0)}),
        ValueError,
        "The numbers of a span lie between -2**40 and 2**40; 'y' is ('y', -1099511627776, 0).",
    ),
    "require": (
        lambda: ts.Windows(STASH, 2, require=torch.tensor(2)),  # type: ignore[arg-type]
        TypeError,
        "require= is a list of names; got tensor(2).",
    ),
    "padded batch": (
        lambda: ts.Loader(WINDOWS, 2**40, tail="pad"),
        ValueError,
        'tail="pad" fills every step up to batch_size=, which is then at most 2**31; got 1099511627776. Take a smaller '
        'one, or tail="keep".',
    ),
    "padded batch of all ranks": (
        lambda: ts.Sampler(5, global_batch_size=2**40, tail="pad"),
        ValueError,
        'tail="pad" fills every step up to global_batch_size=, which is then at most 2**31; got 1099511627776. Take a '
        'smaller one, or tail="keep".',
    ),
    "a text as a column": (
        lambda: ts.load({"y": "abc"}),
        ts.errors.SchemaError,
        "A column is an array or a list of values, in the order of the rows; 'y' is a str. Write a list: {'y': [...]}.",
    ),
    "a set as a column": (
        lambda: ts.load({"y": {3, 1, 2}}),
        ts.errors.SchemaError,
        "A column is an array or a list of values, in the order of the rows; 'y' is a set. Write a list: {'y': [...]}.",
    ),
    "integers of 64 bits without a sign": (
        lambda: ts.load({"a": [2**63, 1]}),
        ts.errors.SchemaError,
        "Integers in a list are below 2**63; 'a' has others. For those below 2**64 write {'a': np.array(..., "
        "np.uint64)}.",
    ),
    "progress": (
        lambda: ts.load({"y": [1.0]}, progress="x"),  # type: ignore[arg-type]
        TypeError,
        "progress= is True, False or None; got 'x'.",
    ),
    "filter by null": (
        lambda: ts.load({"y": [1.0]}, filter=[("y", ">", None)]),
        ValueError,
        "A comparison with a null is never true; filter= has ('y', '>', None). Write an expression: "
        "pc.field('y').is_null(), or ~pc.field('y').is_null().",
    ),
    "filter by an integer without a sign": (
        lambda: ts.load({"i": np.array([1], np.uint64)}, filter=[("i", "==", 2**63 + 1)]),
        ValueError,
        "Integers in filter= lie in [-2**63, 2**63); 'i' is compared with 9223372036854775809. For an unsigned one "
        "write pc.field('i') == pa.scalar(..., pa.uint64()).",
    ),
    "a name that is not Unicode": (
        lambda: ts.load({"\ud800": [1.0]}),
        ts.errors.SchemaError,
        "Column names are valid Unicode; the mapping has '\\ud800', half a character. Rename it.",
    ),
    "state of a scaler": (
        lambda: ts.Scaler.from_state(None),  # type: ignore[arg-type]
        TypeError,
        "A state is what state_dict() returned; got a NoneType.",
    ),
    "part of the state of a scaler": (
        lambda: ts.Scaler.from_state({name: STATE[name] for name in ("version", "kind", "by", "rows")}),
        ValueError,
        "A state has kind, by, rows, spans, columns; this one lacks spans, columns.",
    ),
    "state of a scaler of no kind": (
        lambda: ts.Scaler.from_state(STATE | {"kind": 5}),
        ValueError,
        "kind= is one of 'standard', 'minmax', 'robust', 'maxabs'; got 5.",
    ),
    "seed of a sample": (
        lambda: ts.Scaler.fit(STASH, ["y"], sample=2, seed="x"),  # type: ignore[arg-type]
        ValueError,
        "seed= is an integer; got 'x'.",
    ),
    "a number in a cross": (
        lambda: ts.Cross(["c", 5], 8),  # type: ignore[list-item]
        TypeError,
        "columns= is a list of names; got 5 in it.",
    ),
    "a number as a span": (
        lambda: ts.InstanceNorm(5),  # type: ignore[arg-type]
        TypeError,
        "An InstanceNorm takes the names of spans; got 5.",
    ),
    "a cast that loses fractions": (
        lambda: ts.Cast({"y": torch.int64})(WINDOWS[:]),
        ts.errors.SchemaError,
        "A cast keeps values; 'y' is torch.float64, and torch.int64 would cut its fractions. Round it in a transform "
        "of your own.",
    ),
    "a path with NUL": (
        lambda: ts.open("/a\0b"),
        ts.errors.SegmentError,
        "The name of a file has no NUL character; got '/a\\x00b'. Choose another path.",
    ),
    "a long path": (
        lambda: ts.open(f"/{LONG}"),
        ts.errors.SegmentError,
        f"The name of a file is at most 255 bytes, and its path 4,095; '/{LONG[:39]}'... is longer. Choose another "
        "path.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=whole(message)):
        call()


def test_only_a_stash_is_drawn() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: nothing is drawn")
    with pytest.raises(TypeError, match=whole("A stash is drawn; got a NoneType.")):
        ts.plot.coverage(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=whole("A stash is drawn; got a Windows. Take windows.stash.")):
        ts.plot.series(WINDOWS, None, ["y"])  # type: ignore[arg-type]


def test_the_remedies_work() -> None:
    unsigned = ts.load({"a": np.array([2**63 + 1, 1], np.uint64), "y": [1.0, None]})
    assert unsigned["a"].tolist() == [2**63 + 1, 1]
    data = {"i": np.array([2**63 + 1, 1], np.uint64), "y": pa.array([1.0, None]).to_numpy(zero_copy_only=False)}
    expression = pc.field("i") == pa.scalar(2**63 + 1, pa.uint64())
    assert ts.load(data, ["y"], filter=expression)["y"].tolist() == [1.0]
    missing = ts.load({"i": [1, 2], "y": [1.0, None]}, ["i"], filter=pc.field("y").is_null())
    assert missing["i"].tolist() == [2]


def test_long_horizons_below_the_limit_are_taken() -> None:
    assert len(ts.Windows(STASH, 2, 2**39, min_horizon=0)) == 19
