"""`ts.load(..., file=)`: equal to a load into memory, whole or not at all, by one process, in little memory."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import FORMS, Form, check, like, run_python, source_of, write_parquet


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    return one.shape == other.shape and one.dtype == other.dtype and _bits(one) == _bits(other)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@settings(max_examples=60)
@given(data=st.data())
def test_a_file_holds_what_the_oracle_and_a_load_into_memory_hold(data: st.DataObject) -> None:
    form: Form = data.draw(st.sampled_from(FORMS))
    case = data.draw(cases(form))
    with tempfile.TemporaryDirectory() as name:
        (source_directory := Path(name) / "source").mkdir()
        path, source = Path(name) / "x.safetensors", source_of(form, case, source_directory)
        in_memory = case.load(source)
        for stash in (case.load(source, file=path), case.load(source, file=str(path)), ts.open(path)):
            check(stash, case)
            assert str(stash.path) == str(path)
            assert all(same(stash[name], in_memory[name]) for name in in_memory)
            assert stash.about(next(iter(stash))) == in_memory.about(next(iter(stash)))
        assert sorted(os.listdir(name)) == ["source", "x.safetensors"]


def test_static_columns_and_vocabularies_are_in_the_file(tmp_path: Path) -> None:
    data = {"e": ["b", "a", "b"], "t": [2, 1, 1], "word": ["x", "y", "z"], "where": [1.5, 2.5, 1.5]}
    ts.load(data, ["word"], entity="e", time="t", static=["where"], file=tmp_path / "x")
    stash = ts.open(tmp_path / "x")
    assert (stash.static["where"].tolist(), stash.vocabulary("word")) == ([2.5, 1.5], ["x", "y", "z"])
    assert stash["word"].tolist() == [1, 2, 0]


# Which file is opened, which is replaced


def test_the_same_load_opens_the_file_and_does_not_write_it_again(tmp_path: Path) -> None:
    source, path = write_parquet(tmp_path / "y.parquet", [pa.table({"y": [1.0, 2.0]})]), tmp_path / "x.safetensors"
    ts.load(source, file=path)
    before = path.stat()
    tmp_path.chmod(0o500)  # reading is enough
    try:
        assert ts.load(source, file=path)["y"].tolist() == [1.0, 2.0]
        assert ts.load(source, file=path, overwrite=True)["y"].tolist() == [1.0, 2.0]
    finally:
        tmp_path.chmod(0o700)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def refused(path: Path, what: str) -> str:
    return like(f"only if the same load made it; {path} {what} ... overwrite=True")


OTHER = "holds another stash: of another source, of one that has changed, or of other arguments"


def test_a_changed_source_or_other_arguments_are_another_stash(tmp_path: Path) -> None:
    source, path = write_parquet(tmp_path / "y.parquet", [pa.table({"y": [1.0, 2.0]})]), tmp_path / "x.safetensors"
    first = ts.load(source, file=path)
    with pytest.raises(ts.errors.SegmentError, match=refused(path, OTHER)):
        ts.load(source, dtype=torch.float32, file=path)
    write_parquet(source, [pa.table({"y": [3.0, 4.0, 5.0]})])
    with pytest.raises(ts.errors.SegmentError, match=refused(path, OTHER)):
        ts.load(source, file=path)
    assert ts.load(source, file=path, overwrite=True)["y"].tolist() == [3.0, 4.0, 5.0]
    assert first["y"].tolist() == [1.0, 2.0]
    assert ts.load(source, file=path)["y"].tolist() == [3.0, 4.0, 5.0]
    assert sorted(os.listdir(tmp_path)) == ["x.safetensors", "y.parquet"]


def test_a_file_of_another_kind_is_replaced_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a letter to somebody")
    with pytest.raises(ts.errors.SegmentError, match=refused(path, "is not a whole stash that you can read")):
        ts.load({"y": [1.0]}, file=path)
    assert path.read_bytes() == b"a letter to somebody"
    ts.load({"y": [1.0]}).save(path)  # nobody knows what load made it
    with pytest.raises(ts.errors.SegmentError, match=refused(path, OTHER)):
        ts.load({"y": [1.0]}, file=path)
    assert ts.load({"y": [2.0]}, file=path, overwrite=True)["y"].tolist() == [2.0]
    ts.open(path).save(tmp_path / "copy")
    assert ts.load({"y": [2.0]}, file=tmp_path / "copy")["y"].tolist() == [2.0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_files_and_locks_of_other_users_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    before = ts.load({"y": [1.0]}, file=path)
    os.chown(path, 12345, 12345)
    with pytest.raises(ts.errors.SegmentError, match=refused(path, "belongs to user 12345")):
        ts.load({"y": [1.0]}, file=path)
    assert ts.load({"y": [1.0]}, file=path, overwrite=True)["y"].tolist() == before["y"].tolist()
    assert path.stat().st_uid == 0
    path.unlink()
    lock = tmp_path / ".x-0000000000000000.lock"
    lock.write_text(json.dumps({"error": "MemoryError", "message": "run this"}) + "\n")
    os.chown(lock, 12345, 12345)
    with pytest.raises(ts.errors.SegmentError, match=like(f"A lock ... {lock} is not one: it belongs to user 12345")):
        ts.load({"y": [1.0]}, file=path)
    lock.unlink()
    remains = tmp_path / ".x-0000000000000000.tmp.0123456789abcdef"
    remains.write_bytes(b"")
    os.chown(remains, 12345, 12345)
    assert ts.load({"y": [1.0]}, file=path)["y"].tolist() == [1.0]
    assert remains.exists()


def test_a_link_is_followed_and_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    ts.load({"y": [1.0]}, file=tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert ts.open(tmp_path / "target")["y"].tolist() == [1.0]
    os.mkfifo(tmp_path / "pipe")
    message = f"{tmp_path / 'pipe'} exists and is not one"
    for overwrite in (False, True):
        with pytest.raises(ts.errors.SegmentError, match=like(message)):
            ts.load({"y": [1.0]}, file=tmp_path / "pipe", overwrite=overwrite)


def test_the_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    for overwrite in (False, True):
        ts.load({"y": [1.0, float(overwrite)]}, file=tmp_path / "x", overwrite=overwrite)
        (tmp_path / "plain").write_bytes(b"")
        assert (tmp_path / "x").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_helpful_errors(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        (
            {"share": "a", "file": tmp_path / "x"},
            ValueError,
            "A stash is shared memory or a file; got share= and file=. Leave one out.",
        ),
        ({"overwrite": True}, ValueError, "overwrite= replaces the file of file=, so it needs file=. Leave it out."),
        ({"file": 3}, TypeError, "file must be a str or pathlib.Path, got 3."),
        ({"file": ""}, ValueError, "file must be a path that is not empty and has no null character, got ''."),
        (
            {"file": "a\0b"},
            ValueError,
            r"file must be a path that is not empty and has no null character, got 'a\x00b'.",
        ),
        (
            {"file": tmp_path / "no" / "x"},
            ts.errors.SegmentError,
            f"A stash is written to a file in an existing directory; {tmp_path / 'no'} cannot be opened: No such file "
            "or directory. Create it, or choose another path.",
        ),
        (
            {"file": tmp_path / ("x" * 255)},
            ts.errors.SegmentError,
            "A stash is written to a directory that you can write to; no file can be created or removed in "
            f"{tmp_path}: File name too long. Choose another path.",
        ),
    ]
    for arguments, kind, message in cases:
        with pytest.raises(kind, match=like(message)):
            ts.load({"y": [1.0]}, **arguments)
    assert os.listdir(tmp_path) == []


def test_a_failed_load_leaves_nothing_and_an_older_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x"
    ts.load({"y": [1.0]}, file=path)
    message = "A time occurs once in each entity"
    with pytest.raises(ts.errors.DataError, match=message):
        ts.load({"t": [1, 1], "y": [1.0, 2.0]}, ["y"], time="t", file=path, overwrite=True)
    assert os.listdir(tmp_path) == ["x"]
    assert ts.open(path)["y"].tolist() == [1.0]


# On disk before it has its name

WATCHED = """
import os, stat, sys
import tensorstash as ts
if "notmpfile" in sys.argv:
    del os.O_TMPFILE
