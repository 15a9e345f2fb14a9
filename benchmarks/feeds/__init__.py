"""The feeds of train.py: a file for each library, which is imported only in the process that runs it.

Each has functions from a `Task` to what is iterated once per epoch, has the number of its batches as its length, and
yields batches as the task says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]  # of the results


@dataclass(frozen=True)
class Feed:
    """A function of a module here, and how it is run."""

    name: str
    place: str  # module.function
    needs: str = "torch"  # the package without which it is left out
    workers: int = 0
    note: str = ""
    drawn: bool = False  # an epoch shows some windows twice, or not at all
    single: bool = False  # driven with one target only


OURS = "tensorstash, scaled once"
HAND = "by hand, in chunks"
USUAL = "Dataset, DataLoader"
BRIEF = (OURS, HAND, USUAL)  # what pages show


@dataclass(frozen=True)
class Share:
    """The time of an epoch of ours as a share of another feed's: of their medians, and in the same rounds."""

    share: float
    lowest: float  # of all rounds
    highest: float

    @property
    def verdict(self) -> str:
        """Faster or slower only where every round says so."""
        return "faster" if self.highest < 1 else "slower" if self.lowest > 1 else "nothing won"

    def __str__(self) -> str:
        return f"{self.share:.2f} ({self.lowest:.2f} to {self.highest:.2f}), {self.verdict}"


def share_of(ours: Row, other: Row) -> Share:
    """One row beside another one; the seconds that stand beside it are the medians."""
    rounds = [own / theirs for own, theirs in zip(ours["epochs_s"], other["epochs_s"])]
    return Share(ours["epoch_s"] / other["epoch_s"], min(rounds), max(rounds))


def by_case(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each model over each data set, by its name."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['model']}, {row['data']}", []).append(row)
    return found


FEEDS = (
    Feed(OURS, "stash.scaled_once"),
    Feed("tensorstash, scaled per batch", "stash.scaled_per_batch"),
    Feed(USUAL, "dataset.slices"),
    Feed(USUAL, "dataset.slices", workers=2),
    Feed("as in TSLib", "tslib.custom", "pandas", note="float64, scaled once; cast per batch"),
    Feed("as in TSLib", "tslib.custom", "pandas", workers=2, note="float64, scaled once; cast per batch"),
    Feed(HAND, "hand.chunks", note="scaled once; one index_select for many batches"),
    Feed("pytorch-forecasting", "pytorch_forecasting.shuffled", "pytorch_forecasting", single=True),
    Feed("darts", "darts.sequential", "darts", note="as many windows of each stretch", drawn=True),
    Feed(
        "neuralforecast",
        "neuralforecast.windows",
        "neuralforecast",
        note="windows of 32 stretches",
        drawn=True,
        single=True,
    ),
)

# with a model on a device
ON_DEVICE = (
    Feed(OURS, "stash.scaled_once", note="scaled once; copies from pinned memory, ahead"),
    Feed(f"{OURS}, resident", "stash.resident", note="scaled once; gathered on the device"),
    Feed(f"{OURS}, from the host", "stash.on_host", note="scaled once; copied by the loop, from plain memory"),
    *(Feed(USUAL, "dataset.slices", workers=workers, note="scaled once; pinned memory") for workers in (0, 4)),
)
