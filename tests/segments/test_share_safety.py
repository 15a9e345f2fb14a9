"""Nobody else, nothing half-made, no surprise: directories and files of others, full memory, damaged headers, forks."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tensorstash as ts
from tensorstash.segments.directory import shared_path
from tensorstash.segments.limits import Limit, check_free, memory_limits
from tests import processes
from tests.oracle_load import like, run_python
from tests.spaces import mounting

OTHER = 12345  # a user that need not exist


def small() -> ts.Stash:
    return ts.load({"y": [1.0, 2.0, 3.0], "s": ["a", None, "b"]}, share="small")


def refused(path: Path, why: str, first: str = "S", sign: str = "/") -> str:
    return like(f"{path} is not one: {why} ... {first}et TENSORSTASH_DIR ... {path}{sign}{os.geteuid()}:")


# The directory


def test_the_directory_and_its_files_are_for_their_owner_alone(shm: Path) -> None:
    path = Path(str(small().path))
    assert path.parent == shm
    assert shm.stat().st_mode & 0o7777 == 0o700
    assert path.stat().st_mode & 0o7777 == 0o400
    assert path.stat().st_uid == shm.stat().st_uid == os.geteuid()


def test_where_the_directory_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TENSORSTASH_DIR", raising=False)
    assert shared_path() == f"/dev/shm/tensorstash-{os.geteuid()}"
    monkeypatch.setenv("TENSORSTASH_DIR", "sub/here")
    monkeypatch.chdir(tmp_path)
    assert shared_path() == str(tmp_path / "sub" / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TENSORSTASH_DIR", "~/ts")
    assert shared_path() == str(tmp_path / "home" / "ts")
    monkeypatch.setenv("TENSORSTASH_DIR", "sub/here")
    stash = small()
    assert Path(str(stash.path)).parent == tmp_path / "sub" / "here"
    assert ts.attach("small")["y"].tolist() == stash["y"].tolist()


def test_a_directory_that_others_may_use_is_refused(shm: Path) -> None:
    for mode in (0o755, 0o770, 0o701, 0o500, 0o600, 0o300):
        shm.mkdir(mode=0o700)
        shm.chmod(mode)
        with pytest.raises(
            ts.errors.SegmentError, match=refused(shm, f"its mode is {mode:o}", f"Run chmod 700 {shm}, or s")
        ):
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


@pytest.mark.parametrize("changes", ["", "del os.O_TMPFILE"], ids=["nameless", "named"])
def test_a_directory_that_vanishes_during_a_load(changes: str, shm: Path) -> None:
    program = f"""
import os, shutil
{changes}
import tensorstash as ts
from tensorstash.segments.directory import Name
from tensorstash.segments.draft import write
from tensorstash.segments.publish import obtain

whole = ts.load({{"y": [1.0, 2.0]}}).segment

def build(target, report):
    for begin, chunk in whole.chunks():
        write(target.fd, memoryview(chunk), begin)
    shutil.rmtree(os.environ["TENSORSTASH_DIR"])

print(ts.Stash(obtain(Name("gone", "0" * 16), build, None))["y"].tolist())
print([len(name) for name in os.listdir(os.environ["TENSORSTASH_DIR"])] if not {bool(changes)} else "")
"""
    assert run_python(program).splitlines()[0] == "[1.0, 2.0]"
    if not changes:
        assert ts.attach("gone")["y"].tolist() == [1.0, 2.0]


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
        assert ts.shared.prune(max_bytes=0) == []
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


def test_what_is_no_regular_file_is_never_removed(shm: Path) -> None:
    path = Path(str(small().path))
    path.unlink()
    for suffix in ("", ".lock", f".tmp.{'1' * 16}"):
        for make in (os.mkfifo, os.mkdir):
            odd = Path(f"{path}{suffix}")
            make(odd)
            assert ts.shared.remove("small") == ts.shared.prune() == ts.shared.prune(older_than="0s", max_bytes=0) == []
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
        r"A stash is allocated as a whole; 8 MB cannot be: \[Errno 27\] File too large\. Load fewer columns, or "
        r"a narrower dtype\.\n\[\]"
    )
    for arguments in ([], ["named"]):
        assert re.fullmatch(message, run_python(program, *arguments))


FILLS_UP = """
import os, sys
import numpy as np
import tensorstash as ts
from tensorstash.segments import limits, publish
room = limits.Limit(1 << 40, "in RAM", "")  # another process takes the memory after it was looked at
publish.directory_limit = publish.disk_limit = lambda fd, path: room
directory, how, order = os.environ["TENSORSTASH_DIR"], sys.argv[1], sys.argv[2]
if "named" in sys.argv:
    del os.O_TMPFILE
