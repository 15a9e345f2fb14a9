"""windows.to_frame: the entity, the time and the value of every slot that was predicted."""

from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import tensorstash as ts
from tests.oracle_load import like

pytestmark = pytest.mark.filterwarnings("ignore:Gaps cost")


def test_to_frame_tells_entity_and_time_of_every_prediction() -> None:
    data = {"who": ["A"] * 5 + ["B"] * 4, "day": np.arange(9) + np.datetime64("2024-01-01"), "y": np.arange(9.0)}
    stash = ts.load(data, ["y"], entity="who", time="day")
    windows = ts.Windows(stash, spans={"past": ("y", -2, 0), "next": ("y", 0, 2)})
    ids = [1, 2]

    frame = windows.to_frame(ids, windows[ids]["next"])

    days = [date(2024, 1, k) for k in (4, 5, 8, 9)]
    assert frame.equals(pl.DataFrame({"who": ["A", "A", "B", "B"], "day": days, "value": [3.0, 4.0, 7.0, 8.0]}))
    with pytest.raises(
        ValueError,
        match=like("predictions ... got (2, 3)"),
    ):
        windows.to_frame(ids, torch.zeros(2, 3))


def test_to_frame_without_a_horizon_covers_the_window() -> None:
    windows = ts.Windows(ts.load({"y": np.arange(4.0)}), 3)
    assert windows.to_frame([1], windows[[1]]["y"]).equals(pl.DataFrame({"value": [1.0, 2.0, 3.0]}))


def test_frames_of_predictions_have_no_column_twice() -> None:
    data = {"value": ["a", "a"], "time": [1, 1], "t": [1, 2], "y": [1.0, 2.0]}
    stash = ts.load(data, ["y"], entity=["value", "time"], time="t")
    windows = ts.Windows(stash, history=1, horizon=1)
    message = "names must differ from ... got 'value'"
    with pytest.raises(ValueError, match=like(message)):
        windows.to_frame([0], torch.tensor([[0.5]]))
    frame = windows.to_frame([0], np.array([[0.5]]), names=["forecast"])  # type: ignore[arg-type]
    assert frame.rows(named=True) == [{"value": "a", "time": 1, "t": 2, "forecast": 0.5}]


def test_to_frame_takes_several_values_of_each_slot() -> None:
    windows = ts.Windows(ts.load({"t": [1, 2, 3, 4], "y": np.arange(4.0)}, ["y"], time="t"), history=1, horizon=2)
    values = torch.arange(12, dtype=torch.bfloat16).reshape(2, 2, 3).requires_grad_()
    frame = windows.to_frame([0, 1], values, names=["low", "mid", "high"])
    expected = {"t": [2, 3, 3, 4], "low": [0, 3, 6, 9], "mid": [1, 4, 7, 10], "high": [2, 5, 8, 11]}
    assert frame.to_dict(as_series=False) == expected
    assert windows.to_frame([0], values[:1]).columns == ["t", "value_0", "value_1", "value_2"]
    assert windows.to_frame([], torch.empty(0, 2, 1)).shape == (0, 2)
    message = "names ... got ['a', 'a', 'b']"
    with pytest.raises(ValueError, match=like(message)):
        windows.to_frame([0, 1], values, names=["a", "a", "b"])
    with pytest.raises(ValueError, match=like("a different name for each of 1 values of a slot, got [")):
        windows.to_frame([0], values[:1, :, 0], names=["a", "b"])


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_to_frame_tells_windows_and_steps_apart(timed: bool, masked: bool) -> None:
    """A row of each window and slot, beside one that `anchors` and a loop give."""
    table = {"e": list("aaaaabbbb"), "t": [0, 1, 3, 4, 5, 0, 1, 2, 3], "y": np.arange(9.0)}
    stash = ts.load(table, ["y"], entity="e", time="t" if timed else None)
    gaps: dict[str, Any] = {"gaps": "mask", "frequency": 1} if masked and timed else {}
    windows = ts.Windows(stash, spans={"past": ("y", -1, 0), "next": ("y", 0, 2)}, **gaps)
    ids = [3, 0, *range(len(windows))][1 - len(windows) :]
    values = torch.arange(len(ids) * 2.0).view(-1, 2)
    frame = windows.to_frame(ids, values, origin=True, step=True)
    (batch,) = ts.Loader(windows, len(windows), with_ids=True)
    expected = []
    for number, k in enumerate(ids):
        entity, anchor = (int(batch[name][k]) for name in ("entity", "anchor"))
        for slot in range(2):
            time = {"t": anchor + slot} if timed else {}
            expected.append(
                {"e": "ab"[entity], **time, "anchor": anchor, "step": slot + 1, "value": number * 2.0 + slot}
            )
    assert frame.to_dicts() == expected


def test_the_anchor_in_a_frame_has_the_type_of_times_and_of_the_last_slot_without_a_horizon() -> None:
    days = pl.datetime_range(
        pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 6), "1d", eager=True, time_zone="Europe/Rome"
    )
    windows = ts.Windows(
        ts.load(pl.DataFrame({"t": days, "y": np.arange(6.0)}), ["y"], time="t"), history=3, min_history=1
    )
    frame = windows.to_frame([0, 3], torch.zeros(2, 3), origin=True, step=True)
    assert frame["anchor"].to_list() == [days[0]] + [days[3]] * 3
    assert frame["step"].to_list() == [3, 1, 2, 3]  # slots before the first row are left out


def test_the_time_of_an_anchor_without_a_row_is_null_where_there_is_no_step() -> None:
    stash = ts.load({"e": list("aab"), "t": [1, 5, 9], "y": [1.0, 2.0, 3.0]}, ["y"], entity="e", time="t")
    windows = ts.Windows(stash, history=1, horizon=1, min_horizon=0, gaps="ignore")
    frame = windows.to_frame(range(3), torch.zeros(3, 1), origin=True)
    assert frame["t"].to_list() == frame["anchor"].to_list() == [5, None, None]


def test_columns_of_a_frame_have_different_names() -> None:
    windows = ts.Windows(ts.load({"step": [0, 1, 2], "y": [0.0, 1.0, 2.0]}, ["y"], time="step"), 1, 1)
    for arguments, name in (({"step": True}, "step"), ({"origin": True, "names": ["anchor"]}, "anchor")):
        with pytest.raises(ValueError, match=like(f"names must differ from ... got {name!r}")):
            windows.to_frame([0], torch.zeros(1, 1), **arguments)
    assert windows.to_frame([0], torch.zeros(1, 1), origin=True).columns == ["step", "anchor", "value"]
