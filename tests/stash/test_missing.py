"""What `fill=` hides and `ts.is_valid` shows is missing, as NaN is in the same column without `fill=`.

It asks the inside, `plot/coverage.py`, for the shares that a picture shows.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like
from tests.words import By
from tests.words import ScalerKind as Kind

Columns = dict[str, Any]

RNG = np.random.default_rng(5)
ROWS = 400
HOLES = RNG.random((2, ROWS)) < [[0.1], [0.2]]
VALUES = RNG.integers(-100, 100, (2, ROWS))
DATA: dict[str, Any] = {
    "e": np.repeat([*"abcd"], ROWS // 4),
    "t": np.tile(np.arange(ROWS // 4), 4),
    "sales": [None if hole else int(value) for hole, value in zip(HOLES[0], VALUES[0])],
    "price": [None if hole else int(value) for hole, value in zip(HOLES[1], VALUES[1])],
    "sky": [None if hole else f"sky {value % 3}" for hole, value in zip(HOLES[0], VALUES[0])],
}
FLOATS: Columns = {
    "y": ts.column("sales", dtype=torch.float64),
    "x": ts.column(["sales", "price"], dtype=torch.float64),
    "sky": "sky",
}
FILLED: Columns = {
    "y": ts.column("sales", fill=7),
    "x": ts.column(["sales", "price"], fill=-50),
    "sky": ts.column("sky", fill="sky 0"),
}
MASKS: dict[str, Columns] = {
    "the same members": {
        "y_ok": ts.is_valid("sales"),
        "x_ok": ts.is_valid(["sales", "price"]),
        "sky_ok": ts.is_valid("sky"),
    },
    "each member": {f"{name}_ok": ts.is_valid(name) for name in ("price", "sales", "sky")},
    "a pack of all": {"ok": ts.is_valid(["price", "sky", "sales"])},
}


def load(columns: Columns, data: dict[str, Any] = DATA) -> ts.Stash:
    return ts.load(data, columns, entity="e", time="t")


def plain() -> ts.Stash:
    return load(FLOATS)


@pytest.fixture(params=MASKS)
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> ts.Stash:
    load(FILLED | MASKS[request.param]).save(tmp_path / "filled")
    return ts.open(tmp_path / "filled")


def test_required_values_are_there(filled: ts.Stash) -> None:
    for require in (["y"], ["x"], ["sky"], ["x", "sky"]):
        slots = [
            ts.Windows(stash, 5, columns=["y", "x"], require=require).placement.anchor_slots(np.arange(20)).tolist()
            for stash in (plain(), filled)
        ]
        assert slots[0] == slots[1]
    assert len(ts.Windows(filled, 5, require=["y"])) < len(ts.Windows(filled, 5))


@pytest.mark.filterwarnings("ignore:.* series end before")
def test_the_latest_value_is_one_of_the_source(filled: ts.Stash) -> None:
    windows = ts.Windows(filled, 3, columns=["y"], min_history=1)
    for of, holes in (("y", HOLES[0]), ("x", HOLES.any(0)), ("sky", HOLES[0])):
        last = [int(np.flatnonzero(~entity)[-1]) for entity in holes.reshape(4, -1)]
        assert windows.latest(of).anchors(range(4))["time"].tolist() == last


@pytest.mark.parametrize("kind", ["standard", "minmax", "robust", "maxabs"])
def test_scalers_leave_out_what_was_filled(filled: ts.Stash, kind: Kind) -> None:
    def fit(stash: ts.Stash, by: By | None, sample: int | None) -> dict[str, Any]:
        windows = ts.Windows(stash, 5, columns=["y", "x"])
        return ts.Scaler.fit(windows, ["y", "x"], kind=kind, by=by, sample=sample).state_dict()

    cases: list[tuple[By | None, int | None]] = [(None, None), ("entity", None), (None, 100)]
    for by, sample in cases:
        assert fit(filled, by, sample) == fit(plain(), by, sample)
    mixes = [ts.Mix({"a": ts.Windows(stash, 5, columns=["y"])}) for stash in (plain(), filled)]
    assert len({str(ts.Scaler.fit(mix, ["y"], kind=kind).state_dict()) for mix in mixes}) == 1


def test_descriptions_leave_out_what_was_filled(filled: ts.Stash) -> None:
    for by in (None, "entity"):
        frames = [stash.describe(["y", "x", "sky"], by=by) for stash in (plain(), filled)]
        assert frames[0].equals(frames[1])
    assert filled.describe(["y"])["missing"].item() == HOLES[0].sum()


def test_without_a_mask_a_filled_value_is_data() -> None:
    stash = load(FILLED | {"flag": ts.column("ok", fill=False)}, DATA | {"ok": HOLES[0]})
    assert len(ts.Windows(stash, 5, require=["y", "x"])) == len(ts.Windows(stash, 5))
    assert stash.describe(["x"])["missing"].sum() == 0


def test_a_plain_column_of_booleans_is_no_mask() -> None:
    stash = load({"a": ts.column("ok", fill=False), "b": "ok"}, DATA | {"ok": HOLES[0]})
    assert stash.describe(["a", "b"])["missing"].sum() == 0
    assert not stash.about("b").is_validity
    assert load({"ok": ts.is_valid("sales")}).about("ok").is_validity


def test_static_columns_have_masks_too() -> None:
    data = {"e": [*"aab"], "size": [None, None, 3]}
    stash = ts.load(
        data, {"any": "e"}, entity="e", static={"size": ts.column("size", fill=9), "ok": ts.is_valid("size")}
    )
    assert stash.describe(["size"]).select("missing", "mean").row(0) == (1, 3.0)


def test_lists_and_single_packs_have_masks() -> None:
    data = {"a": [1, None, 3]}
    for source in ("a", ["a"]):
        for mask in ("a", ["a"]):
            stash = ts.load(data, {"a": ts.column(source, fill=0), "ok": ts.is_valid(mask)})
            assert stash.describe(["a"])["missing"].item() == 1
    lists = np.array([[1.0, np.nan], [2.0, 3.0]])
    stash = ts.load({"v": lists}, {"v": ts.column("v", fill=0.0), "ok": ts.is_valid("v")})
    assert stash.describe(["v"])["missing"].to_list() == [0, 1]


def test_stashes_without_rows_have_masks() -> None:
    stash = ts.load({"a": np.empty(0)}, {"a": ts.column("a", fill=0.0), "ok": ts.is_valid("a")})
    assert stash.describe(["a"])["missing"].item() == 0
    data = {"a": np.empty(0), "b": np.empty(0)}
    stash = ts.load(data, {"x": ts.column(["a", "b"], fill=0.0), "ok": ts.is_valid("b")})  # a mask of one member
    assert stash.describe(["x"])["missing"].to_list() == [0, 0]


def test_coverage_shows_what_was_filled() -> None:
    pytest.importorskip("matplotlib")
    from tensorstash.plot.coverage import _coverage

    stashes = load({"y": FLOATS["y"]}), load({"y": FILLED["y"], "ok": ts.is_valid("sales")})
    before, after = (_coverage(stash, np.arange(4), ["y"], None)[0] for stash in stashes)
    assert (before == after).all()


def test_an_error_for_nulls_in_integers_names_both_remedies() -> None:
    for remedy in ("as NaN, ts.column('sales', dtype=torch.float32)", "counts as data: ts.column('sales', fill=...)"):
        with pytest.raises(ts.errors.DataError, match=like(remedy)):
            load({"y": "sales"})
