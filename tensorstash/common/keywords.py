"""Keywords of other libraries, earlier ones of this package and misspelt ones: the error gives the word to use."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, cast

from tensorstash.common.checks import shown
from tensorstash.common.text import counted

Target = TypeVar("Target", bound=Callable[..., Any])

_NO_WORKERS = "Batches are made without worker processes: leave it out. ts.Loader takes prefetch= to gather ahead."
_HISTORY = "ts.Windows takes history=, the slots before the anchor."
_HORIZON = "ts.Windows takes horizon=, the slots from the anchor on."
_LENGTH = "ts.Windows takes history= and horizon=, the slots before the anchor and from it on."
_STRIDE = "ts.Windows takes stride=, the slots from one window to the next."
_ORDER = "ts.Loader takes order=: ts.Blocks, ts.Lanes, ts.Weighted, ts.ByTime, or your own window ids."
_SPANS = "ts.Windows takes columns=, or spans= with a column and a range of slots for each entry of the batch."
_ENTITY = "ts.load takes entity=, the column that identifies a series, or a list of columns."
_STATIC = "ts.load takes static=, the columns with one value per entity."
_TIME = "ts.load takes time=, the column that orders the rows of a series."

# a word is looked up only where it is no parameter: `batch_size` is refused by Windows, not by Loader
KEYWORDS = {
    # PyTorch's DataLoader and samplers
    "num_workers": _NO_WORKERS,
    "persistent_workers": _NO_WORKERS,
    "worker_init_fn": _NO_WORKERS,
    "multiprocessing_context": _NO_WORKERS,
    "prefetch_factor": "ts.Loader takes prefetch=, the number of batches that are gathered ahead.",
    "pin_memory": "ts.Loader takes device=; batches for a GPU are copied from pinned memory.",
    "pin_memory_device": "ts.Loader takes device=; batches for a GPU are copied from pinned memory.",
    "drop_last": 'For drop_last=True write tail="drop"; for False leave it out.',
    "collate_fn": "ts.Loader takes transform=, a list of callables that are given each batch.",
    "generator": "ts.Loader takes seed=; the order is a function of the seed and the epoch.",
    "sampler": _ORDER,
    "batch_sampler": f"{_ORDER} batch_size= cuts them into batches.",
    "data_source": "ts.Sampler takes n, the number of windows: len(windows).",
    "num_samples": "ts.Weighted takes epoch_size=, the number of draws in an epoch.",
    "replacement": "ts.Weighted always draws with replacement: leave it out.",
    "world_size": "ts.Loader takes num_replicas=; in a process group leave it out.",
    # forecasting
    "lookback": _HISTORY,
    "context_length": _HISTORY,
    "input_size": _HISTORY,
    "seq_len": _HISTORY,
    "input_chunk_length": _HISTORY,
    "max_encoder_length": _HISTORY,
    "prediction_length": _HORIZON,
    "h": _HORIZON,
    "pred_len": _HORIZON,
    "forecast_horizon": _HORIZON,
    "output_chunk_length": _HORIZON,
    "max_prediction_length": _HORIZON,
    "min_encoder_length": "ts.Windows takes min_history=, the slots of the history that must lie in a run.",
    "min_prediction_length": "ts.Windows takes min_horizon=, the slots of the horizon that must lie in a run.",
    "window": _LENGTH,
    "window_size": _LENGTH,
    "sequence_length": _LENGTH,
    "step": _STRIDE,
    "step_size": _STRIDE,
    "sequence_stride": _STRIDE,
    "sampling_rate": "ts.Windows takes spans= with a step: (column, start, stop, step).",
    "freq": "ts.Windows takes frequency=, such as '15m', or finds it in the times.",
    "target": _SPANS,
    "features": _SPANS,
    "label_len": "ts.Windows takes spans= whose slots may begin in the past, such as ('y', -48, 24).",
    "allow_missing_timesteps": 'For allow_missing_timesteps=True write gaps="mask" for ts.Windows.',
    # readers of tables and time series
    "created_timestamp_column": "ts.load takes known=, when a row became known.",
    "filters": "ts.load takes filter=, an expression of pyarrow or polars.",
    "usecols": "ts.load takes columns=.",
    "group_ids": _ENTITY,
    "unique_id": _ENTITY,
    "item_id": _ENTITY,
    "id_column": _ENTITY,
    "time_idx": _TIME,
    "timestamp_column": _TIME,
    "static_reals": _STATIC,
    "static_categoricals": _STATIC,
    # arguments of another function of this package
    "history": _HISTORY,
    "horizon": _HORIZON,
    "known": "ts.load takes known=, when a row became known. Such a table is not cut into shards: each node loads it.",
    "frequency": "ts.Windows takes frequency=.",
    "batch_size": "ts.Loader takes batch_size=.",
    "shuffle": "ts.Loader takes shuffle=.",
    # earlier words
    "repeated": "Write duplicates=.",
    "key": "ts.load takes version=, a text that names the rows of a query or stream.",
    "most": "Write max_rows=.",
    "begin": "Write start=.",
    "end": "Write stop=.",
    "count": "Write epoch_size=.",
    "missing": "Write unmatched=.",
    "windows": "ts.Loader takes dataset=, the windows.",
}


def _likely(word: str, parameters: Iterable[str]) -> str | None:
    near = get_close_matches(word, sorted(parameters), n=1, cutoff=0.7)
    return f"Did you mean {near[0]}=?" if near else None


def suggests_keywords(target: Target) -> Target:
    """Decorate a function, or the constructor of a class, so that its error for a wrong keyword says what to write.

    It is a `TypeError`, for one of `KEYWORDS`, for a word that is nearly a parameter, and for a value without its
    keyword. The signature stays: no `**kwargs` accept what the function does not name.
    """
    called: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    kinds = {name: parameter.kind for name, parameter in signature(called).parameters.items()}
    by_name = [name for name, kind in kinds.items() if kind is Parameter.KEYWORD_ONLY]
    places, parameters = [name for name in kinds if name not in by_name], kinds.keys() - {"self"}

    @wraps(called)
    def checked(*arguments: Any, **named: Any) -> Any:
        if by_name and len(arguments) > len(places):
            raise TypeError(
                f"{target.__name__}() takes {counted(len(parameters) - len(by_name), 'value')} without keyword, got "
                f"{shown(arguments[len(places)])} too. Write its keyword, such as {by_name[0]}=."
            )
        for word in named:
            remedy = None if word in parameters else KEYWORDS.get(word) or _likely(word, parameters)
            if remedy is not None:
                raise TypeError(f"{target.__name__}() has no argument {word!r}. {remedy}")
        return called(*arguments, **named)

    if isinstance(target, type):
        setattr(target, "__init__", checked)  # noqa: B010  a type checker refuses the assignment
        return target
    return cast("Target", checked)
