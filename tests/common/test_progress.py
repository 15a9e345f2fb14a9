"""The bar of a load: where it is shown, and in which units."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios

import pytest

import tensorstash as ts
from tests import processes


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False)])
def test_progress_is_shown_when_asked_for(
    progress: bool | None, shown: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is a terminal here, so `None` shows nothing."""
    ts.load({"t": [2, 1], "y": [1, 2]}, ["y"], time="t", progress=progress)
    out, err = capfd.readouterr()
    assert out == ""
    assert ("100%" in err) == shown
    assert ("2.00/2.00" in err) == shown
    assert (" MB/s" in err) == shown


@pytest.mark.parametrize("progress", [None, False])
def test_a_bar_in_rows_and_megabytes_is_shown_in_a_terminal_unless_it_is_switched_off(progress: bool | None) -> None:
    program = f"import tensorstash as ts; ts.load({{'a': [1.0] * 500_000, 'b': [2] * 500_000}}, progress={progress})"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with subprocess.Popen(
        [processes.executable(), "-c", program], stderr=theirs, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # an error is the end of it
            while piece := terminal.read(1000):
                shown += piece
    assert process.returncode == 0
    if progress is None:
        assert b"100%" in shown
        assert b"500k/500k" in shown
        assert b" rows/s" in shown
        assert b" MB/s" in shown
    else:
        assert shown == b""
