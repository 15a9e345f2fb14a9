"""The feeds of train.py: a file for each library, which is imported only in the process that runs it.

Each has functions from a `Task` to what is iterated once per epoch, has the number of its batches as its length, and
yields batches as the task says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]  # of the results


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


OURS = "tensorstash"  # the name of the feed that others are compared with
USUAL = "Dataset, DataLoader"


@dataclass(frozen=True)
class Share:
    """The time of an epoch of ours as a share of another feed's in the same rounds."""

    share: float  # the median over the rounds
    lowest: float | None  # of all rounds; `None` where results were saved without
    highest: float | None

    @property
    def verdict(self) -> str:
        """Faster or slower only where every round says so."""
        if self.lowest is None or self.highest is None:
            return ""
        return "faster" if self.highest < 1 else "slower" if self.lowest > 1 else "nothing won"

    def __str__(self) -> str:
        extent = "" if self.lowest is None else f" ({self.lowest:.2f} to {self.highest:.2f})"
        return f"{self.share:.2f}{extent}{self.verdict and f', {self.verdict}'}"


def share_of(row: Row) -> Share:
    """Ours beside the feed of a row, whose ratios are its times divided by ours."""
    low, high = row.get("ratio_low"), row.get("ratio_high")
    return Share(1 / row["ratio"], 1 / high if high else None, 1 / low if low else None)


def beside_usual(rows: Sequence[Row]) -> Iterator[tuple[str, Row, Row, Share]]:
    """For each model over each data set: its name, our row, the faster one of the usual data set, and our share."""
    for model, data in dict.fromkeys((row["model"], row["data"]) for row in rows):
        own = [row for row in rows if (row["model"], row["data"]) == (model, data)]
        ours = next((row for row in own if row["name"] == OURS), None)
        usual = [row for row in own if row["name"] == USUAL and row["ratio"] is not None]
        if ours and usual:
            beside = min(usual, key=lambda row: row["ratio"])
            yield f"{model}, {data}", ours, beside, share_of(beside)


FEEDS = (
    Feed(OURS, "stash.scaled_per_batch"),
    Feed(f"{OURS}, scaled once", "stash.scaled_once"),
    Feed(USUAL, "dataset.slices"),
    Feed(USUAL, "dataset.slices", workers=2),
    Feed("as in TSLib", "tslib.custom", "pandas", note="float64, scaled once; cast per batch"),
    Feed("as in TSLib", "tslib.custom", "pandas", workers=2, note="float64, scaled once; cast per batch"),
    Feed("by hand, in chunks", "hand.chunks", note="scaled once; one index_select for many batches"),
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
