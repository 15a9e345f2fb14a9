"""What is printed of a stash and of its plan."""

import re

import numpy as np

import tensorstash as ts


def test_the_sizes_of_a_stash_and_of_its_plan_add_up() -> None:
    rows = 400_000
    frame = {"t": np.arange(rows), "x": np.zeros(rows, np.float32), "y": np.zeros(rows)}
    plan = ts.plan(frame, ["x", "y"], time="t")
    for shown in (plan, plan.load()):
        caption, *lines = repr(shown).splitlines()
        sizes = [float(size) for line in lines for size in re.findall(r"  (\d+\.\d)(?=  |$)", line)]
        assert sizes == [1.6, 3.2, 3.2]
        assert f"{rows:,} rows, 8.0 MB" in caption
