"""Shared segments among other users and files, in little memory, and after users that were killed."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensorstash as ts
from tests import processes
from tests.command_line import run
from tests.oracle_load import like, run_python
from tests.spaces import mounting

OTHER = 12345  # a user that need not exist


def small() -> ts.Stash:
    return ts.load({"y": [1.0, 2.0, 3.0], "s": ["a", None, "b"]}, share="small")


def refused(path: Path, why: str, sign: str = "/") -> str:
    return like(f"{path} is not one: {why} ... Set TENSORSTASH_DIR ... {path}{sign}{os.geteuid()}:")


# The directory


def test_the_directory_and_its_files_are_for_their_owner_alone(shm: Path) -> None:
    path = Path(str(small().path))
    assert path.parent == shm
    assert shm.stat().st_mode & 0o7777 == 0o700
    assert path.stat().st_mode & 0o7777 == 0o400
    assert path.stat().st_uid == shm.stat().st_uid == os.geteuid()


def directory() -> str:
    """Where the command line says that segments lie."""
    (line,) = (line for line in run("info").splitlines() if line.startswith("shared "))
    return line.split("segments lie in ")[1]


def test_where_the_directory_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TENSORSTASH_DIR", raising=False)
    assert directory() == f"/dev/shm/tensorstash-{os.geteuid()}"
    monkeypatch.setenv("TENSORSTASH_DIR", "sub/here")
    monkeypatch.chdir(tmp_path)
    assert directory() == str(tmp_path / "sub" / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TENSORSTASH_DIR", "~/ts")
    assert directory() == str(tmp_path / "home" / "ts")
    monkeypatch.setenv("TENSORSTASH_DIR", "sub/here")
    stash = small()
    assert Path(str(stash.path)).parent == tmp_path / "sub" / "here"
    assert ts.attach("small")["y"].tolist() == stash["y"].tolist()


def test_a_directory_that_others_may_use_is_refused(shm: Path) -> None:
    for mode in (0o755, 0o770, 0o701, 0o500, 0o600, 0o300):
        shm.mkdir(mode=0o700)
        shm.chmod(mode)
        why = f"its mode is {mode:o}, which chmod 700 {shm} mends"
        with pytest.raises(ts.errors.SegmentError, match=refused(shm, why)):
            small()
        assert os.listdir(shm) == []
        shm.rmdir()


def test_a_link_or_a_file_in_the_place_of_the_directory_is_refused(shm: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    shm.symlink_to(tmp_path / "target")
    why = "it is a link, not a directory, or closed to you"
    with pytest.raises(ts.errors.SegmentError, match=refused(shm, why)):
        small()
    assert os.listdir(tmp_path / "target") == []
    shm.unlink()
    shm.write_text("")
    with pytest.raises(ts.errors.SegmentError, match=refused(shm, why, sign="-")):
        small()
    shm.unlink()


def test_a_directory_that_cannot_be_made_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENSORSTASH_DIR", str(tmp_path / "file" / "here"))
    message = (
        rf"\AShared segments need a directory; {tmp_path}/file/here cannot be created: .*\. Set TENSORSTASH_DIR to "
    )
    with pytest.raises(ts.errors.SegmentError, match=message):
        small()


def test_a_directory_that_vanishes_is_made_anew(shm: Path) -> None:
    """As a system does that removes the files of users who log out; who holds data keeps them."""
    stash = small()
    shutil.rmtree(shm)
    assert stash["y"].tolist() == [1.0, 2.0, 3.0]
    again = small()
    assert again["y"].tolist() == [1.0, 2.0, 3.0]
    assert os.path.samefile(str(again.path), str(ts.attach("small").path))


# Files of others in it


def test_what_is_no_file_of_ours_is_never_followed(shm: Path, tmp_path: Path) -> None:
    """A link, also one into nowhere, a pipe, which would block for ever, and a directory."""
    path = Path(str(small().path))
    (tmp_path / "target").write_bytes(path.read_bytes())
    for target in (tmp_path / "target", tmp_path / "nowhere", Path("/etc/passwd")):
        path.unlink()
        path.symlink_to(target)
        with pytest.raises(ts.errors.SegmentError, match=foreign(path, "it is a link")):
            small()
        with pytest.raises(ts.errors.SegmentError, match=foreign(path, "it is a link")):
            ts.attach("small")
    assert not (tmp_path / "nowhere").exists()
    path.unlink()
    for make in (os.mkfifo, os.mkdir):
        make(path)
        with pytest.raises(ts.errors.SegmentError, match=foreign(path, "it is not a regular file")):
            small()
        assert ts.shared.list()["rows"].to_list() == [None]
        path.unlink() if path.is_fifo() else path.rmdir()
    lock = Path(f"{path}.lock")
    os.mkfifo(lock)
    with pytest.raises(ts.errors.SegmentError, match=foreign(lock, "it is not a regular file", "A lock")):
        small()
    lock.unlink()


def test_a_link_is_removed_itself_and_never_what_it_points_to(shm: Path, tmp_path: Path) -> None:
    """Whatever the list shows can be removed; locks and temporary files that are links go too."""
    path = Path(str(small().path))
    (tmp_path / "target").write_bytes(path.read_bytes())
    (tmp_path / "target").chmod(0o600)
    path.unlink()
    ways: list[Callable[[], list[str]]] = [
        lambda: ts.shared.remove("small"),
        lambda: ts.shared.prune(max_bytes=0),
        lambda: ts.shared.prune(older_than="0s"),
    ]
    for way in ways:
        for target in (tmp_path / "target", tmp_path / "nowhere", tmp_path):
            for suffix in ("", ".lock", f".tmp.{'1' * 16}"):
                Path(f"{path}{suffix}").symlink_to(target)
            listed = ts.shared.list()
            assert (listed["label"].to_list(), listed["rows"].to_list()) == (["small"], [None])
            assert way() == [path.name]
            assert not [*shm.iterdir()]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "target"]
    assert len(small()["y"]) == 3
    path.with_name("other-0123456789abcdef").symlink_to(path)  # a link in the directory to a segment in it
    assert ts.shared.remove("other") == ["other-0123456789abcdef"]
    assert ts.attach("small")["y"].tolist() == [1.0, 2.0, 3.0]


def test_what_is_no_regular_file_is_never_removed(shm: Path) -> None:
    path = Path(str(small().path))
    path.unlink()
    for suffix in ("", ".lock", f".tmp.{'1' * 16}"):
        for make in (os.mkfifo, os.mkdir):
            odd = Path(f"{path}{suffix}")
            make(odd)
            assert ts.shared.prune() == ts.shared.prune(older_than="0s", max_bytes=0) == []
            if suffix:
                assert ts.shared.remove("small") == []
            else:
                with pytest.raises(ts.errors.SegmentError, match=foreign(odd, "it is a directory, a pipe or a device")):
                    ts.shared.remove("small")
            odd.unlink() if odd.is_fifo() else odd.rmdir()


def foreign(path: Path, why: str, kind: str = "A segment") -> str:
    return like(f"{kind} is a ... {path} ... {why}")


def test_a_lock_that_is_a_link_or_a_directory_is_named(shm: Path) -> None:
    path = Path(str(small().path))
    path.unlink()
    lock = Path(f"{path}.lock")
    lock.symlink_to(path)
    with pytest.raises(ts.errors.SegmentError, match=foreign(lock, "it is a link", "A lock")):
        small()
    lock.unlink()
    lock.mkdir()
    with pytest.raises(ts.errors.SegmentError, match=foreign(lock, "it is a directory", "A lock")):
        small()
    lock.rmdir()
    assert small()["y"].tolist() == [1.0, 2.0, 3.0]


UNREADABLE = """
import os, sys, tensorstash as ts
closed, other = ts.load({"y": [1.0]}, share="closed"), ts.load({"y": [2.0]}, share="open")
os.chmod(closed.path, 0)
print(ts.shared.list().select("label", "rows").rows())
for attempt in (lambda: ts.attach("closed"), lambda: ts.load({"y": [1.0]}, share="closed")):
    try:
        attempt()
    except ts.errors.SegmentError as error:
        print(str(error).replace(closed.path, "PATH"))
