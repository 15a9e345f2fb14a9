"""The inside of `common/keywords.py`: keywords of others and misspelt ones; the error says what to write."""

import copy
import inspect
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import tensorstash as ts
from tensorstash.common.keywords import KEYWORDS

SERIES = ts.load({"y": np.arange(20.0)})
WINDOWS = ts.Windows(SERIES, 3, 1)
EVENTS = {"card": ["a", "a"], "t": [1, 2], "amount": [5.0, 6.0]}

FUNCTIONS: dict[str, Any] = {
    "Loader": ts.Loader,
    "Mix": ts.Mix,
    "Sampler": ts.Sampler,
    "Weighted": ts.Weighted,
    "Windows": ts.Windows,
    "Windows.folds": ts.Windows.folds,
    "Windows.to_frame": ts.Windows.to_frame,
    "During": ts.During,
    "load": ts.load,
    "plan": ts.plan,
    "cluster.shard": ts.cluster.shard,
}


def refused(call: Callable[..., object], *given: Any, **named: Any) -> str:
    with pytest.raises(TypeError) as caught:
        call(*given, **named)
    return str(caught.value)


@pytest.mark.parametrize(
    ("keyword", "value", "remedy"),
    [
        ("num_workers", 4, "prefetch="),
        ("persistent_workers", True, "leave it out"),
        ("worker_init_fn", print, "leave it out"),
        ("prefetch_factor", 2, "prefetch="),
        ("pin_memory", True, "device="),
        ("drop_last", True, 'tail="drop"'),
        ("collate_fn", list, "transform="),
        ("batch_sampler", [[0]], "order="),
        ("generator", torch.Generator(), "seed="),
        ("world_size", 2, "num_replicas="),
        ("in_order", True, "leave it out"),
        ("history", 3, "ts.Windows takes history="),
    ],
)
def test_a_keyword_of_a_data_loader_is_answered_with_the_one_here(keyword: str, value: Any, remedy: str) -> None:
    said = refused(ts.Loader, WINDOWS, 4, **{keyword: value})
    assert said.startswith(f"Loader() has no argument {keyword!r}. ")
    assert remedy in said


@pytest.mark.parametrize("keyword", ["lookback", "context_length", "input_size", "seq_len", "input_chunk_length"])
def test_the_past_of_a_forecast_is_its_history(keyword: str) -> None:
    said = refused(ts.Windows, SERIES, horizon=1, **{keyword: 3})
    assert said == f"Windows() has no argument {keyword!r}. Write history=, the slots before the anchor."


@pytest.mark.parametrize("keyword", ["prediction_length", "h", "pred_len", "forecast_horizon", "output_chunk_length"])
def test_the_future_of_a_forecast_is_its_horizon(keyword: str) -> None:
    said = refused(ts.Windows, SERIES, history=3, **{keyword: 1})
    assert said == f"Windows() has no argument {keyword!r}. Write horizon=, the slots from the anchor on."


@pytest.mark.parametrize(
    ("keyword", "remedy"),
    [
        ("window", "history= and horizon="),
        ("window_size", "history= and horizon="),
        ("step", "stride="),
        ("freq", "frequency="),
        ("batch_size", "ts.Loader takes batch_size="),
        ("target", "spans="),
    ],
)
def test_other_keywords_of_windows_are_answered_too(keyword: str, remedy: str) -> None:
    assert remedy in refused(ts.Windows, SERIES, 3, **{keyword: 1})


@pytest.mark.parametrize(
    ("call", "given", "word", "meant"),
    [
        (ts.Loader, (WINDOWS,), "batchsize", "batch_size"),
        (ts.Windows, (SERIES, 3), "horizons", "horizon"),
        (ts.load, (EVENTS,), "entities", "entity"),
        (ts.During, ("amount",), "max_row", "max_rows"),
    ],
)
def test_a_misspelt_keyword_is_answered_with_the_nearest_one(
    call: Callable[..., object], given: tuple[Any, ...], word: str, meant: str
) -> None:
    assert refused(call, *given, **{word: 4}).endswith(f"() has no argument {word!r}. Did you mean {meant}=?")


