"""Mixes through loaders: what is refused, what batches carry, how much of each component, a thousand components."""

import re
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tensorstash.errors import SchemaError


def stash(rows: int, first: int = 0, **more: Any) -> ts.Stash:
    """Two entities, a text column, a static column."""
    table = {
        "e": ["a"] * (rows // 2) + ["b"] * (rows - rows // 2),
        "t": [*range(rows // 2), *range(rows - rows // 2)],
        "y": np.arange(first, first + rows, dtype=np.float32),
        "k": ["u", "v"] * (rows // 2) + ["u"] * (rows % 2),
        "size": np.repeat([first + 0.5, first + 1.5], [rows // 2, rows - rows // 2]),
    }
    return ts.load(table | more, ["y", "k"], static=["size"], entity="e", time="t")


def windows(of: ts.Stash, **arguments: Any) -> ts.Windows:
    return ts.Windows(of, spans={"past": ("y", -2, 0), "kind": ("k", 0, 1)}, **arguments)


def test_static_columns_and_ids_are_those_of_the_component() -> None:
    parts = {"one": windows(stash(12)), "two": windows(stash(20, 100)), "three": windows(stash(9, 1000))}
    loader = ts.Loader(ts.Mix(parts), 7, shuffle=True, with_ids=True)
    seen = []
    for batch in loader:
        for k, (source, window) in enumerate(zip(batch["source"].tolist(), batch["window"].tolist())):
            own = [*parts.values()][source]
            for name, value in own[window].items():
                assert torch.equal(batch[name][k], value), name
            about = own.anchors([window])
            assert batch["entity"][k] == about["entity"][0]
            assert batch["anchor"][k] == about["time"][0]
            seen.append((source, window))
    assert sorted(seen) == [(c, k) for c, part in enumerate(parts.values()) for k in range(len(part))]


def test_observed_is_there_if_any_component_has_it() -> None:
    plain, padded = windows(stash(12)), windows(stash(20, 100), min_history=1)
    for batch in ts.Loader(ts.Mix({"plain": plain, "padded": padded}), 9, shuffle=True, with_ids=True):
        for k, (source, window) in enumerate(zip(batch["source"].tolist(), batch["window"].tolist())):
            expected = [plain, padded][source][window]
            assert torch.equal(batch["past"][k].nan_to_num(-1), expected["past"].nan_to_num(-1))
            observed = expected.get("past.observed", torch.tensor([True, True]))
            assert torch.equal(batch["past.observed"][k], observed)
            assert batch["kind.observed"][k].all()


def test_stats_count_the_windows_of_each_component() -> None:
    parts = {"one": windows(stash(12)), "two": windows(stash(20, 100))}
    loader = ts.Loader(ts.Mix(parts, weights={"one": 3, "two": 1}, count=40), 8, shuffle=True, with_ids=True)
    assert loader.stats()["windows"] == {"one": 0, "two": 0}
    for epoch in range(2):
        counted = [0, 0]
        for k, batch in enumerate(loader):
            for source in batch["source"].tolist():
                counted[source] += 1
            assert loader.stats()["windows"] == {"one": counted[0], "two": counted[1]}
            assert abs(counted[0] - 6 * (k + 1)) <= 2
        assert loader.stats()["windows"] == {"one": 30, "two": 10}, epoch


def test_a_thousand_components() -> None:
    """Each batch is from hundreds of stashes; an epoch shows every window once."""
    source = {"y": torch.arange(5000.0)}
    parts = {
        f"part {k}": ts.Windows(ts.load({"y": source["y"][5 * k : 5 * k + 5]}), spans={"past": ("y", -2, 1)})
        for k in range(1000)
    }
    mix = ts.Mix(parts)
    assert len(mix) == 3000
    seen: list[float] = []
    for batch in ts.Loader(mix, 1024, shuffle=True, seed=1):
        past = batch["past"]
        assert torch.equal(past, past[:, :1] + torch.arange(3))
        seen += past[:, 0].tolist()
    assert sorted(seen) == [5.0 * k + j for k in range(1000) for j in range(3)]
    assert repr(mix).count("\n") == 9


def test_components_without_a_weight_need_no_windows() -> None:
    whole = windows(stash(12))
    some, none = whole.split(5)[0], whole.split(-5)[0]
    assert not len(none)
    mix = ts.Mix({"none": none, "some": some})
    assert sorted(k for batch in ts.Loader(mix, 3, with_ids=True) for k in batch["window"].tolist()) == [
        *range(len(some))
    ]


def test_components_that_differ_are_refused_with_what_differs() -> None:
    one = windows(stash(12))
    untimed = ts.load({"y": np.zeros(9, np.float32), "k": ["u", "v", "u"] * 3})
    zoned = {"t": np.arange("2020-01-01", "2020-01-13", dtype="M8[D]").astype("M8[us]")}
    for two, message in (
        (
            ts.Windows(one.stash, spans={"past": ("y", -3, 0), "kind": ("k", 0, 1)}),
            "spans; 'one' has ['past=y[-2:0]', ",
        ),
        (windows(stash(12, y=np.zeros(12))), "type of 'y'; 'one' has 'torch.float32', 'two' has 'torch.float64'."),
        (windows(stash(12, k=["w", "v"] * 6)), "vocabulary of 'k'; 'one' has ['u', 'v'], 'two' has ['w', 'v']."),
        (windows(stash(12, k=np.zeros(12, np.int32))), "kind of 'k'; 'one' has ('category', None, None), 'two' has "),
        (windows(untimed), "static columns; 'one' has ['size'], 'two' has []."),
        (windows(stash(12, size=np.zeros(12, np.int64))), "type of 'size'; 'one' has 'torch.float64', 'two' has "),
        (windows(stash(12, **zoned)), "unit of times; 'one' has None, 'two' has 'us'."),
    ):
        with pytest.raises(SchemaError, match="^" + re.escape(f"The components of a mix have the same {message}")):
            ts.Mix({"one": one, "two": two})


def test_what_does_not_fit_is_refused() -> None:
    one = windows(stash(12))
    with pytest.raises(TypeError, match=r"^A mix takes a mapping from names to windows; got a list\.$"):
        ts.Mix([one])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^A mix is of windows, ts\.Windows\(stash, \.\.\.\); 'a' is a Stash\.$"):
        ts.Mix({"a": one.stash})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"^count= is an integer of at least 1; got 0\.$"):
        ts.Mix({"a": one}, count=0)
    with pytest.raises(
        ValueError, match=r"^weights= has a weight for each component; 'a' has none\. Give it 0 to leave"
    ):
        ts.Mix({"a": one}, weights={})
    source = ts.Windows(one.stash, spans={"source": ("y", -1, 0)})
    with pytest.raises(SchemaError, match=r"^Batches of a mix hold which component a window is of under 'source', so"):
        ts.Mix({"a": source})
    mix = ts.Mix({"a": one})
    for shuffle in (ts.Blocks(3), ts.Lanes(2), ts.ByTime(), ts.Weighted([1.0])):
        message = f"A mix is permuted, shuffle=True, or interleaved, shuffle=False; got {shuffle!r}."
        with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
            ts.Loader(mix, 2, shuffle=shuffle)
    with pytest.raises(
        ValueError, match=r"^A mix is permuted, shuffle=True, or interleaved, shuffle=False; got sampler=\.$"
    ):
        ts.Loader(mix, 2, sampler=[0, 1])


def test_a_state_of_another_mix_is_refused() -> None:
    one, two = windows(stash(12)), windows(stash(20))
    state = ts.Loader(ts.Mix({"a": one, "b": two}), 4, shuffle=True).state_dict()
    for other in (
        ts.Mix({"a": one, "b": two}, count=10),
        ts.Mix({"a": one, "b": two}, weights={"a": 1, "b": 1}),
        ts.Mix({"b": two, "a": one}),
        ts.Mix({"a": one, "c": two}),
    ):
        with pytest.raises(ValueError, match=r"^A state continues the same windows in the same order; these differ: "):
            ts.Loader(other, 4, shuffle=True).load_state_dict(state)
    ts.Loader(ts.Mix({"a": one, "b": two}), 4, shuffle=True).load_state_dict(state)