print(ts.shared.prune(max_bytes=0), len(ts.shared.remove("closed")), ts.attach("open")["y"].tolist())
"""


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root can read any file, and setpriv is missing"
)
def test_a_segment_that_cannot_be_read_is_listed_and_named(shm: Path) -> None:
    powers = "-dac_override,-dac_read_search"
    command = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"] if os.geteuid() == 0 else []
    command += [sys.executable, "-W", "error", "-c", UNREADABLE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    message = (
        "A segment is a regular file that tensorstash made and you can read; PATH is not one: it is closed to you. "
        "Remove it."
    )
    expected = ["[('closed', None), ('open', 1)]", message, message, "[] 1 [2.0]"]
    assert done.stdout.splitlines() == expected


FULL_OF_FILES = """
import os, sys, tensorstash as ts
if "notmpfile" in sys.argv:
    del os.O_TMPFILE
directory = os.environ["TENSORSTASH_DIR"]
stash = ts.load({"y": [1.0]}, share="first")
if "readonly" in sys.argv:
    os.system(f"mount -o remount,ro {directory}")
else:
    for k in range(1000):
        try:
            open(f"{directory}/{k}", "x").close()
        except OSError:
            break
for attempt in (
    lambda: ts.load({"y": [2.0]}, share="second"), lambda: stash.share("second"), lambda: ts.shared.remove("first")
):
    try:
        print(attempt())
    except ts.errors.SegmentError as error:
        print(str(error).replace(directory, "DIR"))
