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


@pytest.mark.parametrize("computed", ["phase", {"other": [True]}, {"phase": [1]}, {"phase": [True, False]}, 3, None])
def test_a_damaged_state_is_refused(computed: Any) -> None:
    state = ts.Scaler.fit(loaded(cyclic=True), ["phase"]).state_dict()
    assert state["computed"] == {"phase": [True]}
    with pytest.raises(ValueError, match=like("this one is damaged")):
        ts.Scaler.from_state(state | {"computed": computed})


# ---- Rows of `ts.each`, and windows normalised by their own history ----


def mixed_rows(**more: Any) -> ts.Windows:
    columns = {"phase": ts.calendar("hour", cyclic=True), "y": ts.column("y", dtype=torch.float32, empty=0)}
    stash = ts.load({"t": times_of(), "y": np.arange(float(len(HOURS)))}, columns, time="t")
    spans = {"past": (ts.each("y", "phase"), -4, 0), "whole": ("phase", -4, 0)}
    return ts.Windows(stash, spans=spans, gaps="mask", min_history=2, frequency="1h", **more)


@pytest.mark.parametrize("way", ["fitted", "bound", "from its state", "loader"])
def test_rows_of_the_calendar_are_scaled_beside_rows_of_other_columns(way: str) -> None:
    windows = mixed_rows()
    raw, scaler = windows[:], ts.Scaler.fit(windows, ["phase", "y"])
    if way == "bound":
        scaler = ts.Scaler.fit(windows.stash, ["phase", "y"]).bind(windows)
    if way == "from its state":
        scaler = ts.Scaler.from_state(json.loads(json.dumps(scaler.state_dict())))
    batch = next(iter(ts.Loader(windows, 99, transform=[scaler]))) if way == "loader" else scaler(windows[:])
    of_calendar, observed = raw["past.pack"] == 1, raw["past.observed"]
    assert not observed.all()
    phases = batch["past"][of_calendar].view(len(windows), 2, 4).transpose(1, 2)
    torch.testing.assert_close(phases, scaled_by_hand(scaler, raw["whole"]))
    assert batch["past"][~observed & ~of_calendar[:, None]].eq(0).all()
    torch.testing.assert_close(scaler.inverse(batch)["past"], raw["past"])


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("kind", ["standard", "last", "mean"])
@pytest.mark.parametrize("span", ["past", "whole"])
def test_computed_values_count_and_change_in_a_norm(span: str, kind: Any, resident: bool) -> None:
    windows = mixed_rows()
    raw = windows[:]
    norm = ts.InstanceNorm(span, kind=kind)
    (batch,) = ts.Loader(windows, 99, transform=[norm], resident=resident)
    full = windows[:]
    if span == "past":
        full["past.observed"] = full["past.observed"] | (full["past.pack"] == 1)[:, None]
    else:
        del full["whole.observed"]
    expected = norm(full)  # not bound: only `observed` counts
    torch.testing.assert_close(batch[span], expected[span])
    torch.testing.assert_close(norm.bind(windows).inverse(batch)[span], raw[span])


def test_without_a_known_step_of_time_empty_slots_hold_nan_and_keep_it() -> None:
    stash = loaded(cyclic=True)
    parts = {"without": ts.Windows(stash, 4, gaps="ignore", min_history=2), "with": with_gaps(stash)}
    for mix in (ts.Mix(parts), ts.Mix(dict(reversed(parts.items())))):
        (plain,) = ts.Loader(mix, 99, with_ids=True)
        raw, order = plain["phase"], torch.argsort(plain["source"], stable=True)
        own = torch.cat([part[:]["phase"] for part in mix.windows.values()])
        torch.testing.assert_close(raw[order], own, rtol=0, atol=0, equal_nan=True)
        scaler = ts.Scaler.fit(mix, ["phase"])
        (batch,) = ts.Loader(mix, 99, transform=[scaler])
        torch.testing.assert_close(batch["phase"], scaled_by_hand(scaler, raw), equal_nan=True)
        assert raw.isnan().any()
        (batch,) = ts.Loader(mix, 99, transform=[ts.InstanceNorm("phase", kind="last")])
        torch.testing.assert_close(batch["phase"], raw - raw[:, -1:], equal_nan=True)
