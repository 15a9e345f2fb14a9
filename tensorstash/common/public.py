"""The names of `ts`: where each is defined, what kind of thing it is, and which page explains it.

The package imports from this table, messages list orders by it, and the reference and its tests follow it.
"""

from typing import NamedTuple


class Public(NamedTuple):
    """A public name."""

    home: str  # the module below `tensorstash` that defines it, or is it
    kind: str  # "function", "class", "column", "span", "order", "transform" or "module"
    page: str  # below `docs/`


NAMES = {
    "load": Public("ingest.load", "function", "guide/stash"),
    "plan": Public("ingest.load", "function", "guide/stash"),
    "open": Public("serving.open", "function", "guide/on-disk"),
    "attach": Public("stash.open", "function", "guide/sharing"),
    "Plan": Public("ingest.plan", "class", "guide/stash"),
    "Stash": Public("stash.stash", "class", "guide/stash"),
    "Windows": Public("windows.windows", "class", "guide/windows"),
    "Sampler": Public("sampling.sampler", "class", "guide/ranks"),
    "Loader": Public("batches.loader", "class", "guide/ranks"),
    "column": Public("columns.spec", "column", "guide/columns"),
    "hashed": Public("columns.spec", "column", "guide/columns"),
    "is_valid": Public("columns.spec", "column", "guide/columns"),
    "calendar": Public("columns.time_fields", "column", "guide/derived"),
    "path": Public("columns.path", "column", "guide/sources"),
    "Draw": Public("gather.span", "span", "guide/windows"),
    "During": Public("windows.during", "span", "guide/events"),
    "each": Public("gather.each", "span", "how-to/pretraining"),
    "Blocks": Public("sampling.blocks", "order", "guide/orders"),
    "Lanes": Public("sampling.lanes", "order", "guide/orders"),
    "Weighted": Public("sampling.weighted", "order", "guide/orders"),
    "ByTime": Public("sampling.by_time", "order", "guide/orders"),
    "PerEntity": Public("sampling.per_entity", "order", "guide/orders"),
    "Mix": Public("sampling.mix", "class", "guide/orders"),
    "Scaler": Public("transforms.scaler", "transform", "guide/transforms"),
    "InstanceNorm": Public("transforms.instance_norm", "transform", "guide/transforms"),
    "Cast": Public("transforms.cast", "transform", "guide/transforms"),
    "Cross": Public("transforms.cross", "transform", "guide/transforms"),
    "PackSequences": Public("transforms.pack", "transform", "how-to/pretraining"),
    "cluster": Public("cluster", "module", "guide/several-machines"),
    "errors": Public("errors", "module", "reference/errors"),
    "plot": Public("plot", "module", "guide/gallery"),
    "shared": Public("segments.shared", "module", "guide/sharing"),
}

# members of public classes that other rooms of the package use, and users do not: `dir` and the reference lack them
INSIDE = {
    **{name: "bind" for name, public in NAMES.items() if public.kind == "order"},
    "During": "by_names",
    "InstanceNorm": "whole_windows",
    "Loader": "__getitem__ prefetch_factor",
    "Mix": "components contents entities is_weighted numbers order parts statistics warning",
    "PackSequences": "pack_into packed_spans",
    "Plan": "choice facts request snapshot",
    "Sampler": "order ranks",
    "Scaler": "scaled_spans whole_windows",
    "Several": "warning",
    "ShardedWindows": "contents entities numbers order statistics warning",
    "Shards": "entity_offsets holds origin",
    "Stash": "entity_at info names segment times_checksum",
    "Windows": "contents placement",
}


def members(thing: object) -> list[str]:
    """What `dir` lists of an object of a public class: `__dir__ = members`."""
    inside = {name for kind in type(thing).__mro__ for name in INSIDE.get(kind.__name__, "").split()}
    return [name for name in object.__dir__(thing) if name not in inside]


def listed(kind: str, call: str = "") -> str:
    """The names of a kind, for messages, each with what calls it."""
    return ", ".join(f"ts.{name}{call}" for name, public in NAMES.items() if public.kind == kind)
