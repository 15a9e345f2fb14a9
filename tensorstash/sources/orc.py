"""Files of ORC, stripe by stripe."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from tensorstash.sources.file import File
from tensorstash.sources.footers import Footer, Readers
from tensorstash.sources.orc_process import Decoder, row_counts, schema, stripe
from tensorstash.sources.read import BATCH_ROWS, Wanted


def orc_footer(file: File, wanted: Wanted, readers: Readers) -> Footer:
    """The stripes of a file. pyarrow does not tell their row counts: one column of each is decoded."""
    with _decoder(readers) as decoder:
        [stored] = decoder.answers(schema, file)
        [rows] = decoder.answers(row_counts, file, (wanted.among(stored.names) or stored.names)[:1])
    return Footer(file, stored, rows, "stripe", _of_stripe, readers)


def _of_stripe(footer: Footer, index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _decoder(footer.readers) as decoder:
        for written in decoder.answers(stripe, footer.file, index, list(names), BATCH_ROWS):
            yield pa.ipc.open_stream(written).read_next_batch()


def _decoder(readers: Readers) -> AbstractContextManager[Decoder]:
    process = os.getpid()  # a forked child would take the answers to its parent
    return readers.taken(process.__eq__, process, Decoder)
