"""Processes that decode ORC: on some damaged files pyarrow's reader of ORC ends the process that calls it.

Such a process imports this file, which therefore imports neither torch nor polars.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from signal import strsignal
from subprocess import DEVNULL, Popen
from typing import Any
from weakref import finalize

import pyarrow as pa

from tensorstash.sources.file import File

_SERVE = "import sys; sys.path[:] = sys.argv[1:]; from tensorstash.sources.orc_process import serve; serve()"


class Decoder:
    """A process that decodes files. It ends with this object, or with the process that made it."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = Popen(
                [sys.executable, "-c", _SERVE, *sys.path],
                stdin=theirs.fileno(),
                stdout=DEVNULL,  # modules that it imports may print
                stderr=DEVNULL,
                start_new_session=True,  # so that Ctrl-C stops the load alone
            )
        finalize(self, _end, self._process)

    def answers(self, function: Callable[..., Iterator[Any]], file: File, *arguments: Any) -> Iterator[Any]:
        """What the function yields of a file in the process. Raises `pa.ArrowInvalid` if it ends the process."""
        try:
            self._pipe.send((function, file, arguments))
            while not isinstance(answer := self._pipe.recv(), Exception | None):
                yield answer
        except (EOFError, OSError) as error:
            status = self._process.wait()
            why = strsignal(-status) if status < 0 else f"exit status {status}"
            raise pa.ArrowInvalid(f"pyarrow's reader of ORC ended its process ({why})") from error
        if answer is not None:
            raise answer


def _end(process: "Popen[bytes]") -> None:
    process.kill()
    process.wait()


def serve() -> None:
    """Answer requests until there are no more."""
    pipe, opened, reader = Connection(sys.stdin.fileno()), None, None
    with suppress(ConnectionError):
        while True:
            try:
                function, file, arguments = pipe.recv()
                if file != opened:
                    from pyarrow import orc

                    opened, reader = file, orc.ORCFile(file.open())
                for answer in function(reader, *arguments):
                    pipe.send(answer)
                pipe.send(None)
            except Exception as error:  # noqa: PERF203  each request has an answer
                is_plain = isinstance(error, OSError) and error.errno  # others may not be pickled, or say less
                pipe.send(error if is_plain else pa.ArrowInvalid(str(error)))


def schema(reader: Any) -> Iterator[pa.Schema]:
    """The columns of a file."""
    yield reader.schema


def row_counts(reader: Any, names: list[str]) -> Iterator[list[int]]:
    """The row count of each stripe, for which the columns `names` are decoded."""
    rows = [reader.read_stripe(index, names).num_rows for index in range(reader.nstripes)]
    if sum(rows) != reader.nrows:
        raise ValueError(f"its stripes have {sum(rows):,} rows, its footer says {reader.nrows:,}")
    yield rows


def stripe(reader: Any, index: int, names: list[str], rows: int) -> Iterator[pa.Buffer]:
    """The columns `names` of a stripe, in streams of Arrow IPC that hold up to `rows` rows each."""
    whole = reader.read_stripe(index, names)
    whole.validate(full=True)  # nothing else checks the texts
    for start in range(0, whole.num_rows, rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, whole.schema) as stream:
            stream.write_batch(whole.slice(start, rows))
        yield sink.getvalue()
