"""Files of ORC, stripe by stripe. Stripes have no row counts that pyarrow tells: one column of each is read."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import orc

from tensorstash.errors import SourceError
from tensorstash.sources.file import File
from tensorstash.sources.footers import Footer, Recent
from tensorstash.sources.scan import Wanted


def orc_footer(file: File, wanted: Wanted, recent: Recent) -> Footer:
    """The stripes of a file of ORC."""
    reader = orc.ORCFile(file.open())
    names = wanted.first(reader.schema.names)
    rows = [reader.read_stripe(index, columns=names).num_rows for index in range(reader.nstripes)]
    if sum(rows) != reader.nrows:
        raise SourceError(
            f"{file} is damaged: its stripes have {sum(rows):,} rows, its footer says {reader.nrows:,}. Write the file "
            "again."
        )
    return Footer(file, reader.schema, rows, "stripe", _stripe, recent)


def _stripe(footer: Footer, index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    reader = footer.recent.get(footer.file, lambda: orc.ORCFile(footer.file.open()))
    batch = reader.read_stripe(index, columns=list(names))
    batch.validate(full=True)
    yield batch
