"""Batches and states of many loaders as checksums: what one assembler after another must give, bit by bit.

It reaches inside `cluster/sharded_windows.py` to hold the shards of several nodes in one process.

    python -m tests.batches.golden    # writes golden_batches.json anew

Entities and texts come in ascending order, so that their numbers do not depend on how a load numbers them.
"""

import json
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import tensorstash as ts
from tensorstash.cluster.sharded_windows import ShardedWindows, counts_of_node
from tests.epochs import ordered

FILE = Path(__file__).with_name("golden_batches.json")
HOUR = np.timedelta64(1, "h")
# of a state, and of what identifies the windows in it; a later release may add others
KNOWN = {"windows", "entities", "rows", "first_time", "last_time", "spans", "stride", "runs", "count", "components"}
KNOWN |= {"weights", "draws", "times", "shards"}
RENAMED = {"epoch_size": "count"}

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A loader: what it samples, and its arguments."""

    sampled: Callable[[], Any]
    batch_size: int | None = 16
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def loader(self, **more: Any) -> ts.Loader:
        return ts.Loader(self.sampled(), self.batch_size, **(dict(self.arguments) | more))


# What is sampled


@cache
def stash_of(names: str = "abc", rows: int = 70, start: int = 0, whole: bool = False) -> ts.Stash:
    """Entities of several lengths with hours missing, columns of many types, packs, and values that are missing."""
    rng = np.random.default_rng([rows, start])
    lengths = [rows + 11 * k for k in range(len(names))]
    hours = [[hour for hour in range(n) if whole or hour % 13 not in (5, 6)] for n in lengths]
    of = np.repeat(np.arange(len(names)), [*map(len, hours)])  # the entity of each row
    count = len(of)
    f32 = rng.standard_normal(count).astype(np.float32)
    f32[rng.integers(0, count, 3)] = np.nan
    words = np.array(["", "calm", "rain", "storm"], object)[np.minimum(np.arange(count) % 7, 3)]
    words[np.arange(count) % 7 == 5] = None
    data = {
        "e": np.array([*names])[of],
        "t": (np.concatenate(hours) + start) * HOUR + np.datetime64("2024-03-01", "s"),
        "f32": f32,
        "f32b": rng.standard_normal(count).astype(np.float32),
        "i32": rng.integers(-99, 99, count).astype(np.int32),
        "f64": rng.standard_normal(count),
        "i64": rng.integers(-99, 99, count),
        "i16": rng.integers(-99, 99, count).astype(np.int16),
        "u8": rng.integers(0, 200, count).astype(np.uint8),
        "flag": rng.integers(0, 2, count).astype(bool),
        "half": torch.from_numpy(rng.standard_normal(count)).to(torch.bfloat16),
        "word": words.tolist(),
        "pack": torch.from_numpy(rng.standard_normal((count, 3)).astype(np.float32)),
        "codes": torch.from_numpy(rng.integers(0, 9, (count, 2)).astype(np.int16)),
        "size": of * 2.5,
        "rank": of.astype(np.int8),
    }
    columns: Any = {name: name for name in ("f32", "f32b", "f64", "half", "word", "pack")}
    columns |= {name: ts.column(name, empty=7) for name in ("i32", "i64", "i16", "u8", "codes")}
    columns |= {"flag": ts.column("flag", empty=True), "when": ts.calendar("hour", "dayofweek")}
    return ts.load(data, columns, entity="e", time="t", static=["size", "rank"])


SPANS: dict[str, tuple[Any, ...]] = {
    "past": ("f32", -6, 0),
    "other": ("f32b", -6, 0),
    "code": ("i32", -6, 0),
    "double": ("f64", -6, 3, 3),
    "long": ("i64", -3, 2),
    "small": ("i16", -5, 1, 2),
    "byte": ("u8", -6, 2, 2),
    "flag": ("flag", 0, 2),
    "half": ("half", -4, 0),
    "word": ("word", -2, 2),
    "pack": ("pack", -6, 0),
    "codes": ("codes", -6, 3, 8),
    "when": ("when", -2, 3),
}
FEW = {name: SPANS[name] for name in ("past", "pack", "when")}


@cache
def windows_of(kind: str, names: str = "abc", rows: int = 70, start: int = 0) -> ts.Windows:
    stash = partial(stash_of, names, rows, start)
    make: dict[str, Callable[[], ts.Windows]] = {
        "whole": lambda: ts.Windows(stash(whole=True), spans=SPANS),
        "short form": lambda: ts.Windows(stash(whole=True), 5, 2, columns=["f32", "f32b", "pack"]),
        "no horizon": lambda: ts.Windows(stash(whole=True), 5, columns=["f64", "word"], stride=3),
        "split": lambda: ts.Windows(stash(), spans=SPANS),
        "few": lambda: ts.Windows(stash(), spans=FEW),
        "few masked": lambda: ts.Windows(stash(), spans=FEW, gaps="mask", min_history=1),
        "ignore": lambda: ts.Windows(stash(), spans=SPANS, gaps="ignore", stride=2),
        "mask": lambda: ts.Windows(stash(), spans=SPANS, gaps="mask"),
        "mask ends": lambda: ts.Windows(stash(), spans=SPANS, gaps="mask", min_history=2, min_horizon=0),
        "lead": lambda: ts.Windows(stash(), spans=SPANS, min_history=1),
        "require": lambda: ts.Windows(stash(), spans=SPANS, require=["past"]),
        "masked require": lambda: ts.Windows(stash(), spans=SPANS, gaps="mask", require=["f32b"], where="flag"),
        "part": lambda: ts.Windows(stash(), spans=SPANS, gaps="mask").split("2024-03-02 12:00")[1],
        "entities": lambda: ts.Windows(stash(), spans=SPANS).split_entities(0.5, seed=3)[0],
        "fold": lambda: ts.Windows(stash(), spans=SPANS).folds(2, "8h")[1][0],
        "latest": lambda: ts.Windows(stash(), spans=SPANS, gaps="mask").latest(),
        "lanes": lambda: ts.Windows(stash(), spans={"past": ("f32", -4, 0), "next": ("pack", 0, 1)}, stride=4),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return make[kind]()


@cache
def mix_of(*kinds: str, weights: tuple[float, ...] | None = None, count: int | None = None) -> ts.Mix:
    windows = {
        f"part {k}": windows_of(kind, ["abc", "de", "f", "gh"][k], 60 + 15 * k, 5 * k) for k, kind in enumerate(kinds)
    }
    return ts.Mix(windows, None if weights is None else dict(zip(windows, weights)), count)


@cache
def shards_of(kind: str, shards: int, nodes: int = 1, node: int = 0) -> ShardedWindows:
    """Windows of several shards, of which each node holds every n-th."""
    names = ["ab", "c", "def", "gh", "i"][:shards]
    every = {k: windows_of(kind, name, 40 + 9 * k) for k, name in enumerate(names)}
    offsets = np.cumsum([0, *map(len, names)])

    manifest = SimpleNamespace(rows=sum(own.stash.rows for own in every.values()))
    about: dict[str, Any] = {"nodes": nodes, "manifest": manifest, "entity_offsets": offsets}
    opened: list[Any] = [SimpleNamespace(node=k, holds=partial(_held, shards), **about) for k in range(nodes)]
    own = [
        ShardedWindows({k: part for k, part in every.items() if k % nodes == here}, opened[here])
        for here in range(nodes)
    ]
    counts = {shard: count for part in own for shard, count in counts_of_node(part).items()}
    return replace(own[node], counts=[counts[shard] for shard in sorted(counts)])


def _held(shards: int, nodes: int) -> list[list[int]]:
    return [[*range(node, shards, nodes)] for node in range(nodes)]


# The loaders


def cases() -> dict[str, Case]:
    """Every loader by a name that tells its arguments."""
    made = [*_of_kinds(), *_orders(), *_ranks(), *_mixes(), *_shards()]
    assert len(dict(made)) == len(made)
    return dict(made)


Named = Iterator[tuple[str, Case]]


def _of_kinds() -> Named:
    kinds = ("whole", "short form", "no horizon", "split", "ignore", "mask", "mask ends", "lead", "require")
    for kind in (*kinds, "masked require", "part", "entities", "fold", "latest"):
        made = partial(windows_of, kind)
        yield f"{kind}, in order", Case(made)
        yield f"{kind}, shuffled, ids", Case(made, 7, {"shuffle": True, "seed": 3, "with_ids": True})


def _orders() -> Named:
    orders: dict[str, Any] = {
        "blocks": ts.Blocks(9),
        "by time": ts.ByTime(),
        "by time, shuffled": ts.ByTime(shuffle=True),
        "weighted by a column": ts.Weighted("u8", epoch_size=90),
        "weighted by entity": ts.Weighted([1.0, 0.0, 2.5], per="entity", epoch_size=70),
        "weighted by a static column": ts.Weighted("size", per="entity"),
    }
    for name, order in orders.items():
        for kind in ("split", "mask"):
            yield f"{kind}, {name}", Case(partial(windows_of, kind), 16, {**ordered(order), "with_ids": True})
    yield "cross-sections", Case(partial(windows_of, "mask"), None, {"order": ts.ByTime(), "with_ids": True})
    yield "lanes", Case(partial(windows_of, "lanes"), 4, {"order": ts.Lanes(4), "with_ids": True})
    ids = [5, 1, 5, 0, 7, 2, 2, 9, 30]
    yield "own ids", Case(partial(windows_of, "split"), 4, {"order": ids, "with_ids": True})


def _ranks() -> Named:
    sampled: dict[str, Callable[[], Any]] = {
        "windows": partial(windows_of, "split"),
        "masked windows": partial(windows_of, "mask"),
        "mix": partial(mix_of, "few", "few masked"),
    }
    for name, make in sampled.items():
        for ranks, tail in product((1, 2, 3), ("keep", "pad", "drop")):
            for rank in range(ranks):
                of = {"num_replicas": ranks, "rank": rank}
                yield (
                    f"{name}, rank {rank} of {ranks}, tail {tail}",
                    Case(make, 12, {"shuffle": True, "tail": tail} | of),
                )
        yield f"{name}, steps", Case(make, 16, {"shuffle": True, "steps": 11, "with_ids": True})
        yield f"{name}, valid", Case(make, 16, {"with_valid": True})
        yield f"{name}, one window a batch", Case(make, 1, {"shuffle": True, "steps": 40})
        yield f"{name}, one batch", Case(make, 512, {"with_ids": True})
        over_all = {"global_batch_size": 20, "num_replicas": 2, "rank": 1}
        yield f"{name}, over all ranks", Case(make, None, over_all)


def _mixes() -> Named:
    mixes: dict[str, Callable[[], ts.Mix]] = {
        "of one": partial(mix_of, "split"),
        "of two": partial(mix_of, "split", "require"),
        "of one masked and two not": partial(mix_of, "mask", "split", "ignore"),
        "of masked ones": partial(mix_of, "mask ends", "mask"),
        "by weights": partial(mix_of, "whole", "split", "mask", weights=(0.2, 5, 1)),
        "by weights, short": partial(mix_of, "split", "split", weights=(1, 3), count=50),
        "of four": partial(mix_of, "few", "few masked", "few", "few masked", weights=(1, 2, 3, 4)),
    }
    for name, mix in mixes.items():
        yield f"mix {name}, interleaved", Case(mix, 13)
        yield f"mix {name}, shuffled", Case(mix, 13, {"shuffle": True, "with_ids": True})


def _shards() -> Named:
    for kind in ("few", "few masked", "whole"):
        for shuffle in (False, True):
            title = f"shards {kind}, {'shuffled' if shuffle else 'interleaved'}"
            yield title, Case(partial(shards_of, kind, 4), 16, {"shuffle": shuffle, "with_ids": True})
    for rank in range(4):
        many = {"shuffle": True, "with_ids": True, "num_replicas": 4, "rank": rank}
        yield f"shards, rank {rank} of 4", Case(partial(shards_of, "few masked", 5, 2, rank // 2), 6, many)
    yield "shards, no ids", Case(partial(shards_of, "few", 3))


# Their checksums


def summary(case: Case, **more: Any) -> list[Any]:
    """The number of batches, and checksums of keys and dtypes, of values, of states, and of batches after a resume."""
    loader = case.loader(**more)
    states, batches = [], []
    for batch in loader:
        batches.append({name: tensor.to("cpu", copy=True) for name, tensor in batch.items()})
        states.append(_known(loader.state_dict()))
    return [len(batches), *_checksums(batches), _crc(json.dumps(states)), _resumed(case, more)]


def _resumed(case: Case, more: Mapping[str, Any]) -> str:
    """A pass that is left after its second batch and goes on in a loader of another batch size."""
    loader = case.loader(**more)
    for taken, _ in enumerate(loader):
        if taken == 1:
            break
    size = None if case.batch_size is None else max(1, case.batch_size // 2)
    same = size is None or isinstance(case.arguments.get("order"), ts.Lanes)
    other = case.loader(**more) if same else replace(case, batch_size=size).loader(**more)
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    return _checksums([batch for _, batch in zip(range(4), other)])[1]


def indexed(sampled: ts.Windows | ts.Mix) -> list[str]:
    """Checksums of a batch and of one window by their numbers, and of a batch of windows in another order."""
    ids = np.arange(len(sampled))[::-3][:20]
    some = [sampled[ids], {name: tensor[None] for name, tensor in sampled[3 % len(sampled)].items()}]
    if isinstance(sampled, ts.Windows):
        some.append(dict(sampled[ids[::-1]]))
    return [_checksums([batch])[1] for batch in some]


def _checksums(batches: Iterable[Batch]) -> tuple[str, str]:
    kept = [{name: tensor for name, tensor in batch.items() if name != "window.key"} for batch in batches]
    kinds = {name: [str(tensor.dtype), list(tensor.shape[1:])] for batch in kept for name, tensor in batch.items()}
    return _crc(json.dumps([[*batch] for batch in kept[:1]] + [kinds])), _crc(b"".join(map(_bytes, kept)))


def _bytes(batch: Batch) -> bytes:
    parts = (
        name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for name, tensor in batch.items()
    )
    return b"".join(parts)


def forget() -> None:
    """Let windows be made anew, because they keep how they are gathered."""
    for made in (windows_of, mix_of, shards_of):
        made.cache_clear()


def _known(value: Any) -> Any:
    """A state, and of the fingerprint in it what has always been there."""
    if isinstance(value, Mapping) and "fingerprint" in value:
        state = {**value, "fingerprint": _known_parts(value["fingerprint"])}
        if state.pop("draws", None) is not None:  # of a mix, whose weights stood in the fingerprint
            first = {name: state["fingerprint"][name] for name in ("windows", "count", "components")}
            state["fingerprint"] = first | {"weights": [*state.pop("weights").values()]} | state["fingerprint"]
        return {name: state[name] for name in sorted(state, key="ids".__eq__)}  # ids stood last
    return value


def _known_parts(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {
        RENAMED.get(name, name): _known_parts(value) if name.startswith("component ") else value
        for name, value in fingerprint.items()
        if RENAMED.get(name, name) in KNOWN or name.startswith("component ")
    }


def _crc(data: bytes | str) -> str:
    return f"{zlib.crc32(data.encode() if isinstance(data, str) else data):08x}"


def all_indexed() -> Iterator[tuple[str, list[str]]]:
    for kind in ("whole", "split", "mask ends", "no horizon", "masked require"):
        yield f"{kind}, by number", indexed(windows_of(kind))
    for kinds in (("split",), ("few masked", "few"), ("mask", "split", "ignore")):
        yield f"mix of {', '.join(kinds)}, by number", indexed(mix_of(*kinds))


def main() -> None:
    found = {name: summary(case) for name, case in cases().items()} | dict(all_indexed())
    FILE.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")


if __name__ == "__main__":
    main()
