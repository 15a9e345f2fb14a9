"""The words of the script on both sides, where words were renamed."""

from pathlib import Path
from typing import Any

import pytest

import tensorstash as ts
from tests.differential.compare import Version, differences
from tests.differential.words import (
    RENAMED,
    Argument,
    Entry,
    Field,
    Line,
    Member,
    Name,
    New,
    NotThereError,
    Side,
    Spoken,
    Words,
    is_ids,
    is_mapping,
    is_order,
    member_of,
)

LINES: tuple[Line, ...] = (
    Name("Pack", "PackSequences"),
    Argument("load", "repeated", "duplicates"),
    Argument("Loader", "shuffle", "order", when=is_order),
    Argument("Loader", "sampler", "order", when=is_ids),
    Argument("PackSequences", "length", "room"),
    Member("Scaler", "undo", "inverse(batch)"),
    Member("Loader", "windows", "dataset"),
    Entry(".begin", ".start"),
    Entry("valid", "whole"),
    Field("count", "epoch_size"),
)
HERE, EARLIER = Words("here", LINES), Words("earlier", LINES)


@pytest.mark.parametrize("name", ["Pack", "PackSequences"])
def test_either_name_of_a_class_is_each_sides_own(name: str) -> None:
    assert (HERE.name(name), EARLIER.name(name)) == ("PackSequences", "Pack")
    assert HERE.shown_name("Pack") == EARLIER.shown_name("Pack") == "PackSequences"
    assert HERE.name("cluster.shard") == "shard"


def test_keywords_are_renamed_for_their_function_alone() -> None:
    for given in ({"repeated": "keep"}, {"duplicates": "keep"}):
        assert HERE.arguments("load", given) == {"duplicates": "keep"}
        assert EARLIER.arguments("load", given) == {"repeated": "keep"}
        assert EARLIER.arguments("plan", given) == given


@pytest.mark.parametrize(("value", "old"), [(ts.Blocks(3), "shuffle"), ([1, 2], "sampler")])
def test_one_new_word_for_several_old_ones_goes_by_the_value(value: Any, old: str) -> None:
    for name in (old, "order"):
        assert HERE.arguments("Loader", {name: value}) == {"order": value}
        assert EARLIER.arguments("Loader", {name: value}) == {old: value}
    assert HERE.arguments("Loader", {"shuffle": True}) == EARLIER.arguments("Loader", {"shuffle": True})


def test_a_method_with_two_meanings_is_renamed_for_one_of_them() -> None:
    assert HERE.member(["Scaler"], "inverse(batch)") == HERE.member(["Scaler"], "undo") == "inverse"
    assert EARLIER.member(["Scaler"], "inverse(batch)") == "undo"
    assert EARLIER.member(["Scaler"], "inverse") == "inverse"
    assert EARLIER.member(["InstanceNorm"], "inverse(batch)") == "inverse"


def test_what_a_batch_and_a_state_hold_has_the_new_words() -> None:
    assert EARLIER.entry("past.begin") == "past.start"
    assert EARLIER.entry("valid") == "whole"
    assert EARLIER.entry("past.valid") == "past.valid"
    assert EARLIER.fields({"count": 3, "of": [{"count": 4}]}) == {"epoch_size": 3, "of": [{"epoch_size": 4}]}


def test_the_library_is_called_with_its_own_words() -> None:
    words = Words("here", [Argument("load", "repeated", "duplicates"), Name("Pack", "PackSequences")])
    spoken = Spoken(ts, words)
    windows = spoken.Windows(spoken.load({"y": [1.0, 2.0]}, repeated="error"), 1)
    assert len(windows) == 2
    assert spoken.Pack("y", length=4) == ts.PackSequences("y", length=4)
    assert member_of(spoken.Pack("y", length=4), "length", words) == 4


def test_what_the_earlier_commit_does_not_have_follows_from_its_package() -> None:
    """This package stands for the earlier one."""
    here, earlier = Spoken(ts, Words("here")), Spoken(ts, Words("earlier"))
    stash = earlier.load({"y": [1.0, 2.0]})
    for made in (
        lambda: earlier.Windows(stash, 1, stride_by=3),
        lambda: earlier.ByNothing,
        lambda: earlier.Windows.split_nothing,
        lambda: member_of(stash, "nothing", Words("earlier")),
    ):
        with pytest.raises(NotThereError, match=r"\A(Windows stride_by|ByNothing|\w+\.(split_)?nothing)\Z"):
            made()
    assert len(earlier.Windows(stash, 1, stride=1)) == len(here.Windows(stash, 1, stride=1)) == 2
    with pytest.raises(TypeError):
        here.Windows(stash, 1, stride_by=3)
    with pytest.raises(AttributeError):
        _ = here.ByNothing


def test_new_values_of_a_keyword_are_not_given_to_the_earlier_side() -> None:
    lines = [New("Windows", "require", when=is_mapping)]
    stash = ts.load({"y": [1.0, 2.0]})
    for require in (["y"], {"y": 0.5}):
        assert len(Spoken(ts, Words("here", (), lines)).Windows(stash, 1, require=require)) == 2
    earlier = Spoken(ts, Words("earlier", (), lines))
    assert len(earlier.Windows(stash, 1, require=["y"])) == 2
    with pytest.raises(NotThereError, match=r"\AWindows require\Z"):
        earlier.Windows(stash, 1, require={"y": 0.5})


def test_a_case_that_the_earlier_side_does_not_have_is_not_compared_with_it() -> None:
    absent: dict[str, Any] = {"case": 1, "kind": "load", "about": [], "parts": [], "absent": True}
    there = {**absent, "about": ["rows"], "parts": [["rows", "x"]], "absent": False}
    pair = Version("earlier", Path(), "earlier"), Version("here", Path(), "here")
    assert [*differences(pair, [absent], [there])] == []
    assert len([*differences(pair, [{**absent, "absent": False}], [there])]) == 1


@pytest.mark.parametrize("side", ["here", "earlier"])
def test_both_sides_call_all_that_is_not_listed_by_one_name(side: Side) -> None:
    assert Words(side, ()).arguments("load", {"repeated": "keep"}) == {"repeated": "keep"}


def test_each_line_of_the_table_names_what_is_here() -> None:
    for line in RENAMED:
        if isinstance(line, Name):
            thing: Any = ts
            for part in line.new.split("."):
                thing = getattr(thing, part)
