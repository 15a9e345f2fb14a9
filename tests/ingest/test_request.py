"""The arguments of loads, which several functions take, are the same in all of them."""

import inspect

import pytest

import tensorstash as ts

KEPT = [
    "share",
    "file",
    "version",
    "overwrite",
    "timeout",
    "progress",
]  # where a stash is kept, and how it is waited for


def parameters(function: object) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "others"),
    [
        (ts.load, KEPT),
        (ts.cluster.shard, ["to", "shards", "engine", "workers", "progress"]),
    ],
)
def test_load_and_shard_take_what_a_plan_takes(function: object, others: list[str]) -> None:
    asked, taken = parameters(ts.plan), parameters(function)
    required = ["entity"] if function is ts.cluster.shard else []
    # it makes all shards, from one source, and tables with known times stay whole
    lacking = {"shard", "like", "unknown", "known"} if function is ts.cluster.shard else set()
    assert [name for name in taken if name not in others] == [name for name in asked if name not in lacking]
    for name in set(asked) - lacking - set(required):
        assert (taken[name].kind, taken[name].default) == (asked[name].kind, asked[name].default)


def test_a_plan_is_loaded_with_the_arguments_that_load_has_beside_those_of_a_plan() -> None:
    loads, of_plan = parameters(ts.load), parameters(ts.Plan.load)
    assert [name for name in of_plan if name != "self"] == KEPT == [name for name in loads if name in of_plan]
    assert [of_plan[name].default for name in KEPT] == [loads[name].default for name in KEPT]


def test_load_documents_every_argument() -> None:
    text = inspect.getdoc(ts.load)
    assert text is not None
    assert [name for name in parameters(ts.load) if f"\n    {name}: " not in text] == []
