"""All results on one page, `benchmarks/results/README.md`: the kinds of machines side by side, with the range.

python benchmarks/table.py
"""

from collections.abc import Callable, Sequence

import record
from feeds import OURS, share_of
from timing import Ratio, Rounds

LONG = 20  # rows

Table = tuple[list[str], list[list[str]]]  # the heads, and the cells of each row
Kinds = dict[str, tuple[record.Row, list[record.Row]]]  # about a run and its rows, by the kind of machine

# of the comparison, as a reader knows them; the table has all
FAMILIAR = {
    "C loop": "a loop in C that only copies",
    "tensorstash (packed)": "tensorstash",
    "strided index_select (huge pages)": "index_select by hand, huge pages",
    "DataLoader (one packed slice)": "DataLoader, one slice a window",
    "darts": "darts",
    "DataLoader (dict of slices)": "DataLoader, a dict of slices",
}

SHOWN = ("train", "compare", "bench_batch", "bench_mix", "bench_share")


# Tables of one kind of machine


def train(rows: list[record.Row]) -> Table:
    """A row for each feed of each model and data set, the fastest first."""
    heads = ["", "feed", "epoch, s", "ours beside it", "waiting for data", "MB of all", "to the first batch, s", ""]
    cells = []
    for model, data in dict.fromkeys((row["model"], row["data"]) for row in rows):
        own = [row for row in rows if (row["model"], row["data"]) == (model, data)]
        for row in sorted(own, key=lambda row: row["epoch_s"]):
            times = [record.round_number(row[key]) for key in ("epoch_s", "epoch_low_s", "epoch_high_s")]
            cells.append(
                [
                    f"{model}, {data}",
                    record.title(row),
                    f"{times[0]} ({times[1]} to {times[2]})",
                    "" if row["name"] == OURS else f"{share_of(row)}",
                    f"{row['waiting']:.0%}",
                    f"{row['memory_mb']:,.0f}",
                    record.round_number(row["first_batch_s"]),
                    row["note"],
                ]
            )
    return heads, cells


def compare(rows: list[record.Row]) -> Table:
    """A row for each contestant, the fastest of each shape of data first."""
    heads = ["", "ratio to C", "windows/s", "GB/s", "first batch, s", "with imports, s", "peak MB", ""]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    return heads, [
        [
            record.title(row),
            ratio_of(row),
            f"{float(format(row['windows_per_s'], '.2g')):,.0f}",
            f"{row['gb_per_s']:.2g}",
            f"{row['first_batch_s']:.2g}",
            f"{row['first_batch_s'] + row['import_s']:.2g}",
            f"{row['peak_mb']:,.0f}",
            row["note"],
        ]
        for row in sorted(rows, key=lambda row: (shapes.index(row["shape"]), -row["ratio"]))
    ]


def ratio_of(row: record.Row) -> str:
    """The median of the rounds, the lowest and the highest."""
    if row["ratio_low"] == row["ratio_high"]:
        return f"{row['ratio']:.2g}"
    return f"{row['ratio']:.2g} ({row['ratio_low']:.2g} to {row['ratio_high']:.2g})"


def familiar(rows: list[record.Row]) -> dict[str, tuple[record.Row, str]]:
    """Of what a reader knows, on one thread, without workers and on all rows: the row and its ratio as in the table."""
    common = {"workers": 0, "threads": 1, "shape": ""}
    found = [row for row in rows if row["name"] in FAMILIAR and all(row[what] == one for what, one in common.items())]
    return {FAMILIAR[row["name"]]: (row, ratio_of(row)) for row in sorted(found, key=lambda row: -row["ratio"])}


ONE: dict[str, Callable[[list[record.Row]], Table]] = {"train": train, "compare": compare}


def one_by_one(name: str, kinds: Kinds) -> str:
    """A picture and a table for each kind of machine."""
    parts = []
    for kind, (about, rows) in kinds.items():
        parts.append(f"### {name}: {record.label(about)}\n\n![{name}]({kind}/{name}.png)\n\n{folded(*ONE[name](rows))}")
        parts.append(below(about))
    return "\n\n".join(parts)


# Tables of all kinds of machines, side by side


def side_by_side(kinds: Kinds) -> str:
    """A table for each section of a benchmark, and the machines below."""
    sections = dict.fromkeys(row["section"] for _, rows in kinds.values() for row in rows)
    parts = [one_section(section, kinds) for section in sections]
    return "\n\n".join([*parts, *(below(about) for about, _ in kinds.values())])


def one_section(section: str, kinds: Kinds) -> str:
    """How many times as fast the first contestant is as each other, case by case; the range over all below."""
    ratios: dict[str, dict[str, list[Ratio | None]]] = {}  # by contestant and case, of each kind
    for column, (_, rows) in enumerate(kinds.values()):
        for row in rows:
            if row["section"] == section:
                rounds = Rounds(row["seconds"])
                for other in [*rounds.seconds][1:]:
                    of_kinds = ratios.setdefault(other, {}).setdefault(row["case"], [None] * len(kinds))
                    of_kinds[column] = rounds.ratio(rounds.ours, other)
    heads = ["", "beside", *(record.label(about) for about, _ in kinds.values())]
    cells, ranges = [], []
    for other, cases in ratios.items():
        cells += [[case, other, *("" if one is None else f"{one}" for one in own)] for case, own in cases.items()]
        ranges.append(f"{other} {extent([one.median for own in cases.values() for one in own if one])}")
    return f"### {section}\n\n{markdown(heads, cells)}\n\nFrom the lowest to the highest median: {'; '.join(ranges)}."


def extent(values: Sequence[float]) -> str:
    low, high = (f"{value:.2g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def below(about: record.Row) -> str:
    return " ".join(filter(None, [f"{record.caption(about)}; `{about['command']}`.", about.get("note")]))


# The page


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with names on the left and figures on the right."""
    named = [k == 0 or heads[k] in ("", "feed", "beside") for k in range(len(heads))]
    rule = [":--" if left else "--:" for left in named]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows)]
    return "\n".join(lines).replace("__", r"\_\_")  # two underscores would begin bold text


def folded(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table, behind a line to click where it is long."""
    table = markdown(heads, rows)
    if len(rows) <= LONG:
        return table
    return f"<details><summary>All {len(rows)} rows</summary>\n\n{table}\n\n</details>"


def page() -> str:
    """A heading for everything that is shown, and what has been measured of it."""
    parts = [
        "# Results\n\nMade by `benchmarks/table.py`; each script says at its top what it measures, and how.\n\n"
        "Where machines stand side by side, a figure says how many times as fast the first contestant is as the one "
        "beside it: the median of the rounds, with the lowest and the highest where they were kept."
    ]
    for name in SHOWN:
        kinds = record.kinds(name)
        made = one_by_one(name, kinds) if name in ONE else side_by_side(kinds)
        parts.append(f"## {name}.py\n\n{made or f'No results yet: `python benchmarks/{name}.py` makes them.'}")
    parts.append("## Other benchmarks\n\nPages of the guide quote them.")
    parts += [side_by_side(record.kinds(name)) for name in record.names() if name not in SHOWN]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    path = record.RESULTS / "README.md"
    path.write_text(page())
    print(path)


if __name__ == "__main__":
    main()