print(stash["y"].tolist(), len(ts.shared.list()))
"""


@pytest.mark.parametrize("changes", [["readonly"], ["full"], ["readonly", "notmpfile"]], ids=" ".join)
def test_a_file_system_without_room_for_a_file_is_named(
    changes: list[str], shm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not mounting(shm, "64m", capsys):
        pytest.skip("mounting a tmpfs is not allowed here")
    done = processes.run(FULL_OF_FILES, *changes, mount=(shm, "64m,nr_inodes=20"))
    assert done.returncode == 0, done.stderr
    loaded, shared, removed, rest = done.stdout.splitlines()
    why = "Read-only file system" if "readonly" in changes else "No space left on device"
    message = (
        f"Shared segments are files; none can be created or removed in DIR: {why}. Make room there (ts.shared.list() "
        "shows what it holds), or set TENSORSTASH_DIR to a directory that you can write to."
    )
    assert loaded == shared == message
    if "readonly" in changes:
        assert (removed, rest) == (message, "[1.0] 1")
    else:
        assert removed.startswith("['first-")


def as_other(*command: object) -> subprocess.CompletedProcess[str]:
    user = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
    return subprocess.run([*user, *map(str, command)], capture_output=True, text=True, check=False, timeout=600)


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can act as another user, with setpriv"
)


@needs_root
def test_another_user_can_neither_look_nor_touch(shm: Path) -> None:
    path = Path(str(small().path))
    for command in (
        ["ls", shm],
        ["cat", path],
        ["rm", "-f", path],
        ["mv", path, "/dev/shm/taken"],
        ["mv", shm, f"{shm}-taken"],
        ["ln", "-s", "/etc/passwd", shm / "small-0123456789abcdef"],
        ["rmdir", shm],
    ):
        assert as_other(*command).returncode != 0, command
    assert os.listdir(shm) == [path.name]
    assert ts.attach("small")["y"].tolist() == [1.0, 2.0, 3.0]


@needs_root
def test_a_place_that_another_user_has_taken_is_refused(shm: Path) -> None:
    assert as_other("mkdir", "-m", "700", shm).returncode == 0
    why = f"it belongs to user {OTHER}, and you are user {os.geteuid()}"
    with pytest.raises(ts.errors.SegmentError, match=refused(shm, why)):
        small()
    shm.rmdir()
    assert as_other("ln", "-s", "/etc", shm).returncode == 0
    with pytest.raises(ts.errors.SegmentError, match=refused(shm, "it is a link, not a directory, or closed to you")):
        ts.shared.list()
    shm.unlink()


@needs_root
def test_a_file_of_another_user_is_refused(shm: Path) -> None:
    path = Path(str(small().path))
    os.chown(path, OTHER, OTHER)
    with pytest.raises(ts.errors.SegmentError, match=foreign(path, f"it belongs to user {OTHER}")):
        small()


# Memory


FULL = """
import json, os, sys
if "notmpfile" in sys.argv:
    del os.O_TMPFILE
