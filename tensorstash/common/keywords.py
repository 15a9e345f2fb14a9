"""Calls that are mistaken: keywords of other libraries and misspelt ones, and classes that functions make."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, cast

from tensorstash.common.checks import shown
from tensorstash.common.text import counted

Target = TypeVar("Target", bound=Callable[..., Any])


def _by_word(answers: Mapping[str, str]) -> dict[str, str]:
    """The answer to each of the words that stand beside it."""
    return {word: answer for answer, words in answers.items() for word in words.split()}


_ORDER = "Write order=, such as ts.Blocks(96), or your own window ids."
_FREQUENCY = "Write frequency=, such as '15m'; else it is found in the times."
_SAMPLER = {  # of PyTorch's DataLoader and samplers
    _ORDER: "sampler",
    f"{_ORDER} batch_size= cuts them into batches.": "batch_sampler",
    'For drop_last=True write tail="drop"; for False leave it out.': "drop_last",
    "Write seed=; the order is a function of the seed and the epoch.": "generator",
    "Write num_replicas=; in a process group leave it out.": "world_size",
}
_SHARD = {  # of readers of tables and time series
    "Write filter=, an expression of pyarrow or polars.": "filters",
    "Write columns=.": "usecols",
    "Write entity=, the column that identifies a series, or a list of columns.": (
        "group_ids unique_id item_id id_column id id_col"
    ),
    "Write time=, the column that orders the rows of a series.": "time_idx timestamp_column timestamp ds",
    "Write columns=, the target among them; ts.Windows takes horizon= and spans= for what is predicted.": (
        "target target_column target_col label y"
    ),
    "Write static=, the columns with one value per entity.": "static_reals static_categoricals",
    _FREQUENCY: "freq",
    "ts.Windows takes history= and horizon=.": "history horizon",
    "ts.Loader takes batch_size= and shuffle=.": "batch_size shuffle",
}
_LOAD = _SHARD | {"Write known=, when a row became known.": "created_timestamp_column"}
_PARTS, _SIZES = "train valid val test", "train_size valid_size val_size test_size fraction"
_ANSWERS = {
    "Loader": _SAMPLER
    | {
        "Batches are made without worker processes: leave it out. ts.Loader takes prefetch= to gather ahead.": (
            "num_workers persistent_workers worker_init_fn multiprocessing_context timeout in_order"
        ),
        "Write prefetch=, the number of batches that are gathered ahead.": "prefetch_factor",
        "ts.Loader takes device=; batches for a GPU are copied from pinned memory.": "pin_memory pin_memory_device",
        "Write transform=, a list of callables that are given each batch.": "collate_fn",
        "Write dataset=, the windows.": "windows",
        "ts.Windows takes history= and horizon=.": "history horizon",
    },
    "Sampler": _SAMPLER | {"Write n, the number of windows: len(windows).": "data_source"},
    "Weighted": {
        "Write epoch_size=, the number of draws in an epoch.": "num_samples",
        "ts.Weighted always draws with replacement: leave it out.": "replacement",
        "ts.Loader takes seed=; the order is a function of the seed and the epoch.": "generator seed",
    },
    "Windows": {
        "Write history=, the slots before the anchor.": (
            "lookback context_length input_size seq_len input_chunk_length max_encoder_length"
        ),
        "Write horizon=, the slots from the anchor on.": (
            "prediction_length h pred_len forecast_horizon output_chunk_length max_prediction_length"
        ),
        "Write min_history=, the slots of the history that must lie in a run.": "min_encoder_length",
        "Write min_horizon=, the slots of the horizon that must lie in a run.": "min_prediction_length",
        "Write history= and horizon=, the slots before the anchor and from it on.": (
            "window window_size sequence_length"
        ),
        "Write stride=, the slots from one window to the next.": "step step_size sequence_stride",
        "Write spans= with a step: (column, start, stop, step).": "sampling_rate",
        _FREQUENCY: "freq",
        "Write columns=, or spans= with a column and a range of slots for each entry of the batch.": "target features",
        "Write spans= whose slots may begin in the past, such as ('y', -48, 24).": "label_len",
        'For allow_missing_timesteps=True write gaps="mask".': "allow_missing_timesteps",
        "ts.Loader takes batch_size= and shuffle=.": "batch_size shuffle",
    },
    "Windows.split": {
        "Write the times of the cuts without a keyword: train, valid = windows.split('2024-10-01').": (
            f"{_PARTS} cut cuts date"
        ),
        "Write windows.split_fraction(0.8), or windows.split_last(28) for a number of slots.": _SIZES,
    },
    "Windows.split_fraction": {
        "Write fractions without a keyword: train, valid = windows.split_fraction(0.8).": f"{_PARTS} {_SIZES}",
    },
    "Windows.split_last": {
        "Write numbers of slots without a keyword: train, valid = windows.split_last(28).": f"{_PARTS} {_SIZES}",
    },
    "Windows.split_entities": {
        "Write fractions without a keyword: train, valid = windows.split_entities(0.8).": f"{_PARTS} {_SIZES}",
        "Write seed=.": "random_state generator",
    },
    "Windows.folds": {
        "Write count, the number of folds.": "n_splits n_folds folds n_windows",
        "Write step=, the length of a test part.": "test test_size valid horizon step_size stride",
        "Write gap=, slots or a duration between a training part and its cut.": "embargo purge",
        "Write expanding=False for training parts of about one length, or _, train, test, _ = windows.split(start, "
        "cut, end) for a given one.": "train train_size max_train_size window",
    },
    "Windows.to_frame": {
        "Write names=, of the quantiles along the last dimension of predictions.": "quantiles levels columns",
    },
    "During": {
        "The batch holds rows: aggregate them in the model or a transform, or before the load with polars' rolling.": (
            "agg aggregation aggfunc func reduce"
        ),
        "Write every=, the length of a bucket.": "freq frequency step bucket",
        "Write start and stop, counted from the time of the window.": "window period lookback",
    },
    "load": _LOAD,
    "plan": _LOAD,
    "shard": _SHARD | {"A table with known= is not cut into shards: each node loads it.": "known"},
}
# by the name of the function: what an argument of another name is answered with
KEYWORDS = {name: _by_word(answers) for name, answers in _ANSWERS.items()}


def suggests_keywords(target: Target) -> Target:
    """Decorate a function, or the constructor of a class, so that its error for a wrong keyword says what to write.

    It is a `TypeError`, for one of its `KEYWORDS`, for a word that is nearly a parameter, and for a value without its
    keyword. The signature stays: no `**kwargs` accept what the function does not name.
    """
    called: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    kinds = {name: parameter.kind for name, parameter in signature(called).parameters.items()}
    takes_more = Parameter.VAR_POSITIONAL in kinds.values()
    by_name = [name for name, kind in kinds.items() if kind is Parameter.KEYWORD_ONLY and not takes_more]
    known = KEYWORDS.get(target.__qualname__, {})
    places, parameters = [name for name in kinds if name not in by_name], kinds.keys() - {"self"}

    @wraps(called)
    def checked(*arguments: Any, **named: Any) -> Any:
        if by_name and len(arguments) > len(places):
            raise TypeError(
                f"{target.__name__}() takes {counted(len(parameters) - len(by_name), 'value')} without keyword, got "
                f"{shown(arguments[len(places)])} too. Write its keyword, such as {by_name[0]}=."
            )
        for word in [name for name in named if name not in parameters]:
            near = [f"Did you mean {name}=?" for name in get_close_matches(word, sorted(parameters), 1, 0.7)]
            if remedies := [known[word]] if word in known else near:
                raise TypeError(f"{target.__name__}() has no argument {word!r}. {remedies[0]}")
        return called(*arguments, **named)

    if isinstance(target, type):
        setattr(target, "__init__", checked)  # noqa: B010  a type checker refuses the assignment
        return target
    return cast("Target", checked)


def made_by(makers: str, of: type) -> Callable[[Target], Target]:
    """Decorate a class that users get from `makers`: a call that does not have its arguments says so.

    It is a `TypeError`. One of its arguments is an `of`, which only these makers have.
    """

    def decorate(target: Target) -> Target:
        called: Any = target.__init__

        @wraps(called)
        def checked(*arguments: Any, **named: Any) -> None:
            if not any(isinstance(given, of) for given in (*arguments[1:], *named.values())):
                raise TypeError(f"The class {target.__name__} is not called by users. Write {makers}.")
            called(*arguments, **named)

        setattr(target, "__init__", checked)  # noqa: B010  a type checker refuses the assignment
        return target

    return decorate
