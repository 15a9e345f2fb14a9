"""Differences from the earlier commit that are wanted, each with its reason.

    Wanted("points", case=1234, reason="ages of empty slots are -1", shows=lambda about, label: "age" in about)

`case` is a case of seed 0 that shows the difference. It is run in every run, so a difference that is gone is noticed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Wanted:
    """A difference that is right: what shows it, and why it is."""

    kind: str
    case: int
    reason: str
    shows: Callable[[Sequence[str], str], bool]  # what a case has, and the label of the part that differs


def _whole_times(about: Sequence[str], label: str) -> bool:
    shared = [word for word in about if word.startswith(("ranks=", "resumed=")) and not word.endswith("=1")]
    return {"order=ByTime", "batch_size=None"} <= {*about} and ("tail=pad" in about or bool(shared))


_TIMES = "without a batch size ts.ByTime gives each rank whole cross-sections, and refuses to fill them up"

WANTED: tuple[Wanted, ...] = (
    Wanted("points", case=6, reason=_TIMES, shows=_whole_times),
    Wanted("loader", case=225, reason=_TIMES, shows=_whole_times),
    Wanted(
        "windows",
        case=898,
        reason="a notebook shows windows whose anchors lie behind the rows, also where the step of time is not known",
        shows=lambda about, label: label == "windows shown refused" and {"gaps=ignore", "part=latest"} <= {*about},
    ),
    Wanted(
        "load",
        case=594,
        reason="like= supplies the columns, types and static columns that a load leaves out",
        shows=lambda _, label: label.startswith("like"),
    ),
    Wanted(
        "shards",
        case=503,
        reason="a column without a value for empty slots is told before a span in time that require= names",
        shows=lambda about, label: label == "case refused" and {"spans", "require"} <= {*about},
    ),
    Wanted(
        "torch",
        case=151,
        reason="a DataLoader with batch_size=None takes the longest spans of a ts.Draw, as windows[ids] does",
        shows=lambda about, label: label == "case refused" and any(word.startswith("order=") for word in about),
    ),
    Wanted(
        "loader",
        case=50,
        reason="a state says which ids of the caller's an epoch had, also where their order holds other epochs by then",
        shows=lambda about, label: "order=ids" in about and (label == "after both" or "state" in label),
    ),
    Wanted(
        "transforms",
        case=290,
        reason="scaler.transform(stash) refuses calendar columns, whose values in empty slots are computed later",
        shows=lambda about, label: label == "scaled" and "when" in about,
    ),
    Wanted(
        "refusals",
        case=128,
        reason="a mapping is no list of names, because its values would be lost",
        shows=lambda _, label: label.endswith(" refused") and "={" in label,
    ),
)
