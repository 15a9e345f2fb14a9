"""The inside of `common/keywords.py`: keywords of others, earlier and misspelt ones; the error says what to write."""

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
from tests.oracle_load import like

SERIES = ts.load({"y": np.arange(20.0)})
WINDOWS = ts.Windows(SERIES, 3, 1)
EVENTS = {"card": ["a", "a"], "t": [1, 2], "amount": [5.0, 6.0]}
NEXT = {"order", "dataset"}  # parameters of Loader from the next change on

FUNCTIONS: dict[str, Any] = {
    "Loader": ts.Loader,
    "Mix": ts.Mix,
    "Sampler": ts.Sampler,
    "Weighted": ts.Weighted,
    "Windows": ts.Windows,
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
    assert said == f"Windows() has no argument {keyword!r}. ts.Windows takes history=, the slots before the anchor."


@pytest.mark.parametrize("keyword", ["prediction_length", "h", "pred_len", "forecast_horizon", "output_chunk_length"])
def test_the_future_of_a_forecast_is_its_horizon(keyword: str) -> None:
    said = refused(ts.Windows, SERIES, history=3, **{keyword: 1})
    assert said == f"Windows() has no argument {keyword!r}. ts.Windows takes horizon=, the slots from the anchor on."


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


EARLIER: list[tuple[Callable[..., object], tuple[Any, ...], str, str]] = [
    (ts.load, (EVENTS,), "repeated", "Write duplicates=."),
    (ts.plan, (EVENTS,), "repeated", "Write duplicates=."),
    (ts.cluster.shard, (EVENTS,), "repeated", "Write duplicates=."),
    (ts.load, (EVENTS,), "key", "ts.load takes version="),
    (ts.During, ("amount",), "begin", "Write start=."),
    (ts.During, ("amount", -7), "end", "Write stop=."),
    (ts.During, ("amount", -7, 0), "most", "Write max_rows=."),
    (ts.Weighted, ("y",), "count", "Write epoch_size=."),
    (ts.Mix, ({"a": WINDOWS},), "count", "Write epoch_size=."),
    (ts.Windows, (SERIES, 3), "missing", "Write unmatched=."),
    (ts.Sampler, (4, 2), "sampler", "ts.Loader takes order="),
]


@pytest.mark.parametrize(("call", "given", "word", "remedy"), EARLIER)
def test_an_earlier_word_is_answered_with_the_new_one(
    call: Callable[..., object], given: tuple[Any, ...], word: str, remedy: str
) -> None:
    said = refused(call, *given, **{word: 8})
    assert f"() has no argument {word!r}. {remedy}" in said


def test_an_earlier_name_is_answered_with_the_new_one() -> None:
    with pytest.raises(AttributeError, match=like("ts.Pack is now ts.PackSequences")):
        getattr(ts, "Pack")  # noqa: B009  a type checker knows no such name
    assert not hasattr(ts, "Pack")


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
def test_each_known_word_that_is_no_argument_is_refused(name: str) -> None:
    function = FUNCTIONS[name]
    for word in KEYWORDS.keys() - inspect.signature(function).parameters.keys():
        assert f"{word!r}. {KEYWORDS[word]}" in refused(function, **{word: None})


def test_answers_name_arguments_that_there_are() -> None:
    for text in KEYWORDS.values():
        for name, argument in re.findall(r"ts\.(\w+) takes (\w+)=?", text):
            assert argument in {*inspect.signature(FUNCTIONS[name]).parameters, *NEXT}, text


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