calls = []

def watch(name):
    real = getattr(os, name)
    def called(*arguments, **options):
        directory = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
        calls.append("directory" if directory else "file" if name == "fsync" else name)
        return real(*arguments, **options)
    setattr(os, name, called)

for name in ("fsync", "replace", "link"):
    watch(name)
for value in (1.0, 2.0):
    ts.load({"y": [value]}, file=sys.argv[1], overwrite=True)
    assert ts.open(sys.argv[1])["y"].tolist() == [value]
    print(*calls)
    calls.clear()
"""


@pytest.mark.parametrize("changes", [[], ["notmpfile"]], ids=["nameless", "named"])
def test_the_bytes_are_on_disk_before_the_name_is(changes: list[str], tmp_path: Path) -> None:
    first, second = run_python(WATCHED, tmp_path / "x", *changes).splitlines()
    assert first == "file link directory"
    assert second.split()[0] == "file"
    assert second.split()[-2:] == ["replace", "directory"]
    assert os.listdir(tmp_path) == ["x"]


def test_a_stash_never_replaces_a_file_of_its_source(tmp_path: Path) -> None:
    """Whatever names the file: a link, or a glob with other files."""
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in paths:
        write_parquet(path, [pa.table({"y": [1.0]})])
    (tmp_path / "link").symlink_to(paths[0])
    before = [path.read_bytes() for path in paths]
    for source, file in ((paths[0], paths[0]), (tmp_path / "*.parquet", paths[1]), (paths[0], tmp_path / "link")):
        for overwrite in (False, True):
            with pytest.raises(ValueError, match=like("is a file of the source. Choose another path.")):
                ts.load(source, ["y"], file=file, overwrite=overwrite)
    assert [path.read_bytes() for path in paths] == before
