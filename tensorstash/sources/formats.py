"""The formats of files: the endings of their names, and what reads them."""

from collections.abc import Callable
from dataclasses import dataclass

from tensorstash.sources.file import File
from tensorstash.sources.footers import Footer, Readers
from tensorstash.sources.ipc import ipc_footer
from tensorstash.sources.orc import orc_footer
from tensorstash.sources.read import Wanted


def _parquet_footer(file: File, wanted: Wanted, readers: Readers) -> Footer:
    from tensorstash.sources.parquet import parquet_footer  # here, because pyarrow.dataset is slow to import

    return parquet_footer(file, wanted, readers)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files."""

    name: str  # for messages
    endings: tuple[str, ...]  # of the files that are read from directories
    frame: str  # the line that reads a file as a frame, for messages
    # reads the footer: its pieces are decoded one by one; `None`: the file is text, which is read from its beginning
    footer: Callable[[File, Wanted, Readers], Footer] | None


PARQUET = Format("Parquet", (".parquet", ".parq", ".pq"), "pl.scan_parquet({})", _parquet_footer)
TABS = Format("CSV", (".tsv", ".tsv.gz", ".tsv.zst"), "pl.scan_csv({}, separator='\\t')", None)
FORMATS = (
    PARQUET,
    Format("Arrow IPC", (".arrow", ".feather", ".ipc"), "pl.scan_ipc({})", ipc_footer),
    Format("Arrow IPC", (".arrows",), "pl.read_ipc_stream({})", ipc_footer),
    Format("ORC", (".orc",), "pd.read_orc({})", orc_footer),
    Format("CSV", (".csv", ".csv.gz", ".csv.zst"), "pl.scan_csv({})", None),
    TABS,
)


def format_of(name: str) -> Format:
    """The format of a file, by the ending of its name in small letters; a file with any other name is Parquet."""
    return next((one for one in FORMATS if name.endswith(one.endings)), PARQUET)
