"""The contestants of compare.py: a file for each library, which is imported only in the process that runs it.

Each has functions from a `Workload` to an iterator of batches without end. Batches that are neither a dict of `(batch,
width)` columns nor one `(batch, width, 8)` tensor have a function `columns` beside them, which makes that dict of them
for the check; its time does not count.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    """A function of a module here, and how it is run."""

    name: str
    place: str  # module.function
    needs: str = "torch"  # the package without which it is left out; "cc" is a command
    threads: int = 1  # of torch
    workers: int = 0
    small: bool = False  # runs on few rows, because it cannot take all
    note: str = ""

    @property
    def module(self) -> str:
        return self.place.partition(".")[0]

    @property
    def function(self) -> str:
        return self.place.partition(".")[2]


REUSED = "each batch overwrites the last but one"
MATRIX = "x[starts[:, None] + arange(width)]"
INSIDE = "unfold + index_select inside"
MAPPED = "reads a memory-mapped file"
OBJECTS = "makes an object for every window first"
CONTESTANTS = (
    Contestant("C loop", "c.loop", "cc", note="the limit: memcpy and prefetch, separate columns, results reused"),
    Contestant("tensorstash (packed)", "stash.packed"),
    Contestant("tensorstash (packed)", "stash.packed", threads=2),
    Contestant("tensorstash (separate)", "stash.separate"),
    Contestant("tensorstash (separate)", "stash.separate", threads=2),
    Contestant("strided index_select (packed, reused)", "hand.packed_reused", note=REUSED),
    Contestant("strided index_select (packed, reused)", "hand.packed_reused", threads=2, note=REUSED),
    Contestant("strided index_select (separate, reused)", "hand.separate_reused", note=REUSED),
    Contestant("strided index_select (separate, reused)", "hand.separate_reused", threads=2, note=REUSED),
    Contestant("strided index_select (packed)", "hand.packed"),
    Contestant("unfold + index_select", "hand.unfold"),
    Contestant("unfold + index_select", "hand.unfold", threads=2),
    Contestant("sliding_window_view", "hand.sliding"),
    Contestant("index matrix (packed)", "hand.fancy_packed", note=MATRIX),
    Contestant("index matrix", "hand.fancy", note=MATRIX),
    Contestant("DataLoader (dict of slices)", "loader.slices"),
    Contestant("DataLoader (dict of slices)", "loader.slices", workers=2),
    Contestant("DataLoader (one packed slice)", "loader.packed_slices"),
    Contestant("DataLoader (one packed slice)", "loader.packed_slices", workers=2),
    Contestant("DataLoader (__getitems__)", "loader.getitems", note=INSIDE),
    Contestant("DataLoader (__getitems__)", "loader.getitems", workers=2, note=INSIDE),
    Contestant("tensordict index", "tensordict.indexed", "tensordict"),
    Contestant("torchrl SliceSampler", "torchrl.slices", "torchrl", note="cached values; draws with replacement"),
    Contestant("pytorch-forecasting", "pytorch_forecasting.shuffled", "pytorch_forecasting"),
    Contestant("pytorch-forecasting", "pytorch_forecasting.shuffled", "pytorch_forecasting", workers=2),
    Contestant("GluonTS", "gluonts.stacked", "gluonts", note="about one window of each series in turn, unshuffled"),
    Contestant("darts", "darts.sequential", "darts"),
    Contestant("darts", "darts.sequential", "darts", workers=2),
    Contestant("neuralforecast", "neuralforecast.of_32_series", "neuralforecast", note="its default batch_size"),
    Contestant("neuralforecast (one series)", "neuralforecast.of_one_series", "neuralforecast"),
    Contestant("tsai", "tsai.windows", "tsai", small=True, note="makes a copy of every window first"),
    Contestant("grain", "grain.batched", "grain"),
    Contestant("Hugging Face datasets", "datasets.slices", "datasets", note=MAPPED),
    Contestant("Hugging Face datasets", "datasets.slices", "datasets", workers=2, note=MAPPED),
    Contestant("xbatcher", "xbatcher.windows", "xbatcher", small=True, note=OBJECTS),
    Contestant("xbatcher", "xbatcher.windows", "xbatcher", workers=2, small=True, note=OBJECTS),
)
