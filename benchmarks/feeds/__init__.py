"""The feeds of train.py: a file for each library, which is imported only in the process that runs it.

Each has functions from a `Task` to what is iterated once per epoch, has the number of its batches as its length, and
yields batches as the task says.
"""

from dataclasses import dataclass


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


OURS = "tensorstash"
USUAL = "Dataset, DataLoader"
NEARLY = 0.95  # of the time of the usual data set: more is nothing won


def verdict(share: float) -> str:
    """What an epoch that takes this share of another one's time is."""
    return "slower than" if share > 1 / NEARLY else "nothing won over" if share > NEARLY else "faster than"


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
