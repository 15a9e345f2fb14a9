"""Processes that decode ORC: on some damaged files pyarrow's reader of ORC ends the process that calls it.

Such a process imports this file, which therefore imports neither torch nor polars.
"""

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from signal import strsignal
from subprocess import DEVNULL, PIPE, Popen
from typing import Any
from weakref import finalize

import pyarrow as pa

from tensorstash.sources.file import File
from tensorstash.sources.footers import Readers

_SERVE = "import sys; sys.path[:] = sys.argv[1:]; from tensorstash.sources.orc_process import serve; serve()"


class Decoder:
    """A process that decodes files. It ends with this object, or with the process that made it."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _SERVE, *sys.path]
        # in a session of its own, so that Ctrl-C stops the load alone
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
        finalize(self, _end, self._process)

    def answers(self, function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
        """What the function yields in the process. Raises `pa.ArrowInvalid` if it ends the process."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            pickle.dump((function, arguments), requests)
            requests.flush()
            while (answer := pickle.load(answers)) is not None:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            status = self._process.wait()
            why = strsignal(-status) if status < 0 else f"exit status {status}"
            raise pa.ArrowInvalid(f"pyarrow's reader of ORC ended its process ({why})") from error


def _end(process: "Popen[bytes]") -> None:
    with suppress(BrokenPipeError), process:
        process.kill()


_opened = Readers()  # of the decoding process


def serve() -> None:
    """Answer requests until there are no more."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):
        while True:
            function, arguments = pickle.load(requests)
            try:
                for answer in function(*arguments):
                    pickle.dump(answer, answers)
                pickle.dump(None, answers)
            except Exception as error:
                is_plain = isinstance(error, OSError) and error.errno  # others may not be pickled, or say less
                pickle.dump(error if is_plain else pa.ArrowInvalid(str(error)), answers)
            answers.flush()


def schema(file: File) -> Iterator[pa.Schema]:
    """The columns of a file."""
    with _opened.taken(file.__eq__, file, lambda: _reader(file)) as reader:
        yield reader.schema


def row_counts(file: File, names: list[str]) -> Iterator[list[int]]:
    """The row count of each stripe, for which the columns `names` are decoded."""
    with _opened.taken(file.__eq__, file, lambda: _reader(file)) as reader:
        rows = [reader.read_stripe(index, names).num_rows for index in range(reader.nstripes)]
        if sum(rows) != reader.nrows:
            raise ValueError(f"its stripes have {sum(rows):,} rows, its footer says {reader.nrows:,}")
        yield rows


def stripe(file: File, index: int, names: list[str], rows: int) -> Iterator[pa.Buffer]:
    """The columns `names` of a stripe, in streams of Arrow IPC that hold up to `rows` rows each."""
    with _opened.taken(file.__eq__, file, lambda: _reader(file)) as reader:
        whole = reader.read_stripe(index, names)
    whole.validate(full=True)  # nothing else checks the texts
    for start in range(0, whole.num_rows, rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, whole.schema) as stream:
            stream.write_batch(whole.slice(start, rows))
        yield sink.getvalue()


def _reader(file: File) -> Any:
    from pyarrow import orc

    return orc.ORCFile(file.open())
