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
    shape: str = ""  # of the data and batches, a key of `SHAPES`
    note: str = ""
    drawn: bool = False  # an epoch shows some windows twice, or not at all

    @property
    def loop(self) -> str:
        """The loop in C over columns of the same layout: its own, or that of what its name says."""
        return "C loop (packed)" if self.name in PACKED or "packed" in self.name else "C loop"

    @property
    def is_familiar(self) -> bool:
        return self.name in FAMILIAR and (self.threads, self.workers, self.shape) == (1, 0, "")

    @property
    def module(self) -> str:
        return self.place.partition(".")[0]

    @property
    def function(self) -> str:
        return self.place.partition(".")[2]


FEW, SHORT, OF_32 = "200,000 rows", "50,000 series of 200 steps", "batches of 32"
SHAPES = ("", OF_32, SHORT, FEW)  # the first one is 500 series of 20,000 steps in batches of 1,024; FEW for who cannot

REUSED = "each batch overwrites the last but one"
HUGE = "packed, huge pages, each batch overwrites the last but one"
CHUNKED = "packed, huge pages, one call for 1,024 windows, whose views are the batches"
COMPILED = "packed, huge pages, a compiled loop copies 1,024 windows, whose views are the batches"
MATRIX = "x[starts[:, None] + arange(width)]"
INSIDE = "unfold + index_select inside"
VIEW = "index_select of a strided view inside"
TENSORS = "batch_size=None; index_select of a strided view inside"
MAPPED = "reads a memory-mapped file"
CACHED = "cached values; draws with replacement"
DEFAULT = "its default batch_size"
ONE = "about one window of each series in turn, unshuffled"
SEVERAL = "ten windows of each series in turn, unshuffled"
OBJECTS = "makes an object for every window first"
# of these the README has a row: a loop in C, what is fed with columns of its layout, and what people use
FAMILIAR = {
    "C loop (packed)": "a bare loop in C, packed columns",
    "C loop (packed, huge pages)": "a bare loop in C, packed columns in huge pages",
    "tensorstash (packed)": "tensorstash, packed columns",
    "strided index_select (huge pages)": "`index_select` by hand, in huge pages",
    "numba (in chunks)": "numba by hand, in huge pages",
    "DataLoader (tensors of starts)": "`DataLoader` over tensors of starts",
    "DataLoader (__getitems__, packed)": "`DataLoader`, `__getitems__`",
    "DataLoader (one packed slice)": "`DataLoader`, one packed slice a window",
    "C loop": "a bare loop in C, separate columns",
    "tensorstash (separate)": "tensorstash, separate columns",
    "strided index_select (separate, reused)": "`index_select` by hand, separate columns",
    "DataLoader (dict of slices)": "`DataLoader`, eight slices a window",
    "darts": "darts",
}
# whose columns are packed, though their names do not say so
PACKED = (
    *("strided index_select (huge pages)", "strided index_select (in chunks)", "numba (in chunks)"),
    *("DataLoader (tensors of starts)", "darts", "neuralforecast", "neuralforecast (one series)"),
    "pytorch-forecasting",
)
CONTESTANTS = (
    Contestant("C loop", "c.loop", "cc", note="memcpy and prefetch, separate columns, results reused"),
    Contestant("C loop (packed)", "c.packed_loop", "cc", note="the same of packed columns"),
    Contestant("C loop (packed, huge pages)", "c.packed_huge_loop", "cc", note="the same in huge pages"),
    Contestant("tensorstash (packed)", "stash.packed"),
    Contestant("tensorstash (packed)", "stash.packed", threads=2),
    Contestant("tensorstash (separate)", "stash.separate"),
    Contestant("tensorstash (separate)", "stash.separate", threads=2),
    Contestant("tensorstash (packed, two spans)", "stash.two_spans", note="past and future, as in the README"),
    Contestant("strided index_select (packed, reused)", "hand.packed_reused", note=REUSED),
    Contestant("strided index_select (packed, reused)", "hand.packed_reused", threads=2, note=REUSED),
    Contestant("strided index_select (huge pages)", "hand.packed_huge", note=HUGE),
    Contestant("strided index_select (huge pages)", "hand.packed_huge", threads=2, note=HUGE),
    Contestant("numba (in chunks)", "numba.chunked", "numba", note=COMPILED),
    Contestant("numba (in chunks)", "numba.chunked", "numba", threads=2, note=COMPILED),
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
    Contestant("DataLoader (__getitems__, packed)", "loader.getitems_packed", note=VIEW),
    Contestant("DataLoader (tensors of starts)", "loader.tensors", note=TENSORS),
    Contestant("DataLoader (tensors of starts)", "loader.tensors", workers=2, note=TENSORS),
    Contestant("tensordict index", "tensordict.indexed", "tensordict"),
    Contestant("tensordict index (packed)", "tensordict.packed", "tensordict"),
    Contestant("torchrl SliceSampler", "torchrl.slices", "torchrl", note=CACHED, drawn=True),
    Contestant("torchrl SliceSampler (packed)", "torchrl.packed", "torchrl", note=CACHED, drawn=True),
    Contestant("pytorch-forecasting", "pytorch_forecasting.shuffled", "pytorch_forecasting"),
    Contestant("pytorch-forecasting", "pytorch_forecasting.shuffled", "pytorch_forecasting", workers=2),
    Contestant("GluonTS", "gluonts.stacked", "gluonts", note=ONE, drawn=True),
    Contestant("GluonTS (NumInstanceSampler)", "gluonts.several", "gluonts", note=SEVERAL, drawn=True),
    Contestant("darts", "darts.sequential", "darts"),
    Contestant("darts", "darts.sequential", "darts", workers=2),
    Contestant("neuralforecast", "neuralforecast.of_32_series", "neuralforecast", note=DEFAULT, drawn=True),
    Contestant("neuralforecast (one series)", "neuralforecast.of_one_series", "neuralforecast", drawn=True),
    Contestant("tsai", "tsai.windows", "tsai", shape=FEW, note="makes a copy of every window first"),
    Contestant("grain", "grain.batched", "grain"),
    Contestant("grain (one packed slice)", "grain.packed", "grain"),
    Contestant("Hugging Face datasets", "datasets.slices", "datasets", note=MAPPED),
    Contestant("Hugging Face datasets", "datasets.slices", "datasets", workers=2, note=MAPPED),
    Contestant("xbatcher", "xbatcher.windows", "xbatcher", shape=FEW, note=OBJECTS),
    Contestant("xbatcher", "xbatcher.windows", "xbatcher", workers=2, shape=FEW, note=OBJECTS),
    Contestant("C loop (packed)", "c.packed_loop", "cc", shape=OF_32),
    Contestant("tensorstash (packed)", "stash.packed", shape=OF_32),
    Contestant("tensorstash (packed)", "stash.packed", threads=2, shape=OF_32),
    Contestant("strided index_select (packed, reused)", "hand.packed_reused", shape=OF_32, note=REUSED),
    Contestant("strided index_select (in chunks)", "hand.chunked", shape=OF_32, note=CHUNKED),
    Contestant("strided index_select (in chunks)", "hand.chunked", threads=2, shape=OF_32, note=CHUNKED),
    Contestant("numba (in chunks)", "numba.chunked", "numba", shape=OF_32, note=COMPILED),
    Contestant("numba (in chunks)", "numba.chunked", "numba", threads=2, shape=OF_32, note=COMPILED),
    Contestant("DataLoader (one packed slice)", "loader.packed_slices", shape=OF_32),
    Contestant("DataLoader (one packed slice)", "loader.packed_slices", workers=2, shape=OF_32),
    Contestant("DataLoader (__getitems__, packed)", "loader.getitems_packed", shape=OF_32, note=VIEW),
    Contestant("DataLoader (tensors of starts)", "loader.tensors", shape=OF_32, note=TENSORS),
    Contestant("tensorstash (packed)", "stash.packed", shape=SHORT),
    Contestant("strided index_select (huge pages)", "hand.packed_huge", shape=SHORT, note=HUGE),
    Contestant("DataLoader (one packed slice)", "loader.packed_slices", shape=SHORT),
    Contestant("GluonTS", "gluonts.stacked", "gluonts", shape=SHORT, note=ONE, drawn=True),
    Contestant("GluonTS (NumInstanceSampler)", "gluonts.several", "gluonts", shape=SHORT, note=SEVERAL, drawn=True),
    Contestant("neuralforecast", "neuralforecast.of_32_series", "neuralforecast", shape=SHORT, drawn=True),
)
