"""The differential test itself: it sees what is broken, says where, and cannot pass by running nothing."""

import shutil
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorstash as ts
from tests.differential import script
from tests.differential.base import BASE, NotInstalledError, install
from tests.differential.compare import Cases, Difference, Line, Version, differences, report, results, unexpected
from tests.differential.library import ts as spoken
from tests.differential.record import Record, is_own
from tests.differential.runs import CHECKOUT
from tests.differential.wanted import Wanted

pytestmark = pytest.mark.usefixtures("shm")

Spoil = Callable[[pytest.MonkeyPatch], None]


@cache
def cases_of(kind: str, count: int = 3) -> list[int]:
    """The numbers of the first cases of a kind."""
    return [number for number in range(2000) if script.draw(0, number)[0] == kind][:count]


@cache
def expected(kind: str) -> list[Line]:
    return [script.run(0, number) for number in cases_of(kind)]


def labels_of(found: Sequence[Line], wanted: Sequence[Line]) -> list[str]:
    """The first part in which each case differs."""
    pair = Version("one", Path(), "here"), Version("other", Path(), "here")
    return [difference.label for difference in differences(pair, found, wanted)]


@pytest.mark.parametrize("kind", script.KINDS)
def test_a_case_depends_on_its_number_alone(kind: str) -> None:
    again = [script.run(0, number) for number in reversed(cases_of(kind))]
    assert again[::-1] == expected(kind)


def test_most_cases_get_to_their_end() -> None:
    lines = [line for kind in script.KINDS for line in expected(kind)]
    refused = [line["case"] for line in lines if any(label == "case refused" for label, _ in line["parts"])]
    assert len(refused) < len(lines) / 4
    drawn = Counter(script.draw(0, number)[0] for number in range(1000))
    assert all(drawn[kind] >= 10 for kind in script.KINDS)


# What the net must see


def swapped(patch: pytest.MonkeyPatch) -> None:
    """The first two windows of each batch."""
    _in_batches(patch, lambda tensor: tensor.index_select(0, torch.tensor([1, 0, *range(2, len(tensor))])))


def another_nan(patch: pytest.MonkeyPatch) -> None:
    """NaN of another payload."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.float32:
            tensor.view(torch.int32)[tensor.isnan()] ^= 1
        return tensor

    _in_batches(patch, change)


def another_type(patch: pytest.MonkeyPatch) -> None:
    """Wider tensors with equal values."""
    _in_batches(patch, lambda tensor: tensor.double() if tensor.dtype == torch.float32 else tensor)


def a_later_state(patch: pytest.MonkeyPatch) -> None:
    """A state that is a window further."""
    true = ts.Loader.state_dict

    def state_dict(loader: ts.Loader) -> dict[str, Any]:
        state = true(loader)
        return state | {"consumed": state["consumed"] + 1}

    patch.setattr(ts.Loader, "state_dict", state_dict)


def no_warning(patch: pytest.MonkeyPatch) -> None:
    """No warning at all."""
    patch.setattr(warnings, "warn", lambda *_, **__: None)


def no_error(patch: pytest.MonkeyPatch) -> None:
    """What was refused is taken."""
    true = ts.Sampler.__init__

    def init(sampler: ts.Sampler, *arguments: Any, **named: Any) -> None:
        with suppress(ValueError):
            true(sampler, *arguments, **named)

    patch.setattr(ts.Sampler, "__init__", init)


def one_step_less(patch: pytest.MonkeyPatch) -> None:
    """The last steps of passes."""
    true = ts.Sampler.__iter__

    def steps(sampler: ts.Sampler) -> Iterator[Any]:
        yield from [*true(sampler)][:-1]

    patch.setattr(ts.Sampler, "__iter__", steps)


def _in_batches(patch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    true = ts.Loader.__iter__

    def batches(loader: ts.Loader) -> Iterator[Any]:
        for batch in true(loader):
            enough = all(tensor.is_cpu and tensor.ndim and len(tensor) > 1 for tensor in batch.values())
            yield {name: change(tensor) for name, tensor in batch.items()} if enough else batch

    patch.setattr(ts.Loader, "__iter__", batches)


SPOILS: list[tuple[Spoil, str]] = [
    (swapped, "loader"),
    (swapped, "shards"),
    (another_nan, "loader"),
    (another_type, "mix"),
    (a_later_state, "loader"),
    (no_warning, "windows"),
    (no_error, "refusals"),
    (one_step_less, "sampler"),
]


@pytest.mark.parametrize(("spoil", "kind"), SPOILS, ids=lambda value: getattr(value, "__name__", value))
def test_what_is_broken_is_seen(spoil: Spoil, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = cases_of(kind, 24 if kind in ("refusals", "windows") else 6)
    right = [script.run(0, number) for number in numbers]
    spoil(monkeypatch)
    assert labels_of([script.run(0, number) for number in numbers], right)


BROKEN = """
class Loader(__getattr__("Loader")):
    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            yield batch if number else {name: tensor.flip(0) for name, tensor in batch.items()}
