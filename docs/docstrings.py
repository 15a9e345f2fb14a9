"""What pages of the reference have beside docstrings, and where napoleon would misread these."""

import re

import tensorstash as ts
from tensorstash.common.public import INSIDE, NAMES, listed

# the page of the guide that a name belongs to; `room.name` for what is not in `ts` itself
GUIDES = {
    name: public.page
    for short, public in NAMES.items()
    for name in ([f"{short}.{one}" for one in dir(getattr(ts, short))] if public.kind == "module" else [short])
}
PICTURES = {
    "Windows": "spans.svg",
    "During": "during.svg",
    "Draw": "draw.svg",
    "PackSequences": "packing.svg",
    "Mix": "mix.svg",
    "plot.coverage": "coverage.png",
    "plot.series": "series.png",
    "plot.windows": "windows.png",
    "plot.forecast": "forecast.png",
}

# classes that functions make: users read their attributes and call their methods, and never construct one
MADE = ["Manifest", "Plan", "Scaler", "ShardRecord", "ShardedWindows", "Shards", "Stash"]
MEMBERS = {f"{owner}.{name}" for owner, names in INSIDE.items() for name in names.split()}

_NAMED = re.compile(r"(?<=[.;]) (?=[A-Z]\w*(?:Error|Warning)\b(?:, from `ts\.\w+`|[^.:]*): )")


def leave_out_inside(app: object, what: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """Leave out members that are not for users, or of a base of Python's; `None` leaves the decision to Sphinx."""
    function = getattr(member, "fget", None) or getattr(member, "func", None) or member
    foreign = not (getattr(function, "__module__", None) or "tensorstash").startswith("tensorstash")
    return True if foreign or getattr(function, "__qualname__", None) in MEMBERS else None


def keep_colons(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put an empty comment, or an empty type, in front of a text: napoleon takes what precedes a colon for a type."""
    if what == "property":
        lines[:0] = ["..", ""]
    if "Returns:" in lines:
        first = lines.index("Returns:") + 1
        lines[first] = f"    : {lines[first].strip()}"


def lead_to_guide(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put the picture of a name behind its first paragraph, and a link to its page of the guide."""
    short = name.removeprefix("tensorstash.")
    if short not in GUIDES:
        return
    more = [f"Guide: :doc:`/{GUIDES[short]}`.", ""]
    if short in PICTURES:
        picture = [f"   .. image:: /pictures/{PICTURES[short]}", f"      :alt: {short}"]
        more = [".. container:: picture", "", *picture, "", *more]
    end = lines.index("") if "" in lines else len(lines)
    lines[end:end] = ["", *more]


def name_types(
    app: object, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Name the types of arguments as users know them: protocols and base classes are of the inside."""
    known = {
        "Several": "Mix | ShardedWindows",
        "Bindable": listed("order").replace(", ", " | ").replace("ts.", ""),
        "Source": "str | pl.Expr",
    }
    for inside, outside in known.items():
        signature = signature and re.sub(rf"(?<![\w.])(?:~?[\w.]+\.)?{inside}\b", outside, signature)
    return signature and re.sub(r" \| ~?[\w.]*\bCount\b", "", signature), returned


def leave_out_skips(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Leave out what an example does for machines without matplotlib alone."""
    kept = [line for line in lines if "pytest.importorskip" not in line and "matplotlib.use(" not in line]
    lines[:] = [re.sub(r"\bpytest, |, pytest\b", "", line) for line in kept]


def list_errors(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put every error of `Raises:` and `Warns:` on one line; Sphinx hands in the lines, and takes them changed."""
    for head in ("Raises:", "Warns:"):
        if head not in lines:
            continue
        start = lines.index(head) + 1
        end = next((k for k in range(start, len(lines)) if not lines[k].strip()), len(lines))
        paragraph = " ".join(line.strip() for line in lines[start:end])
        errors = [re.sub(r"^(\w+), (from `ts\.\w+`): ", r"\1: \2: ", error) for error in _NAMED.split(paragraph)]
        lines[start:end] = [f"    {error}" for error in errors]


def shorten_types(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Leave out the modules in the types of attributes, as signatures do; napoleon writes these types."""
    lines[:] = [re.sub(r"\b(?:[a-z_]+\.)+(?=\w)", "", line) if ":type:" in line else line for line in lines]