free = os.statvfs(directory).f_bfree
rows = 2_500_000
times = np.arange(rows)[:: -1 if order == "reversed" else 1]
asked = {"share": "full"} if how == "share" else {"file": directory + "/full.safetensors"}
try:
    ts.load({"t": times, "y": np.zeros(rows)}, ["y"], time="t", progress=False, **asked)
except ts.errors.NoMemoryError as error:
    print(error)
print(os.listdir(directory), free - os.statvfs(directory).f_bfree)
print(ts.load({"y": np.ones(1_250_000)}, **(asked | {"timeout": 600}))["y"].sum().item())
"""


@pytest.mark.parametrize("how", ["share", "file"])
@pytest.mark.parametrize("order", ["in order", "reversed"])
@pytest.mark.parametrize("named", ["", "named"])
def test_a_file_system_that_fills_up_during_a_load_is_an_error_that_leaves_nothing(
    how: str, order: str, named: str, shm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows in order are written piece by piece; others through a mapping, which would kill the process."""
    size = "33m" if order == "reversed" else "16m"  # room for the times, which are written first, but not for `y`
    if not mounting(shm, size, capsys):
        pytest.skip("mounting a tmpfs is not allowed here")
    done = processes.run(FILLS_UP, how, order, named, mount=(shm, size))
    assert done.returncode == 0, done.stderr
    message, left, later = done.stdout.splitlines()
    allocated = r"A stash is allocated as a whole; \d+ MB cannot be: \[Errno 28\] No space left on device\. "
    written = r"A stash needs room for all its bytes; writing them failed: No space left on device\. Make room, or "
    if order == "reversed" or how == "file":
        assert re.fullmatch(allocated + r"Load fewer columns, or a narrower dtype\.", message)
    else:
        assert re.fullmatch(written + r"load fewer columns\.", message)
    assert left == "[] 0"
    assert later == "1250000.0"