"""


def test_a_broken_package_is_reported_with_values_and_the_command(tmp_path: Path) -> None:
    """In processes of their own, as in a real run."""
    shutil.copytree(CHECKOUT / "tensorstash", tmp_path / "tensorstash", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "tensorstash" / "__init__.py").open("a") as file:
        file.write(BROKEN)
    number = next(number for number in cases_of("loader", 9) if labels_of(_broken(number), [script.run(0, number)]))
    pair = Version("whole", CHECKOUT, "earlier"), Version("broken", tmp_path, "here")
    one, other = results(Cases(0, number, 1), pair)
    (found,) = differences(pair, one, other)
    assert found.label.endswith("step 0 of rank 0")
    text = report(0, pair, [found], [])
    assert f"python -m tests.differential {number} --seed 0" in text
    whole, broken = (line for line in text.splitlines() if line.startswith(("  whole:", "  broken:")))
    assert whole.partition("#")[0].removeprefix("  whole") == broken.partition("#")[0].removeprefix("  broken")
    assert whole.partition("#")[2] != broken.partition("#")[2]


def _broken(number: int) -> list[Line]:
    with pytest.MonkeyPatch.context() as patch:
        swapped(patch)
        return [script.run(0, number)]


def test_a_run_of_another_library_is_no_run(tmp_path: Path) -> None:
    """An empty folder, so that the checkout is imported instead."""
    with pytest.raises((AssertionError, FileNotFoundError)):
        results(Cases(0, cases_of("sampler")[0], 1), [Version("none", tmp_path, "here")])


def test_a_fault_of_the_script_is_no_refusal() -> None:
    record = Record()
    with pytest.raises(ZeroDivisionError), record.trying("own"):
        1 / 0  # noqa: B018
    with record.trying("of the library"):
        ts.Blocks(0)
    assert [label for label, _ in record.parts] == ["of the library refused"]
    with pytest.raises(TypeError) as raised:
        spoken.Blocks(3, of="none")
    assert not is_own(raised.value)


# The list of wanted differences


def test_a_wanted_difference_is_let_through_and_one_that_is_gone_is_told() -> None:
    seen = Difference(7, "mix", ["weights"], "batch 3", ("earlier", "here"))
    other = replace(seen, case=8, about=[])
    wanted = Wanted("mix", 7, "weights are rounded up", lambda about, label: "weights" in about and "batch" in label)
    assert unexpected([seen], [wanted]) == ([], [])
    assert unexpected([seen, other], [wanted]) == ([other], [])
    assert unexpected([other], [wanted]) == ([other], [wanted])
    text = report(0, [], [], [wanted])
    assert "weights are rounded up" in text
    assert "Take it off the list" in text


# The earlier commit


def test_a_checkout_without_the_commit_says_how_to_fetch_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    with pytest.raises(NotInstalledError) as raised:
        install(BASE, tmp_path / "earlier", tmp_path)
    assert f"git fetch --depth=1 origin {BASE}" in str(raised.value)
    assert not (tmp_path / "earlier").exists()


def test_a_commit_is_installed_without_what_came_later(tmp_path: Path) -> None:
    """A checkout whose package is one file of Python and one of C."""
    repository = tmp_path / "repository"
    (repository / "tensorstash" / "native").mkdir(parents=True)
    (repository / "tensorstash" / "__init__.py").write_text("first = 1\n")
    (repository / "tensorstash" / "native" / "gather.c").write_text("int one(void) { return 1; }\n")
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@x"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *command], check=True, timeout=60)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True, timeout=60)
    (repository / "tensorstash" / "__init__.py").write_text("second = 2\n")
    earlier = install(commit.stdout.strip(), tmp_path / "earlier", repository)
    assert (earlier / "tensorstash" / "__init__.py").read_text() == "first = 1\n"
    assert (earlier / "tensorstash" / "native" / "gather.so").exists()