def test_a_keyword_that_nobody_knows_is_the_error_of_python() -> None:
    assert "unexpected keyword argument 'colour'" in refused(ts.Loader, WINDOWS, colour=4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_signature_names_every_argument(name: str) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(FUNCTIONS[name]).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    called = FUNCTIONS[name].__init__ if isinstance(FUNCTIONS[name], type) else FUNCTIONS[name]
    assert called.__doc__ is None or "Decorate" not in called.__doc__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_word_of_a_function_is_answered_with_an_argument_of_its_own(name: str) -> None:
    """Or with one of the function that the answer names; words of other functions have Python's error."""
    function, known = FUNCTIONS[name], KEYWORDS.get(FUNCTIONS[name].__qualname__, {})
    parameters = inspect.signature(function).parameters
    assert not known.keys() & parameters.keys()
    for word, answer in known.items():
        assert refused(function, **{word: None}).endswith(f"() has no argument {word!r}. {answer}")
        for argument in re.findall(r"Write (?:columns=, or )?(\w+)(?:=|,)", answer):
            assert argument in parameters, answer
        for other, named in re.findall(r"(ts\.\w+) takes ((?:\w+=(?:, | and )?)+)", answer):
            assert {*re.findall(r"(\w+)=", named)} <= {*inspect.signature(FUNCTIONS[other[3:]]).parameters}, answer
    for word in {word for words in KEYWORDS.values() for word in words} - known.keys() - parameters.keys():
        said = refused(function, **{word: None})
        assert "Did you mean" in said or "unexpected keyword argument" in said, said


def test_words_for_the_parts_of_a_split_are_answered_with_a_call_that_works() -> None:
    stash = ts.load({"t": np.arange(20), "e": np.arange(20) // 5, "y": np.arange(20.0)}, time="t")
    names = {"windows": ts.Windows(stash, 3, 1), "start": 5, "cut": 10, "end": 15, "_": None}
    for name in ("split_fraction", "split_last", "split_entities", "split"):
        for word in ("train", "val", "valid", "test", "test_size"):
            said = refused(getattr(ts.Windows, name), names["windows"], **{word: 3})
            (call,) = re.findall(r"windows\.\w+\([^()]*\)(?=[.,])", said)
            assert len(eval(call.replace("'2024-10-01'", "10").replace("28", "8"), names)) == 2
    found = re.search(r"(windows\.split.*?\)) for", refused(ts.Windows.folds, names["windows"], train=3))
    assert found is not None
    assert [*map(len, eval(found[1], names))] == [2, 5, 5, 5]


def test_words_of_another_function_are_not_answered_with_its_arguments() -> None:
    for call, given, word in ((ts.load, (EVENTS,), "num_samples"), (ts.During, ("amount",), "num_workers")):
        assert f"got an unexpected keyword argument {word!r}" in refused(call, *given, **{word: 2})


def test_objects_with_such_arguments_are_copied_pickled_and_replaced_as_before() -> None:
    during = ts.During("amount", -7, 0, max_rows=2)
    assert pickle.loads(pickle.dumps(during)) == copy.copy(during) == during
    assert replace(during, max_rows=3).max_rows == 3
    assert pickle.loads(pickle.dumps(ts.load)) is ts.load


def test_a_subclass_may_have_such_an_argument() -> None:
    class Own(ts.Windows):
        def __init__(self, stash: ts.Stash, lookback: int) -> None:
            super().__init__(stash, lookback)

    assert Own(SERIES, lookback=3).history == 3
    assert len(next(iter(DataLoader(Own(SERIES, lookback=3), batch_size=4, num_workers=0)))["y"]) == 4  # type: ignore[arg-type]


def test_warnings_still_point_at_the_line_of_the_caller() -> None:
    times = np.array([*range(10), *range(20, 30)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ts.Windows(ts.load({"t": times, "y": times * 1.0}, ["y"], time="t"), 5)
    assert [one.filename for one in caught] == [__file__]


def test_a_value_without_its_keyword_is_told_which_to_write() -> None:
    """`DataLoader(windows, 4, True)` shuffles; keywords can be read."""
    said = refused(ts.Loader, WINDOWS, 4, True)
    assert said == "Loader() takes 2 values without keyword, got True too. Write its keyword, such as shuffle=."
    assert len(ts.Loader(WINDOWS, 4, shuffle=True)) == len(ts.Loader(WINDOWS, 4))
    assert refused(ts.load, {"y": [1]}, ["y"], "e").startswith("load() takes 2 values without keyword, got 'e' too.")
