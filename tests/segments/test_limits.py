"""The inside of `segments/limits.py`: the limits of memory cgroups, and how one is named."""

from pathlib import Path

import pytest

import tensorstash as ts
from tensorstash.segments.limits import Limit, cgroup_limits, check_free
from tests.oracle_load import like

STAT1 = "cache 7\ninactive_file 1\nactive_file 2\ntotal_inactive_file 10\ntotal_active_file 20"
STAT2 = "anon 5\ninactive_file 3\nactive_file 4"


def write_tree(root: Path, cgroup: str, files: dict[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


TREES: dict[str, tuple[str, dict[str, str], list[tuple[int, str]]]] = {
    "version 2": (
        "0::/a/b\n",
        {
            "a/b/memory.max": "1000",
            "a/b/memory.current": "400",
            "a/b/memory.stat": STAT2,
            "a/memory.max": "max",
            "a/memory.current": "500",
            "a/memory.stat": STAT2,
        },
        [(607, "/a/b")],
    ),
    "version 2, the parent is tighter": (
        "0::/a/b\n",
        {
            "a/b/memory.max": "1000",
            "a/b/memory.current": "400",
            "a/b/memory.stat": STAT2,
            "a/memory.max": "500",
            "a/memory.current": "450",
            "a/memory.stat": STAT2,
        },
        [(57, "/a"), (607, "/a/b")],
    ),
    "version 1": (
        "4:cpu,memory:/job\n2:cpuset:/\n0::/\n",
        {
            "memory/job/memory.limit_in_bytes": "1000",
            "memory/job/memory.usage_in_bytes": "900",
            "memory/job/memory.stat": STAT1,
            "memory/memory.limit_in_bytes": "5000",
            "memory/memory.usage_in_bytes": "1000",
            "memory/memory.stat": STAT1,
        },
        [(130, "/job"), (4030, "/")],
    ),
    "a container, whose cgroup is the root of what it sees": (
        "0::/docker/0123\n",
        {"memory.max": "100", "memory.current": "150", "memory.stat": STAT2},
        [(0, "/")],
    ),
    "both, version 2 beside version 1": (
        "4:memory:/\n0::/x\n",
        {"unified/x/memory.max": "10", "unified/x/memory.current": "0", "unified/x/memory.stat": "anon 1"},
        [(10, "/x")],
    ),
    "version 1, without a limit": (
        "4:memory:/job\n",
        {
            "memory/job/memory.limit_in_bytes": "9223372036854771712",
            "memory/job/memory.usage_in_bytes": "900",
            "memory/job/memory.stat": STAT1,
        },
        [],
    ),
    "no numbers": ("0::/\n", {"memory.max": "many", "memory.current": "0", "memory.stat": STAT2}, []),
    "nothing": ("", {}, []),
}


@pytest.mark.parametrize("tree", TREES)
def test_the_limits_of_memory_cgroups(tree: str, tmp_path: Path) -> None:
    cgroup, files, expected = TREES[tree]
    write_tree(tmp_path, cgroup, files)
    limits = cgroup_limits(str(tmp_path))
    assert sorted((limit.free, limit.where) for limit in limits) == [
        (free, f"in the memory cgroup {group}") for free, group in expected
    ]


def test_a_limit_is_named_with_its_remedy(tmp_path: Path) -> None:
    write_tree(tmp_path, *TREES["version 2"][:2])
    message = "who needs 1 MB and 607 bytes are free in the memory cgroup /a/b"
    with pytest.raises(ts.errors.NoMemoryError, match=like(message)):
        check_free(1_000_000, [*cgroup_limits(str(tmp_path))], "Rule", "who", "Remedy.")
    check_free(607, [*cgroup_limits(str(tmp_path))], "Rule", "who", "Remedy.")
    with pytest.raises(ts.errors.NoMemoryError, match=like("who needs 8.2 kB and 4.1 kB are free in RAM")):
        check_free(8192, [Limit(4096, "in RAM", "")], "Rule", "who", "Remedy.")
