"""The inside of `native/library.py`: how the compiled kernel is made, found, refused and loaded."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorstash.native import kernel, library
from tests import processes
from tests.native.test_kernel import span_of

ROOT = Path(__file__).parents[2]
SOURCES = Path(library.__file__).parent
native = pytest.mark.skipif(library.LIBRARY is None, reason=library.why())
compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def compiled(folder: Path, target: Path, *options: str) -> str:
    """Compile the C of a folder to a library; what the compiler says comes back."""
    sources = map(str, folder.glob("*.c"))
    command = ["cc", "-std=c11", "-shared", "-fPIC", "-pthread", *options, *sources, "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def why(switch: str) -> str:
    """What a fresh process says with the variable set."""
    program = "from tensorstash.native.library import why; print(why())"
    environment = {**os.environ, "TENSORSTASH_NATIVE": switch}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@native
def test_the_kernel_is_here() -> None:
    assert library.why().startswith("native: ")
    assert library.why().endswith(".so")


def test_the_variable_turns_it_off() -> None:
    assert why("0") == "not native: TENSORSTASH_NATIVE=0 turns it off"


def test_what_cannot_be_used_is_left_alone_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, text = tmp_path / "absent.so", tmp_path / "text.so"
    assert library.load(str(absent)) == (
        None,
        f"not native: it was not compiled when this package was built ({absent} is absent)",
    )
    text.write_text("no library")
    assert library.load(str(text))[0] is None
    assert library.load(str(text))[1].startswith("not native: ")
    monkeypatch.setattr(sys, "byteorder", "big")
    assert library.load(None) == (None, "not native: the kernel is for little-endian machines of 64 bits")


@compiler
def test_another_version_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "other.so", tmp_path / "other"
    shutil.copytree(SOURCES, other)
    header = other / "kernel.h"
    header.write_text(header.read_text().replace(f"VERSION = {library._VERSION}", "VERSION = 0"))
    assert compiled(other, path) == ""
    expected = f"not native: {path} has version 0, this package needs {library._VERSION}; install it again"
    assert library.load(str(path)) == (None, expected)
    unrelated = tmp_path / "unrelated"
    unrelated.mkdir()
    (unrelated / "x.c").write_text("int unrelated(void); int unrelated(void) { return 0; }")
    assert compiled(unrelated, path.with_name("x.so")) == ""
    assert "tensorstash_version" in library.load(str(path.with_name("x.so")))[1]


@compiler
@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_it_compiles_without_a_warning(tmp_path: Path, level: str) -> None:
    flags = ["-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wshadow", "-Wstrict-prototypes", "-Werror"]
    assert compiled(SOURCES, tmp_path / "gather.so", level, *flags) == ""


@native
def test_a_forked_child_gathers() -> None:
    """Nothing in the library has threads or locks that a fork would leave behind."""
    column, out = np.arange(100.0), np.empty((2, 3))
    plan = kernel.compile_plan([span_of(0, 3, 1, 0)], [kernel.Source([column])], 0, 3)
    child = os.fork()
    if not child:
        kernel.gather(plan, np.array([5, 97]), [out.ctypes.data])
        os._exit(0 if out.tolist() == [[5, 6, 7], [97, 98, 99]] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


GATHERS = """
import warnings, tensorstash as ts
from concurrent.futures import ThreadPoolExecutor
windows = ts.Windows(ts.load({"y": [1.0, 2.0, 3.0]}), 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    BODY
print([(one.category.__name__, one.filename, str(one.message)) for one in caught])
"""
HOST = "windows[[0]]; windows[[1]]; [*ts.Loader(windows, 1, prefetch=2)]"


def warned(body: str, switch: str) -> str:
    """The warnings that a fresh process sees while it gathers."""
    environment = {**os.environ, "TENSORSTASH_NATIVE": switch}
    done = processes.run(GATHERS.replace("BODY", body), env=environment, bare=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_without_the_kernel_is_told_once_what_that_costs(tmp_path: Path) -> None:
    """When it first gathers on the host, not when it imports, loads or makes windows: there, a warning is an error."""
    told = warned(HOST, str(tmp_path / "absent.so"))
    assert told.count("('UserWarning', '<string>', ") == 1  # the program, not a line of the package
    for part in (
        "without the compiled kernel",
        "times as long",
        "absent.so",
        "wheel",
        "C compiler",
        "TENSORSTASH_NATIVE=0",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("body", "switch"), [(HOST, "0"), ("[*ts.Loader(windows, 1, resident=True)]", "absent.so")], ids=["off", "resident"]
)
def test_who_turned_it_off_or_does_not_need_it_is_told_nothing(body: str, switch: str, tmp_path: Path) -> None:
    assert warned(body, switch if switch == "0" else str(tmp_path / switch)) == "[]"


@native
def test_with_the_kernel_nothing_is_told() -> None:
    assert warned(HOST, str(SOURCES / "gather.so")) == "[]"
