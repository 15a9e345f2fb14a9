"""What pages of the reference have beside docstrings, and where napoleon would misread these."""

import re

# the page of the guide that a name belongs to, and its picture; `room.name` for what is not in `ts` itself
GUIDES = {
    "guide/stash": ["load", "plan", "Plan", "Stash"],
    "guide/sharing": ["attach", "shared.list", "shared.remove", "shared.prune"],
    "guide/on-disk": ["open"],
    "guide/columns": ["column", "hashed", "is_valid"],
    "guide/sources": ["path"],
    "guide/derived": ["calendar"],
    "guide/windows": ["Windows", "Draw"],
    "guide/events": ["During"],
    "how-to/pretraining": ["each", "PackSequences"],
    "guide/ranks": ["Loader", "Sampler"],
    "guide/orders": ["Blocks", "Lanes", "Weighted", "ByTime", "Mix"],
    "guide/transforms": ["Scaler", "InstanceNorm", "Cast", "Cross"],
    "guide/gallery": ["plot.coverage", "plot.series", "plot.windows", "plot.forecast"],
    "guide/several-machines": [
        *("cluster.shard", "cluster.open", "cluster.windows", "cluster.exchange_counts", "cluster.fit_scaler"),
        *("cluster.Shards", "cluster.ShardedWindows", "cluster.Manifest", "cluster.ShardRecord", "cluster.shard_of"),
    ],
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
_GUIDE_OF = {name: page for page, names in GUIDES.items() for name in names}

_NAMED = re.compile(r"(?<=[.;]) (?=[A-Z]\w*(?:Error|Warning)\b[^.:]*: )")


def keep_colons(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put an empty comment in front of a property's text: napoleon takes what precedes a colon there for a type."""
    if what == "property":
        lines[:0] = ["..", ""]


def lead_to_guide(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put the picture of a name behind its first paragraph, and a link to its page of the guide."""
    short = name.removeprefix("tensorstash.")
    if short not in _GUIDE_OF:
        return
    more = [f"Guide: :doc:`/{_GUIDE_OF[short]}`.", ""]
    if short in PICTURES:
        picture = [f"   .. image:: /pictures/{PICTURES[short]}", f"      :alt: {short}"]
        more = [".. container:: picture", "", *picture, "", *more]
    end = lines.index("") if "" in lines else len(lines)
    lines[end:end] = ["", *more]


def name_types(
    app: object, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Name the types of arguments as users know them: protocols and base classes are of the inside."""
    known = {"Several": "Mix | ShardedWindows", "Bindable": "Blocks | Lanes | Weighted | ByTime"}
    for inside, outside in known.items():
        signature = signature and re.sub(rf"(?<![\w.])(?:~?[\w.]+\.)?{inside}\b", outside, signature)
    return signature, returned


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
        lines[start:end] = [f"    {error}" for error in _NAMED.split(paragraph)]
