"""The windows of the training benchmark are those that a loop over rows finds, and its checks can fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.benchmarks, pytest.mark.filterwarnings("ignore:Gaps cost")]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import train

    return train.tasks(tmp_path, train.SMALL)


@pytest.mark.parametrize("name", ["one long series", "many short series"])
def test_the_expected_windows_are_those_that_a_loop_finds(tasks: Any, name: str) -> None:
    from feeds import task as module

    task = tasks[name]
    arrays = module.read(task)
    found = []
    for start in range(len(arrays["t"]) - task.width + 1):
        some = slice(start, start + task.width)
        if len(set(arrays["series"][some].tolist())) > 1 or (np.diff(arrays["t"][some]) != 1).any():
            continue
        past = np.stack([arrays[column][start : start + task.history] for column in task.columns], 1)
        target = [arrays[column][start + task.history : some.stop] for column in task.columns[: task.targets]]
        window = {
            "past": past[None],
            "known": np.stack([arrays[column][some] for column in module.KNOWN], 1)[None],
            "target": np.stack(target, 1)[None],
        }
        if task.static:
            window["static"] = np.array([[arrays[column][start] for column in task.static]])
        found.append(int(module.keys_of(window)[0]))
    assert len(found) > 400
    assert sorted(found) == module.expected(task).tolist()
    if task.static:
        assert len(arrays["t"]) < task.series * task.steps  # there are gaps


@pytest.mark.parametrize("name", ["one long series", "many short series"])
def test_a_feed_that_shows_other_windows_is_noticed(tasks: Any, name: str) -> None:
    from feeds import stash
    from feeds.run import Run

    task = tasks[name]
    run = Run()
    run.task = task

    def of(change: Any) -> Any:
        class Changed:
            def __init__(self, task: Any) -> None:
                self.loader = stash.scaled_per_batch(task)

            def __iter__(self) -> Any:
                return change(self.loader)

        return Changed

    run.make = of(iter)
    shown = run.whole(task.path, drawn=False)
    assert 400 < shown <= len(stash.scaled_per_batch(replace(task, batch=1)))

    def late(loader: Any) -> Any:
        for batch in loader:
            yield batch | {"known": batch["known"].roll(1, 1)}

    def again(loader: Any) -> Any:
        first = next(iter(loader))
        yield from (first for _ in loader)

    def short(loader: Any) -> Any:
        yield next(iter(loader))

    def unscaled(loader: Any) -> Any:
        yield from ({**batch, "past": batch["past"] * 1.001} for batch in loader)

    for change, message in (
        (late, r"^\d+ windows are not in the file"),
        (again, "^an epoch shows windows twice"),
        (short, r"^16 of \d+ windows"),
        (unscaled, "^past is scaled otherwise"),
    ):
        run.make = of(change)
        with pytest.raises(AssertionError, match=message):
            run.whole(task.path, drawn=False)


def test_every_feed_is_a_function_of_its_module(tasks: Any) -> None:
    """Also of libraries that are not installed here."""
    import ast

    from feeds import FEEDS, ON_DEVICE

    assert tasks
    for feed in (*FEEDS, *ON_DEVICE):
        module, function = feed.place.split(".")
        tree = ast.parse((BENCHMARKS / "feeds" / f"{module}.py").read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, feed
    for feeds in (FEEDS, ON_DEVICE):
        assert len({(feed.name, feed.workers) for feed in feeds}) == len(feeds)


@pytest.mark.parametrize("name", ["one long series", "many short series"])
def test_every_model_predicts_the_target_and_learns_from_its_inputs(tasks: Any, name: str) -> None:
    from feeds import stash
    from feeds.models import MODELS

    task = replace(tasks[name], batch=8)
    batch = next(iter(stash.scaled_per_batch(task)))
    for model in MODELS.values():
        torch.manual_seed(0)
        made = model(task)
        prediction = made(batch)
        assert prediction.shape == batch["target"].shape
        prediction.sum().backward()
        assert all(weight.grad is not None for weight in made.parameters())
