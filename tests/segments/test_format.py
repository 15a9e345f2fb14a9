"""The file of a stash: what it holds, its layout, and that others can read it."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings

import tensorstash as ts
from tests.cases_load import cases
from tests.oracle_load import KINDS, Case, Held, check, exact, value
from tests.segments.files import PAGE, header_of, umask


def loaded(case: Case) -> ts.Stash:
    return case.load(pa.concat_tables(case.pieces()))


def one_of_each(rows: int = 5) -> ts.Stash:
    """A stash with a column of every kind."""
    columns = {kind.name: Held(kind, [value(kind, k, row) for row in range(rows)]) for k, kind in enumerate(KINDS)}
    return loaded(Case(columns, None, None, [0, rows]))


@settings(max_examples=60)
@given(case=cases("table"))
def test_a_saved_stash_holds_what_the_rows_say(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("saved") / "stash.safetensors"
    stash = loaded(case)
    stash.save(path)
    opened = ts.open(path)
    check(opened, case)
    assert repr(opened) == repr(stash)
    again = path.with_suffix(".again")
    opened.save(again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("rows", [0, 1, 1500])
def test_safetensors_reads_every_column(rows: int, tmp_path: Path) -> None:
    stash = one_of_each(rows)
    path = tmp_path / "stash.safetensors"
    stash.save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata()["tensorstash.version"] == "1"
        names = [name for name in file.keys() if not name.startswith("__pad.")]  # noqa: SIM118  it is no dict
        assert set(stash) <= set(names)
        for name, tensor in stash.items():
            read = file.get_tensor(name)
            assert read.dtype == tensor.dtype
            assert read.shape == tensor.shape
            assert exact(read.tolist(), tensor.tolist())
    assert set(safetensors.torch.load_file(path)) >= set(stash)


def test_the_layout_is_the_one_of_the_format(tmp_path: Path) -> None:
    """An eight-byte length, a padded header, tensors at pages and without a hole, no byte behind them."""
    path = tmp_path / "stash.safetensors"
    one_of_each(1500).save(path)
    begin, header = header_of(path)
    assert begin % PAGE == 0
    assert path.read_bytes()[begin - 1 : begin] == b" "
    metadata = header.pop("__metadata__")
    assert all(isinstance(text, str) for text in metadata.values())
    at = 0
    for name, about in header.items():
        assert about["data_offsets"][0] == at, name
        assert name.startswith("__pad.") or (begin + at) % PAGE == 0, name
        at = about["data_offsets"][1]
    assert begin + at == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def test_flat_columns_of_one_item_size_stand_side_by_side() -> None:
    """Whatever the order they were asked for in."""
    stash, starts = one_of_each(1500), dict[int, list[int]]()
    for name in stash:
        if stash[name].ndim == 1:
            starts.setdefault(stash[name].itemsize, []).append(stash.segment.tensors[name].start)
    assert len(starts) == 4
    for size, of_size in starts.items():
        assert {*np.diff(sorted(of_size))} <= {-(-1500 * size // PAGE) * PAGE}


def test_a_finished_file_has_no_holes(shm: Path) -> None:
    """A hole would be filled when it is first read, which kills the reader if the file system is full by then."""
    rng = np.random.default_rng(0)
    rows = 300_001
    table = {
        "e": np.arange(rows) // 1000,
        "t": np.arange(rows),
        "x": rng.standard_normal(rows),
        "flag": rng.random(rows) < 0.5,
        "text": np.array([f"text {k}" for k in range(50)])[rng.integers(0, 50, rows)],
        "place": np.arange(rows) // 1000 * 7,
    }
    some = rng.permutation(rows)
    sources: list[dict[str, Any]] = [
        table,
        {name: values[some] for name, values in table.items()},
        {name: values[:1] for name, values in table.items()},
        {name: values[:0] for name, values in table.items()},
    ]
    for k, source in enumerate(sources):
        static = ["place"] if len(source["e"]) else None
        keys: list[dict[str, Any]] = [{}, {"entity": "e", "time": "t"}]
        for more in keys:
            pack = {"e": "e", "t": "t", "pack": ["x", "flag"], "flag": "flag", "text": "text"}
            own = static if more else None
            for share in (None, f"holes-{k}-{len(more)}"):
                stash = ts.load(source, pack, static=own, share=share, dtype=torch.float32, **more)
                about = os.fstat(stash.segment.fd)
                assert about.st_blocks * 512 == about.st_size, (k, more)
                about = os.stat(str(stash.share("copy").path))
                assert about.st_blocks * 512 == about.st_size, (k, more)
