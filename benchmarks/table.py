"""All results on one page, `benchmarks/results/README.md`: ratios first, absolute figures second, the machine below.

python benchmarks/table.py
"""

import argparse
from collections.abc import Callable, Sequence

import record
from feeds import OURS, share_of
from plots import by_shape, caption, label, round_number

LONG = 20  # rows

Table = tuple[list[str], list[list[str]]]  # the heads, and the cells of each row


def train(rows: list[record.Row]) -> Table:
    """A row for each feed of each model and data set, the fastest first."""
    heads = ["", "feed", "epoch, s", "ours beside it", "waiting for data", "MB of all", "to the first batch, s", ""]
    cells = []
    for model, data in dict.fromkeys((row["model"], row["data"]) for row in rows):
        own = [row for row in rows if (row["model"], row["data"]) == (model, data)]
        for row in sorted(own, key=lambda row: row["epoch_s"]):
            times = [round_number(row[key]) for key in ("epoch_s", "epoch_low_s", "epoch_high_s")]
            cells.append(
                [
                    f"{model}, {data}",
                    label(row),
                    f"{times[0]} ({times[1]} to {times[2]})",
                    "" if row["name"] == OURS else f"{share_of(row)}",
                    f"{row['waiting']:.0%}",
                    f"{row['memory_mb']:,.0f}",
                    round_number(row["first_batch_s"]),
                    row["note"],
                ]
            )
    return heads, cells


def compare(rows: list[record.Row]) -> Table:
    heads = ["", "ratio to C", "windows/s", "GB/s", "first batch, s", "with imports, s", "peak MB", ""]
    return heads, [
        [
            label(row),
            f"{row['ratio']:.2g} ({row['ratio_low']:.2g} to {row['ratio_high']:.2g})",
            f"{float(format(row['windows_per_s'], '.2g')):,.0f}",
            f"{row['gb_per_s']:.2g}",
            f"{row['first_batch_s']:.2g}",
            f"{row['first_batch_s'] + row['import_s']:.2g}",
            f"{row['peak_mb']:,.0f}",
            row["note"],
        ]
        for row in by_shape(rows)
    ]


def pipeline(rows: list[record.Row]) -> Table:
    """Each time as a multiple of that of tensorstash, and in seconds."""
    heads = ["", "preprocessing", "to the first batch", "epoch", "waiting for data", ""]
    times = ("preprocess", "first_batch", "epoch")
    return heads, [
        [
            row["name"],
            *(f"{round_number(row[f'{key}_ratio'])}x, {round_number(row[f'{key}_s'])} s" for key in times),
            f"{row['waiting']:.0%}",
            row["note"],
        ]
        for row in rows
    ]


def formats(rows: list[record.Row]) -> Table:
    """A row for each format; the ratios of its four cases, then what the fastest of them is in windows/s."""
    cases = list(dict.fromkeys((row["shuffle"], row["workers"]) for row in rows))
    heads = ["ratio to the stash"]
    heads += [f"{'shuffled' if shuffle else 'in order'}, {workers} workers" for shuffle, workers in cases]
    heads += ["best windows/s, shuffled", "first batch, s", "MB on disk", ""]
    cells = []
    for name in dict.fromkeys(row["name"] for row in rows):
        own = {(row["shuffle"], row["workers"]): row for row in rows if row["name"] == name}
        best = max((row for (shuffle, _), row in own.items() if shuffle), key=lambda row: row["windows_per_s"])
        ratios = [round_number(own[case]["ratio"]) if case in own else "" for case in cases]
        figures = [f"{best['windows_per_s']:,.0f}", f"{best['first_batch_s']:.2f}", f"{best['disk_mb']:,.0f}"]
        cells.append([name, *ratios, *figures, best["note"]])
    return heads, cells


def sweep(rows: list[record.Row]) -> Table:
    heads = [
        "axis",
        "value",
        "layout",
        "ratio to raw gather",
        "windows/s",
        "GB/s",
        "PSS of all, MB",
        "copies of the segment",
    ]
    return heads, [
        [
            row["axis"],
            f"{row['value']:,}",
            row["layout"],
            f"{row['ratio']:.2f}",
            f"{row['windows_per_s']:,.0f}",
            f"{row['gb_per_s']:.2f}",
            *([f"{row['pss_mb']:,.0f}", f"{row['segment_mb'] / row['copy_mb']:.3f}"] if "pss_mb" in row else ["", ""]),
        ]
        for row in rows
    ]


TABLES: dict[str, Callable[[list[record.Row]], Table]] = {
    "train": train,
    "compare": compare,
    "pipeline": pipeline,
    "formats": formats,
    "sweep": sweep,
}


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its first column on the left and the figures on the right."""
    named = [k == 0 or heads[k] in ("", "feed", "layout") for k in range(len(heads))]
    rule = [":--" if left else "--:" for left in named]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows)]
    return "\n".join(lines).replace("__", r"\_\_")  # two underscores would begin bold text


def folded(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table, behind a line to click where it is long."""
    table = markdown(heads, rows)
    if len(rows) <= LONG:
        return table
    return f"<details><summary>All {len(rows)} rows</summary>\n\n{table}\n\n</details>"


def page(quick: bool) -> str:
    """A heading, a picture and a table for everything that has results; for the others, how to make them."""
    parts = ["# Results\n\nMade by `benchmarks/run.py`; what each script measures, and how, is said at its top."]
    for name, table in TABLES.items():
        try:
            about, rows = record.saved(name, quick)
        except FileNotFoundError:
            parts.append(f"## {name}.py\n\nNo results yet: `python benchmarks/{name}.py` makes them.")
            continue
        below = f"{caption(about)}; `{about['command']}`"
        parts.append(f"## {name}.py\n\n![{name}]({name}.png)\n\n{folded(*table(rows))}\n\n{below}")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="of the results of quick runs, whose figures mean nothing")
    quick = parser.parse_args().quick
    path = record.folder(quick) / "README.md"
    path.write_text(page(quick))
    print(path)


if __name__ == "__main__":
    main()
