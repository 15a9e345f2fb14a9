"""Files of ORC, stripe by stripe."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tensorstash.sources.file import File
from tensorstash.sources.footers import Footer, Readers
from tensorstash.sources.orc_process import Decoder, row_counts, schema, stripe
from tensorstash.sources.read import BATCH_ROWS, Wanted


def orc_footer(file: File, wanted: Wanted, readers: Readers) -> Footer:
    """The stripes of a file. pyarrow does not tell their row counts: one column of each is decoded."""
    with readers.taken(_any, None, Decoder) as decoder:
        [stored] = decoder.answers(schema, file)
        [rows] = decoder.answers(row_counts, file, (wanted.among(stored.names) or stored.names)[:1])
    return Footer(file, stored, rows, "stripe", _of_stripe, readers)


def _of_stripe(footer: Footer, index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with footer.readers.taken(_any, None, Decoder) as decoder:
        for written in decoder.answers(stripe, footer.file, index, list(names), BATCH_ROWS):
            yield pa.ipc.open_stream(written).read_next_batch()


def _any(_made_for: object) -> bool:
    return True
