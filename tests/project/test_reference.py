"""The reference: what docstrings say of every public name, its arguments and its attributes, and that they show it."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorstash as ts
from tensorstash.common.public import NAMES

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from docstrings import (  # of the site, whose pages of the reference are docstrings
    MADE,
    MEMBERS,
    keep_colons,
    leave_out_inside,
    name_types,
    shorten_types,
)

SHOWN = ("__call__", "__getitem__")  # methods whose names begin with an underscore, and which users call


def names() -> Iterator[tuple[str, Any]]:
    """The functions and classes of `ts` and of its modules, but for errors, which have a page of their own."""
    for name, public in NAMES.items():
        value = getattr(ts, name)
        inside = [(f"{name}.{each}", getattr(value, each)) for each in dir(value)] if public.kind == "module" else []
        for full, each in inside or [(name, value)]:
            if not (isinstance(each, type) and issubclass(each, Exception)):
                yield full, each


def members(owner: type) -> dict[str, Any]:
    """The methods and properties of a class that are for users, as they stand in it."""
    found: dict[str, Any] = {}
    for base in owner.__mro__[::-1]:
        for name, value in vars(base).items() if base.__module__.startswith("tensorstash") else ():
            inside = {f"{each.__name__}.{name}" for each in owner.__mro__} & MEMBERS
            is_shown = not name.startswith("_") or name in SHOWN
            is_code = hasattr(value, "__get__") and not inspect.ismemberdescriptor(value)  # that is a slot
            if is_shown and is_code and not inside:
                found[name] = value
    return found


def described(documented: Any, *heads: str) -> dict[str, str]:
    """What sections of a docstring say, by the name that each entry begins with."""
    text = inspect.getdoc(documented) or ""
    found: dict[str, str] = {}
    for head in heads:
        section = re.search(rf"^{head}:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
        text_of_section = section[1] if section else ""
        entries = re.findall(r"^    \**(\w+): ((?:.*\n?)(?:     .*\n?|\n)*)", text_of_section, re.MULTILINE)
        found |= {name: " ".join(entry.split()) for name, entry in entries}
    return found


def described_arguments(documented: Any) -> dict[str, str]:
    """What a docstring says of arguments, by itself or by naming whose arguments the others are."""
    others = re.search(r"other arguments are those of `ts\.(\w+)`", inspect.getdoc(documented) or "")
    return (described(getattr(ts, others[1]), "Args") if others else {}) | described(documented, "Args")


def arguments(called: Any) -> dict[str, inspect.Parameter]:
    function = getattr(called, "__func__", called)
    return {k: v for k, v in inspect.signature(function).parameters.items() if k not in ("self", "cls")}


def attributes(owner: type) -> set[str]:
    """The names that an object of a class has: its fields, or what its constructor assigns."""
    fields = getattr(owner, "__dataclass_fields__", None)  # that of a dataclass may be empty
    source = inspect.getsource(inspect.unwrap(owner.__init__)) if fields is None else ""  # type: ignore[misc]
    assigned = " ".join(re.findall(r"^ {8}(self\..*) = ", source, re.MULTILINE))
    found = {*(fields or ())} | {*re.findall(r"self\.(\w+)", assigned)}
    return {name for name in found if not name.startswith("_") and f"{owner.__name__}.{name}" not in MEMBERS}


def is_said(text: str, default: Any) -> bool:
    """Whether a description says what a default means; that of a flag that is off is what it does not say."""
    if default is inspect.Parameter.empty or default is False or default == ():
        return True
    shown = "`False`" if default is True else f'"{default}"' if isinstance(default, str) else f"`{default}`"
    return shown in text or (default is not True and bool(re.search(r"[Dd]efault|[Ww]ithout", text)))


def faults_of(name: str, documented: Any, parameters: dict[str, inspect.Parameter]) -> list[str]:
    """What the docstring of a function or a constructor lacks."""
    said, own = described_arguments(documented), described(documented, "Args")
    lacking = [f"{name}({one}=) is not described" for one in parameters.keys() - said.keys()]
    unknown = [f"{name}({one}=) does not exist" for one in own.keys() - parameters.keys()]
    silent = [
        f"{name}({one}=) does not say what {parameter.default!r} means"
        for one, parameter in parameters.items()
        if one in said and not is_said(said[one], parameter.default)
    ]
    elsewhere = [f"{name}({one}=) is described elsewhere" for one in said if re.search(r"\bas (in|for) `", said[one])]
    return [*lacking, *unknown, *silent, *elsewhere]


def faults() -> Iterator[str]:
    for name, value in names():
        made = name.split(".")[-1] in MADE
        yield from faults_of(name, value, {} if made else arguments(value))
        if "\nExample:\n" not in f"{inspect.getdoc(value)}":
            yield f"{name} has no example"
        if not isinstance(value, type):
            continue
        said = described(value, "Args", "Attributes")
        own = attributes(value)
        yield from (f"{name}.{one} is not described" for one in own - said.keys())
        known = own | {*dir(value)} | arguments(value).keys()
        yield from (f"{name}.{one} does not exist" for one in said.keys() - known)
        for member, one in members(value).items():
            full = f"{name}.{member}"
            if not inspect.getdoc(one):
                yield f"{full} is not described"
            if callable(one) or isinstance(one, classmethod | staticmethod):
                yield from faults_of(full, one, arguments(one))
                if member not in SHOWN and "\nExample:\n" not in f"{inspect.getdoc(one)}":
                    yield f"{full} has no example"


def test_every_argument_and_attribute_is_described_and_every_name_has_an_example() -> None:
    assert sorted({*faults()}) == []


def test_what_a_docstring_lacks_is_named() -> None:
    def lacking(first: int, second: str | None = None, third: str = "all", *, fourth: bool = True) -> None:
        """What.

        Args:
            second: a text that goes on in a
                second line.
            third: as in `ts.load`, by default all.
            fourth: whether.
            fifth: a number.
        """

    assert faults_of("f", lacking, arguments(lacking)) == [
        "f(first=) is not described",
        "f(fifth=) does not exist",
        "f(second=) does not say what None means",
        "f(fourth=) does not say what True means",
        "f(third=) is described elsewhere",
    ]
    assert described(lacking, "Args")["second"] == "a text that goes on in a second line."


def test_a_docstring_may_say_whose_the_other_arguments_are() -> None:
    def windows(stash: ts.Stash, history: int | None = None, made_up: int = 0) -> None:
        """What. The other arguments are those of `ts.Windows`.

        Args:
            stash: another one.
            fifth: a number.
        """

    assert described_arguments(windows)["stash"] == "another one."
    assert faults_of("f", windows, arguments(windows)) == [
        "f(made_up=) is not described",
        "f(fifth=) does not exist",
    ]


def test_pages_leave_out_what_only_other_rooms_use() -> None:
    left_out = [vars(ts.Blocks)["bind"], vars(ts.Weighted)["bind"], ts.Stash.items]
    kept = [vars(ts.Scaler)["bind"], vars(ts.Stash)["time"], vars(ts.Windows)["points"]]
    assert [leave_out_inside(None, "class", "", one, False, None) for one in left_out] == [True, True, True]
    assert [leave_out_inside(None, "class", "", one, False, None) for one in kept] == [None, None, None]


def test_what_precedes_a_colon_in_a_result_is_no_type() -> None:
    lines = ["What.", "", "Returns:", "    A frame: of", "    two columns.", ""]
    keep_colons(None, "function", "f", None, None, lines)
    assert lines == ["What.", "", "Returns:", "    : A frame: of", "    two columns.", ""]


def test_types_of_arguments_are_those_that_users_know() -> None:
    signature = "(source: Source, windows: ~tensorstash.sampling.several.Several | Count)"
    named = "(source: str | pl.Expr, windows: Mix | ShardedWindows)"
    assert name_types(None, "function", "f", None, None, signature, "Count") == (named, "Count")
    lines = ["   a.b.Of a.b", "   :type: collections.abc.Mapping[int, tensorstash.stash.stash.Stash]"]
    shorten_types(None, "class", "C", None, None, lines)
    assert lines == ["   a.b.Of a.b", "   :type: Mapping[int, Stash]"]


def test_objects_show_nothing_of_the_inside(tmp_path: Path) -> None:
    data = {"e": ["a", "b"], "y": [1.0, 2.0]}
    plan, manifest = ts.plan(data, ["y"], entity="e"), ts.cluster.shard(data, ["y"], entity="e", shards=1, to=tmp_path)
    stash, shards = plan.load(), ts.cluster.open(tmp_path)
    windows, sharded = ts.Windows(stash, history=1), ts.cluster.windows(shards, history=1)
    loader, sampler, mix = ts.Loader(windows, 1), ts.Sampler(windows, 1), ts.Mix({"one": windows})
    for thing in (plan, manifest, stash, shards, windows, sharded, loader, sampler, mix):
        owners = {each.__name__ for each in type(thing).__mro__}
        assert not {f"{owner}.{name}" for owner in owners for name in dir(thing)} & MEMBERS
    assert {"split", "latest", "spans"} <= {*dir(windows)}
