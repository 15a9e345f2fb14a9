"""Columns of `ts.calendar` in a scaler: values that windows compute in empty slots are scaled like those of rows."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import tensorstash as ts
from tests.oracle_load import like

HOURS = [0, 1, 2, 5, 6, 7, 8, 11, 12]


def times_of() -> NDArray[np.datetime64]:
    return np.datetime64("2024-01-01T00", "s") + np.array(HOURS) * np.timedelta64(3600, "s")


def loaded(**calendar: bool) -> ts.Stash:
    columns = {"phase": ts.calendar("hour", **calendar), "y": "y"}
    return ts.load({"t": times_of(), "y": np.arange(float(len(HOURS)))}, columns, time="t")


def with_gaps(stash: ts.Stash, **more: Any) -> ts.Windows:
    return ts.Windows(stash, history=4, gaps="mask", min_history=2, frequency="1h", **more)


def scaled_by_hand(scaler: ts.Scaler, raw: torch.Tensor) -> torch.Tensor:
    center, scale = scaler.center["phase"], scaler.scale["phase"]
    return ((raw.double() - center) / scale).float()


@pytest.mark.parametrize("form", ["cyclic", "scaled"])
@pytest.mark.parametrize("way", ["fitted on windows", "fitted on a stash", "bound", "from its state", "loader", "mix"])
def test_values_computed_in_empty_slots_are_scaled(form: str, way: str) -> None:
    stash = loaded(**{form: True})
    windows = with_gaps(stash)
    raw = windows[:]
    assert not raw["phase.observed"].all()
    scaler = ts.Scaler.fit(stash if way == "fitted on a stash" else windows, ["phase", "y"])
    if way == "bound":
        scaler = ts.Scaler.fit(ts.Windows(stash, 1), ["phase", "y"]).bind(windows)
    if way == "from its state":
        scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    if way == "loader":
        (batch,) = ts.Loader(windows, len(windows), transform=[scaler])
    elif way == "mix":
        (batch,) = ts.Loader(ts.Mix({"one": windows}), len(windows), shuffle=False, transform=[scaler])
    else:
        batch = scaler(windows[:])
    torch.testing.assert_close(batch["phase"], scaled_by_hand(scaler, raw["phase"]))
    assert batch["y"][~raw["y.observed"]].isnan().all()
    restored = scaler.inverse(batch)
    torch.testing.assert_close(restored["phase"], raw["phase"])


def test_slots_of_a_span_in_time_have_no_time_and_keep_their_value() -> None:
    stash = loaded()
    span = ts.During("phase", "-3h", "0h", max_rows=4)
    windows = ts.Windows(
        stash, spans={"recent": span, "y": ("y", -1, 0)}, at={"t": times_of()}, frequency="1h", unmatched="drop"
    )
    raw = windows[:]
    cast = ts.Cast({"recent": torch.float32})
    scaler = ts.Scaler.fit(windows, ["phase"])
    batch = scaler(cast(windows[:]))
    empty = ~raw["recent.observed"]
    assert empty.any()
    assert batch["recent"][empty].eq(-1).all()


def test_a_stash_with_a_scaled_column_of_the_calendar_is_refused() -> None:
    stash = loaded(cyclic=True)
    with pytest.raises(ts.errors.SchemaError, match=like("ts.calendar cannot be scaled in a stash ... 'phase' is one")):
        ts.Scaler.fit(stash, ["y", "phase"]).transform(stash)


@pytest.mark.parametrize("computed", ["phase", ["other"], [1], 3, None])
def test_a_damaged_state_is_refused(computed: Any) -> None:
    state = ts.Scaler.fit(loaded(cyclic=True), ["phase"]).state_dict()
    assert state["computed"] == ["phase"]
    with pytest.raises(ValueError, match=like("computed must be a list of spans of the state")):
        ts.Scaler.from_state(state | {"computed": computed})
