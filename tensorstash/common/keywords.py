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
_PINNED = "ts.Loader takes device=; batches for a GPU are copied from pinned memory."
_ORDER = "Write order=: ts.Blocks, ts.Lanes, ts.Weighted, ts.ByTime, or your own window ids."
_WORLD = "Write num_replicas=; in a process group leave it out."
_SEED = "Write seed=; the order is a function of the seed and the epoch."
_TAIL = 'For drop_last=True write tail="drop"; for False leave it out.'
_HISTORY = "Write history=, the slots before the anchor."
_HORIZON = "Write horizon=, the slots from the anchor on."
_LENGTH = "Write history= and horizon=, the slots before the anchor and from it on."
_STRIDE = "Write stride=, the slots from one window to the next."
_SPANS = "Write columns=, or spans= with a column and a range of slots for each entry of the batch."
_ENTITY = "Write entity=, the column that identifies a series, or a list of columns."
_STATIC = "Write static=, the columns with one value per entity."
_TIME = "Write time=, the column that orders the rows of a series."


def _all(words: str, answer: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), answer)


_SAMPLER = {  # of PyTorch's DataLoader and samplers
    **_all("sampler", _ORDER),
    **_all("batch_sampler", f"{_ORDER} batch_size= cuts them into batches."),
    **_all("drop_last", _TAIL),
    **_all("generator", _SEED),
    **_all("world_size", _WORLD),
}
_LOAD = {  # of readers of tables and time series, and earlier words
    **_all("filters", "Write filter=, an expression of pyarrow or polars."),
    **_all("usecols", "Write columns=."),
    **_all("group_ids unique_id item_id id_column", _ENTITY),
    **_all("time_idx timestamp_column", _TIME),
    **_all("static_reals static_categoricals", _STATIC),
    **_all("repeated", "Write duplicates=."),
    **_all("frequency freq history horizon", "ts.Windows takes frequency=, history= and horizon=."),
    **_all("batch_size shuffle", "ts.Loader takes batch_size= and shuffle=."),
}
_KNOWN = {"created_timestamp_column": "Write known=, when a row became known."}

# by the name of the function: what an argument of another name is answered with
KEYWORDS: dict[str, dict[str, str]] = {
    "Loader": {
        **_SAMPLER,
        **_all("num_workers persistent_workers worker_init_fn multiprocessing_context timeout in_order", _NO_WORKERS),
        **_all("prefetch_factor", "Write prefetch=, the number of batches that are gathered ahead."),
        **_all("pin_memory pin_memory_device", _PINNED),
        **_all("collate_fn", "Write transform=, a list of callables that are given each batch."),
        **_all("windows", "Write dataset=, the windows."),
        **_all("history horizon", "ts.Windows takes history= and horizon=."),
    },
    "Sampler": {**_SAMPLER, "data_source": "Write n, the number of windows: len(windows)."},
    "Weighted": {
        **_all("count num_samples", "Write epoch_size=, the number of draws in an epoch."),
        **_all("replacement", "ts.Weighted always draws with replacement: leave it out."),
        **_all("generator seed", "ts.Loader takes seed=; the order is a function of the seed and the epoch."),
    },
    "Mix": _all("count", "Write epoch_size=."),
    "Windows": {
        **_all("lookback context_length input_size seq_len input_chunk_length max_encoder_length", _HISTORY),
        **_all("prediction_length h pred_len forecast_horizon output_chunk_length max_prediction_length", _HORIZON),
        **_all("min_encoder_length", "Write min_history=, the slots of the history that must lie in a run."),
        **_all("min_prediction_length", "Write min_horizon=, the slots of the horizon that must lie in a run."),
        **_all("window window_size sequence_length", _LENGTH),
        **_all("step step_size sequence_stride", _STRIDE),
        **_all("sampling_rate", "Write spans= with a step: (column, start, stop, step)."),
        **_all("freq", "Write frequency=, such as '15m'; else it is found in the times."),
        **_all("target features", _SPANS),
        **_all("label_len", "Write spans= whose slots may begin in the past, such as ('y', -48, 24)."),
        **_all("allow_missing_timesteps", 'For allow_missing_timesteps=True write gaps="mask".'),
        **_all("missing", "Write unmatched=."),
        **_all("batch_size shuffle", "ts.Loader takes batch_size= and shuffle=."),
    },
    "During": {"most": "Write max_rows=.", "begin": "Write start=.", "end": "Write stop=."},
    "load": {**_LOAD, **_KNOWN, "key": "Write version=, a text that names the rows of a query or stream."},
    "plan": {**_LOAD, **_KNOWN},
    "shard": {**_LOAD, "known": "A table with known= is not cut into shards: each node loads it."},
}


def _likely(word: str, parameters: Iterable[str]) -> str | None:
    near = get_close_matches(word, sorted(parameters), n=1, cutoff=0.7)
    return f"Did you mean {near[0]}=?" if near else None


def suggests_keywords(target: Target) -> Target:
    """Decorate a function, or the constructor of a class, so that its error for a wrong keyword says what to write.

    It is a `TypeError`, for one of its `KEYWORDS`, for a word that is nearly a parameter, and for a value without its
    keyword. The signature stays: no `**kwargs` accept what the function does not name.
    """
    called: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    kinds = {name: parameter.kind for name, parameter in signature(called).parameters.items()}
    by_name = [name for name, kind in kinds.items() if kind is Parameter.KEYWORD_ONLY]
    known = KEYWORDS.get(target.__qualname__, {})
    places, parameters = [name for name in kinds if name not in by_name], kinds.keys() - {"self"}

    @wraps(called)
    def checked(*arguments: Any, **named: Any) -> Any:
        if by_name and len(arguments) > len(places):
            raise TypeError(
                f"{target.__name__}() takes {counted(len(parameters) - len(by_name), 'value')} without keyword, got "
                f"{shown(arguments[len(places)])} too. Write its keyword, such as {by_name[0]}=."
            )
        for word in named:
            remedy = None if word in parameters else known.get(word) or _likely(word, parameters)
            if remedy is not None:
                raise TypeError(f"{target.__name__}() has no argument {word!r}. {remedy}")
        return called(*arguments, **named)

    if isinstance(target, type):
        setattr(target, "__init__", checked)  # noqa: B010  a type checker refuses the assignment
        return target
    return cast("Target", checked)
