"""All results on one page, `benchmarks/results/README.md`: the kinds of machines side by side, with the range.

python benchmarks/table.py
"""

import re
from collections.abc import Callable, Sequence

import record
from contestants import CONTESTANTS, FAMILIAR, Contestant
from feeds import HAND, OURS, USUAL, by_case, share_of
from timing import Ratio, Rounds

LONG = 20  # rows

Table = tuple[list[str], list[list[str]]]  # the heads, and the cells of each row
Kinds = dict[str, tuple[record.Row, list[record.Row]]]  # about a run and its rows, by the kind of machine

SHOWN = ("train", "compare", "bench_batch", "bench_mix", "bench_share")


# Tables of one kind of machine


def train(rows: list[record.Row]) -> Table:
    """A row for each feed of each model and data set, the fastest first."""
    heads = ["", "feed", "epoch, s", "ours beside it", "waiting for data", "MB of all", "to the first batch, s", ""]
    cells = []
    for name, own in by_case(rows).items():
        ours = next(row for row in own if row["name"] == OURS)
        for row in sorted(own, key=lambda row: row["epoch_s"]):
            times = [record.round_number(row[key]) for key in ("epoch_s", "epoch_low_s", "epoch_high_s")]
            cells.append(
                [
                    name,
                    record.title(row),
                    f"{times[0]} ({times[1]} to {times[2]})",
                    "" if row is ours else f"{share_of(ours, row)}",
                    f"{row['waiting']:.0%}",
                    f"{row['memory_mb']:,.0f}",
                    record.round_number(row["first_batch_s"]),
                    row["note"],
                ]
            )
    return heads, cells


def train_in_short(rows: list[record.Row]) -> Table:
    """A row for each model and data set: ours beside the lines by hand and the usual data set."""
    heads = ["", "epoch, s", "by hand in chunks, s", "ours beside it", "`DataLoader`, s", "ours beside it"]
    cells = []
    for name, own in by_case(rows).items():
        ours, *others = (fastest(own, feed) for feed in (OURS, HAND, USUAL))
        beside = [cell for row in others for cell in (record.round_number(row["epoch_s"]), f"{share_of(ours, row)}")]
        cells.append([name, record.round_number(ours["epoch_s"]), *beside])
    return heads, cells


def fastest(rows: list[record.Row], feed: str) -> record.Row:
    """The row of a feed, with the number of workers that makes it fastest."""
    return min((row for row in rows if row["name"] == feed), key=lambda row: row["epoch_s"])


def compare(rows: list[record.Row]) -> Table:
    """A row for each contestant, the fastest of each shape of data first."""
    heads = ["", "windows/s", "of the loop in C", "GB/s", "first batch, s", "with imports, s", "peak MB", ""]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    rows = at_one_speed(rows)
    return heads, [
        [
            record.title(row),
            two_digits(row["windows_per_s"]),
            f"{part_of_loop(row, rows) or ''}",
            f"{row['gb_per_s']:.2g}",
            f"{row['first_batch_s']:.2g}",
            f"{row['first_batch_s'] + row['import_s']:.2g}",
            f"{row['peak_mb']:,.0f}",
            row["note"],
        ]
        for row in sorted(rows, key=lambda row: (shapes.index(row["shape"]), -row["ratio"]))
    ]


def two_digits(value: float) -> str:
    return f"{float(format(value, '.2g')):,.0f}"


def at_one_speed(rows: list[record.Row]) -> list[record.Row]:
    """Speeds at the median one of the C loop of the same shape, so that they stand to each other as the ratios do."""
    found = []
    for row in rows:
        limit = next(one for one in rows if one["shape"] == row["shape"])  # which is the first
        speed = row["ratio"] * limit["windows_per_s"]
        found.append(row | {"windows_per_s": speed, "gb_per_s": speed * limit["gb_per_s"] / limit["windows_per_s"]})
    return found


def part_of_loop(row: record.Row, rows: list[record.Row]) -> Ratio | None:
    """How many times as fast a contestant is as the loop in C over columns of its layout; `None` without that loop."""
    loop = next((each.loop for each in CONTESTANTS if each.name == row["name"]), None)
    found = [one["ratio"] for one in rows if (one["name"], one["shape"], one["threads"]) == (loop, row["shape"], 1)]
    return Ratio(*(row[key] / found[0] for key in ("ratio", "ratio_low", "ratio_high"))) if found else None


def familiar(rows: list[record.Row], about: record.Row) -> dict[str, tuple[record.Row, Ratio]]:
    """Of what the README shows, the fastest first: the row, and what part of the loop in C it reaches."""
    found = {}
    for row in sorted(at_one_speed(rows), key=lambda row: -row["ratio"]):
        part = part_of_loop(row, rows)
        if any(each.is_familiar and matches(each, row) for each in CONTESTANTS) and part is not None:
            version = about["versions"].get(row["name"], "")
            found[f"{FAMILIAR[row['name']]} {version}".strip()] = row, part
    return found


def matches(contestant: Contestant, row: record.Row) -> bool:
    return all(row[key] == getattr(contestant, key) for key in ("name", "threads", "workers", "shape"))


def readme(about: record.Row, rows: list[record.Row]) -> str:
    """The table of the README."""
    found = familiar(rows, about)
    row, _ = next(iter(found.values()))
    columns = round(row["gb_per_s"] * 1e9 / row["windows_per_s"] / row["width"] / 4)
    what = f"{row['batch']:,} random windows of {row['width']} steps, {row['rows'] * columns * 4 / 1e6:.0f} MB"
    heads = [f"batches of {what} in {columns} columns, one thread", "windows/s", "of the loop in C"]
    cells = [[name, two_digits(row["windows_per_s"]), shown(part.median)] for name, (row, part) in found.items()]
    return markdown(heads, cells)


def shown(ratio: float) -> str:
    """A ratio in two decimals, or a small one in two digits."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


ONE: dict[str, Callable[[list[record.Row]], Table]] = {"train": train, "compare": compare}


def one_by_one(name: str, kinds: Kinds) -> str:
    """A picture, tables of it and of everything, for each kind of machine."""
    parts = []
    for kind, (about, rows) in kinds.items():
        parts.append(f"### {name}: {record.label(about)}\n\n![{name}]({kind}/{name}.png)")
        if name == "train":
            parts.append(markdown(*train_in_short(rows)))
        parts += [folded(*ONE[name](rows)), below(about)]
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
    # two underscores would begin bold text, but not in code
    return re.sub(r"(`[^`\n]*`)|__", lambda found: found[1] or r"\_\_", "\n".join(lines))


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
