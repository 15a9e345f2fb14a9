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


WANTED: tuple[Wanted, ...] = (
    Wanted(
        "load",
        case=1380,
        reason="the largest value of a static column was that of the entities with rows, not of all in the stash",
        shows=lambda _, label: label == "like about",
    ),
    Wanted(
        "load",
        case=59,
        reason="static columns that are left out with like= are read where the source has them; they were carried",
        shows=lambda _, label: label in ("like static", "like about", "like vocabularies"),
    ),
    Wanted(
        "mix",
        case=3,
        reason="the fingerprint of a mix, as that of windows, leaves out what a state may change: scaling and fills",
        shows=lambda _, label: label == "fingerprint" or label.endswith("state"),
    ),
    Wanted(
        "windows",
        case=1466,
        reason="latest looks for windows, and warns of series that end early, before it asks what empty slots hold",
        shows=lambda about, label: label == "warnings" and "part=latest" in about,
    ),
    *(
        Wanted(
            kind,
            case=case,
            reason="entities that gaps or require= leave without a window have a warning of their own",
            shows=lambda about, label: label == "warnings" and ("gaps" in about or "require" in about),
        )
        for kind, case in (("windows", 724), ("transforms", 142), ("loader", 350))
    ),
    Wanted(
        "refusals",
        case=425,
        reason="what is no name of a column has the wrong type, whatever it is",
        shows=lambda _, label: label.startswith("column of a stash"),
    ),
    Wanted(
        "refusals",
        case=1273,
        reason="several values as a bound of ts.During are refused as no duration, not in the words of torch",
        shows=lambda _, label: label.startswith(("During start=", "During stop=")),
    ),
    Wanted(
        "refusals",
        case=460,
        reason="by= may be a column of codes, so another word is a column that is not there",
        shows=lambda _, label: label.startswith("Scaler.fit by="),
    ),
    Wanted(
        "transforms",
        case=965,
        reason="a scaler without a row to fit is refused by one error for all sources, a DataError",
        shows=lambda _, label: label == "scaler refused",
    ),
    Wanted(
        "transforms",
        case=1,
        reason="a bound scaler gives the state of the one that was fitted, by entity or not",
        shows=lambda _, label: label == "bound",
    ),
    Wanted(
        "sources",
        case=451,
        reason="filters by tuples compare numbers of uint64 from 2**63 on, which were refused in most sources",
        shows=lambda about, label: label == "load refused" and "filter" in about,
    ),
)