import numpy as np, tensorstash as ts
directory = os.environ["TENSORSTASH_DIR"]
free = os.statvfs(directory).f_bfree
private = ts.load({"y": np.zeros(10_000_000)})  # 80 MB
errors = []
for share in (lambda: ts.load({"y": np.zeros(10_000_000)}, share="full"), lambda: private.share("full")):
    try:
        share()
    except ts.errors.NoMemoryError as error:
        errors.append(str(error))
print(json.dumps([errors, os.listdir(directory), free - os.statvfs(directory).f_bfree]))
print(ts.load({"y": np.ones(5_000_000)}, share="fits")["y"].sum().item())
"""


@pytest.mark.parametrize("changes", [[], ["notmpfile"]], ids=["nameless", "named"])
def test_a_small_file_system_is_refused_with_the_remedies(
    changes: list[str], shm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a container, where /dev/shm has 64 MB unless it is told otherwise."""
    if not mounting(shm, "64m", capsys):
        pytest.skip("mounting a tmpfs is not allowed here")
    done = processes.run(FULL, *changes, mount=(shm, "64m"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    (loaded, shared), left, lost = json.loads(first)
    grow = (
        r"Make it larger \(docker run --shm-size=\.\.\., in Kubernetes a volume `emptyDir: {medium: Memory}` mounted "
        r"on /dev/shm\), or set TENSORSTASH_DIR to a directory with more room\."
    )
    need = rf"80 MB and 67 MB are free in {shm}\. {grow}"
    assert re.fullmatch(
        rf"A stash must fit into free memory; the mapping needs {need} Load fewer columns, or a narrower dtype; "
        r"print\(ts\.plan\(\.\.\.\)\) shows what each costs\.",
        loaded,
    )
    assert re.fullmatch(
        rf"A stash must fit into free memory; a copy of it for share\('full'\) needs {need} Remove what nobody needs: "
        r"ts\.shared\.list\(\), ts\.shared\.remove\(label\), ts\.shared\.prune\(\.\.\.\)\.",
        shared,
    )
    assert (left, lost) == ([], 0)
    assert second == "5000000.0"


def test_an_allocation_that_fails_leaves_nothing(shm: Path) -> None:
    """A limit on the size of files stands in for memory that others have taken since it was looked at."""
    program = """
import os, resource, sys, numpy as np
if len(sys.argv) > 1:
    del os.O_TMPFILE
import tensorstash as ts
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    ts.load({"y": np.zeros(1_000_000)}, share="x")
except ts.errors.NoMemoryError as error:
    print(error)
print(os.listdir(os.environ["TENSORSTASH_DIR"]))
"""
    message = (
        r"A stash needs room for all its bytes; 8 MB cannot be written: File too large\. Make room, or load fewer "
        r"columns or a narrower dtype\.\n\[\]"
    )
    for arguments in ([], ["named"]):
        assert re.fullmatch(message, run_python(program, *arguments))


# Users that were killed


def test_a_killed_user_no_longer_counts(shm: Path) -> None:
    """Nor does a child that was handed the stash, when it ends."""
    program = """
import os, signal, tensorstash as ts
pid = os.fork()
if not pid:
    stash = ts.attach("used")
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(pid, 0)
print(ts.shared.list()["users"].to_list(), ts.shared.prune(max_bytes=0))
"""
    name = os.path.basename(str(ts.load({"y": np.zeros(3)}, share="used").path))
    assert run_python(program) == f"[0] ['{name}']"