def write_tree(root: Path, cgroup: str, files: dict[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


STAT1 = "cache 7\ninactive_file 1\nactive_file 2\ntotal_inactive_file 10\ntotal_active_file 20"
STAT2 = "anon 5\ninactive_file 3\nactive_file 4"
TREES: dict[str, tuple[str, dict[str, str], list[tuple[int, str]]]] = {
    "version 2": (
        "0::/a/b\n",
        {
            "a/b/memory.max": "1000",
            "a/b/memory.current": "400",
            "a/b/memory.stat": STAT2,
            "a/memory.max": "max",
            "a/memory.current": "500",
            "a/memory.stat": STAT2,
        },
        [(607, "/a/b")],
    ),
    "version 2, the parent is tighter": (
        "0::/a/b\n",
        {
            "a/b/memory.max": "1000",
            "a/b/memory.current": "400",
            "a/b/memory.stat": STAT2,
            "a/memory.max": "500",
            "a/memory.current": "450",
            "a/memory.stat": STAT2,
        },
        [(57, "/a"), (607, "/a/b")],
    ),
    "version 1": (
        "4:cpu,memory:/job\n2:cpuset:/\n0::/\n",
        {
            "memory/job/memory.limit_in_bytes": "1000",
            "memory/job/memory.usage_in_bytes": "900",
            "memory/job/memory.stat": STAT1,
            "memory/memory.limit_in_bytes": "5000",
            "memory/memory.usage_in_bytes": "1000",
            "memory/memory.stat": STAT1,
        },
        [(130, "/job"), (4030, "/")],
    ),
    "a container, whose cgroup is the root of what it sees": (
        "0::/docker/0123\n",
        {"memory.max": "100", "memory.current": "150", "memory.stat": STAT2},
        [(0, "/")],
    ),
    "both, version 2 beside version 1": (
        "4:memory:/\n0::/x\n",
        {"unified/x/memory.max": "10", "unified/x/memory.current": "0", "unified/x/memory.stat": "anon 1"},
        [(10, "/x")],
    ),
    "no numbers": ("0::/\n", {"memory.max": "many", "memory.current": "0", "memory.stat": STAT2}, []),
    "nothing": ("", {}, []),
}


@pytest.mark.parametrize("tree", TREES)
def test_the_limits_of_memory_cgroups(tree: str, tmp_path: Path) -> None:
    cgroup, files, expected = TREES[tree]
    write_tree(tmp_path, cgroup, files)
    ram, *limits = memory_limits(str(tmp_path))
    assert ram.where == "in RAM"
    assert sorted((limit.free, limit.where) for limit in limits) == [
        (free, f"in the memory cgroup {group}") for free, group in expected
    ]


def test_a_limit_is_named_with_its_remedy(tmp_path: Path) -> None:
    write_tree(tmp_path, *TREES["version 2"][:2])
    message = "who needs 1 MB and 607 bytes are free in the memory cgroup /a/b"
    with pytest.raises(ts.errors.NoMemoryError, match=like(message)):
        check_free(1_000_000, memory_limits(str(tmp_path)), "Rule", "who", "Remedy.")
    check_free(607, memory_limits(str(tmp_path)), "Rule", "who", "Remedy.")
    with pytest.raises(ts.errors.NoMemoryError, match=like("who needs 8.2 kB and 4.1 kB are free in RAM")):
        check_free(8192, [Limit(4096, "in RAM", "")], "Rule", "who", "Remedy.")


# Damage


def damage(luck: random.Random, header: bytes) -> bytes:
    """A header with something else in one to three places: bits, bytes, numbers, pieces of JSON."""
    data = bytearray(header)
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(len(data))
        kind = luck.randrange(5)
        if kind == 0:
            data[at] ^= 1 << luck.randrange(8)
        elif kind == 1:
            data[at : at + luck.randrange(8)] = luck.randbytes(luck.randrange(8))
        elif kind == 2:
            pieces: Sequence[bytes] = [
                b"null",
                b"-1",
                b"1e999",
                b"[]",
                b"{}",
                b'"',
                b"\\",
                b"9" * 30,
                b"true",
                b"]",
                b"}",
            ]
            data[at:at] = luck.choice(pieces)
        elif kind == 3 and (numbers := list(re.finditer(rb"\d+", data))):
            number = luck.choice(numbers)
            data[number.start() : number.end()] = str(luck.choice([0, 1, 4096, 2**31, 2**63, 2**64])).encode()
        else:
            begin = luck.randrange(len(data))
            data[at:at] = data[begin : begin + luck.randrange(40)]
    return bytes(data)


def test_no_header_crashes_whoever_attaches_it(shm: Path, pytestconfig: pytest.Config) -> None:
    """Half of them get a right checksum: they come from somebody who knows the format and means harm."""
    whole_file = Path(str(small().path)).read_bytes()
    begin = 8 + int.from_bytes(whole_file[:8], "little")
    header = whole_file[8:begin].rstrip()
    crc = re.search(rb'tensorstash.crc":"([0-9a-f]{8})"', header)
    assert crc is not None
    ts.shared.remove("small")
    path = shm / f"fuzz-{'0' * 16}"
    luck, attached = random.Random(0), 0
    for _ in range(pytestconfig.getoption("mutations")):
        text = damage(luck, header.replace(crc[1], b"0" * 8))
        if luck.random() < 0.5:
            text = text.replace(b"0" * 8, f"{zlib.crc32(text):08x}".encode(), 1)
        size = luck.choice([begin - 8] * 20 + [0, 1, len(text), 2**63, 2**64 - 1, len(whole_file)])
        path.write_bytes(size.to_bytes(8, "little") + text.ljust(begin - 8)[: begin - 8] + whole_file[begin:])
        try:
            attached += len(ts.attach("fuzz", strict=luck.random() < 0.1)) == 2
        except ts.errors.SegmentError:
            continue
    assert 0 < attached < pytestconfig.getoption("mutations") // 2


# Forks


def test_a_child_of_a_killed_loader_holds_neither_lock_nor_memory(shm: Path) -> None:
    """It inherits the descriptors, and with them the lock, unless something is done about it."""
    program = """
import os, signal, time, tensorstash as ts
from tensorstash.segments.directory import Name
from tensorstash.segments.draft import write
from tensorstash.segments.publish import obtain

name, (here, there) = Name("forked", "0" * 16), os.pipe()

def stuck(target, report):
    os.posix_fallocate(target.fd, 0, 1 << 20)
    if not os.fork():
        held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and fd != "x"
                and os.path.exists(f"/proc/self/fd/{fd}")]
        count = sum(link.startswith(os.environ["TENSORSTASH_DIR"] + "/") for link in held)
        os.write(there, f"{os.getpid()} {count}".encode())
        time.sleep(100)
        os._exit(0)
    time.sleep(100)

loader = os.fork()
if not loader:
    obtain(name, stuck, None)
child, count = map(int, os.read(here, 100).split())
os.kill(loader, signal.SIGKILL)
os.waitpid(loader, 0)
whole = ts.load({"y": [1.0, 2.0]}).segment

def build(target, report):
    for begin, chunk in whole.chunks():
        write(target.fd, memoryview(chunk), begin)

print(count, ts.Stash(obtain(name, build, 20.0))["y"].tolist())
os.kill(child, signal.SIGKILL)
"""
    assert run_python(program) == "0 [1.0, 2.0]"


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
