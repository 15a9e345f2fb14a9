"""The command line, as processes and in this one: what it prints, its status, and that others find what it loads."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import tensorstash as ts
from tensorstash.__main__ import main
from tests import processes
from tests.command_line import NAMES, PROGRAM, completed, invoke, parsed, run
from tests.oracle_load import write_parquet

ROOT = Path(__file__).parents[2]
WEATHER = str(ROOT / "examples" / "data" / "nyc_weather.parquet")

SHOWN = ["shared", "huge pages", "threads"]

pytestmark = pytest.mark.usefixtures("shm")


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own."""
    return processes.run(PROGRAM, *arguments, warn="default")


def status(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The status with which a command ends that fails."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which the command line replaces
    monkeypatch.setattr(sys, "argv", ["tensorstash", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def table(tmp_path: Path, name: str = "plants.parquet") -> str:
    columns = {"e": ["a", "a", "b"], "t": [1, 2, 1], "u": [0.5, 1.5, 2.5], "v": [3.0, 4.0, 5.0], "s": [7, 7, 8]}
    return str(write_parquet(tmp_path / name, [pa.table(columns)]))


def test_a_segment_outlives_the_process_that_loads_it() -> None:
    options = ["--columns", "x=temp, dewp", "--columns", "y=temp", "--dtype", "float64", "--share", "weather"]
    loaded = start("load", WEATHER, "--entity", "origin", "--time", "time_hour", *options)
    assert (loaded.returncode, loaded.stderr) == (0, "")
    line, *printed, last = loaded.stdout.splitlines()
    columns = {"x": ["temp", "dewp"], "y": "temp"}
    stash = ts.load(WEATHER, columns, entity="origin", time="time_hour", dtype=torch.float64, share="weather")
    assert re.fullmatch(rf"{re.escape(str(stash.path))}: ready in \d+\.\d+ s", line)
    assert printed == repr(stash).splitlines()
    assert last == "It stays until it is removed (tensorstash rm weather) or the machine restarts."

    listed = start("ls", "--json")
    assert listed.returncode == 0
    (found,) = json.loads(listed.stdout)
    assert (found["label"], found["rows"], found["columns"], found["users"]) == ("weather", 26115, 2, 1)
    removed = start("rm", "weather")
    assert (removed.returncode, removed.stdout) == (0, f"removed {Path(str(stash.path)).name}\n")
    assert stash.rows == 26115
    assert start("rm", "weather").returncode == 1


def test_a_missing_extra_is_one_line_that_names_it(tmp_path: Path) -> None:
    without = f"import sys; sys.modules['ray'] = None\n{PROGRAM}"
    options = ["--entity", "e", "--to", str(tmp_path / "shards"), "--engine", "ray"]
    ended = processes.run(without, "shard", table(tmp_path), *options, warn="default")
    said = 'error: engine="ray" needs Ray. Install it: pip install "tensorstash[ray]".\n'
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", said)


def test_a_second_load_attaches_what_the_first_has_left(tmp_path: Path) -> None:
    path = table(tmp_path)
    first, second = run("load", path), run("load", path)
    assert first.partition(": ready in ")[0] == second.partition(": ready in ")[0] != first
    assert first.splitlines()[1:] == second.splitlines()[1:]
    assert ts.shared.list()["label"].to_list() == ["plants"]


def test_a_load_into_a_file_is_for_open_and_shares_nothing(tmp_path: Path) -> None:
    path, file = str(write_parquet(tmp_path / "plants.parquet", [pa.table({"u": [1.0, 2.0]})])), tmp_path / "x"
    for _ in range(2):
        printed = run("load", path, "--file", str(file))
        assert re.match(rf"{re.escape(str(file))}: ready in \d+\.\d+ s\nStash: 2 rows", printed)
    assert ts.open(file)["u"].tolist() == [1.0, 2.0]
    assert json.loads(run("ls", "--json")) == []
    other = ("load", path, "--dtype", "float32", "--file", str(file))
    assert "replace it: overwrite=True" in start(*other).stderr
    assert run(*other, "--overwrite").startswith(f"{file}: ready in ")
    assert ts.open(file)["u"].dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], {}),
        (["--columns", "u,v"], {"columns": ["u", "v"]}),
        (["--columns", "v", "--columns", "u"], {"columns": ["v", "u"]}),
        (["--columns", "x=u,v", "--columns", "y=v"], {"columns": {"x": ["u", "v"], "y": "v"}}),
        (["--columns", "u", "--entity", "e", "--time", "t"], {"columns": ["u"], "entity": "e", "time": "t"}),
        (["--entity", "e", "--time", "t", "--known", "s"], {"entity": "e", "time": "t", "known": "s"}),
        (["--entity", "e", "--static", "s"], {"entity": "e", "static": ["s"]}),
        (["--entity", "e", "--static", "k=s"], {"entity": "e", "static": {"k": "s"}}),
    ],
)
def test_the_call_in_python_attaches_what_the_command_has_loaded(
    tmp_path: Path, options: list[str], arguments: dict[str, Any]
) -> None:
    path = table(tmp_path)
    run("load", path, *options, "--share", "same")
    ts.load(path, **arguments, share="same")
    assert len(ts.shared.list()) == 1
    free = re.compile(r"of [\d,]+ MB free")
    inspected = free.sub("", run("inspect", path, *options))
    assert inspected.partition("times:")[0] == free.sub("", f"{ts.plan(path, **arguments)}\n")
    assert ("times:" in inspected) == ("time" in arguments)


def test_several_files_and_a_glob_are_one_source(tmp_path: Path) -> None:
    one, two = table(tmp_path, "one.parquet"), table(tmp_path, "two.parquet")
    run("load", one, two, "--columns", "u", "--share", "both")
    run("load", str(tmp_path / "*.parquet"), "--columns", "u", "--share", "both")
    assert len(ts.shared.list()) == 1
    assert ts.attach("both")["u"].tolist() == [0.5, 1.5, 2.5] * 2


def test_ls_says_what_is_there(shm: Path) -> None:
    assert run("ls") == f"No shared segments in {shm}.\n"
    assert json.loads(run("ls", "--json")) == []
    stash = ts.load({"y": [1.0] * 2_000_000}, share="large")
    ts.load({"a": [1], "b": [2]}, share="a-longer-label")
    large, small = (ts.shared.list()[k].to_dicts()[0] for k in (0, 1))
    created = large["created"].astimezone().strftime("%Y-%m-%d %H:%M")
    assert run("ls").splitlines() == [
        "label           key          size       rows  columns  created           users",
        f"large           {large['key'][:7]}…    16 MB  2,000,000        1  {created}      1",
        f"a-longer-label  {small['key'][:7]}…  {small['bytes'] / 1000:.1f} kB          1        2  {created}      0",
    ]
    found = json.loads(run("ls", "--json"))
    assert [list(line) for line in found] == [ts.shared.list().columns] * 2
    assert found[0] | {"created": None} == large | {"created": None}
    assert datetime.fromisoformat(found[0]["created"]) == large["created"]
    assert stash.rows == 2_000_000


def test_ls_shows_a_damaged_segment(shm: Path) -> None:
    ts.load({"y": [1.0]}, share="damaged")
    (path,) = shm.iterdir()
    path.chmod(0o600)
    path.write_bytes(b"nonsense")
    assert run("ls").splitlines()[1].split()[2:6] == ["8", "bytes", "?", "?"]


def test_rm_removes_what_is_there_and_names_what_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shm: Path
) -> None:
    for value in (1.0, 2.0):
        ts.load({"y": [value]}, share="one")
    ts.load({"y": [1.0]}, share="other")
    names = sorted(path.name for path in shm.iterdir())
    assert status(monkeypatch, "rm", "none", "one", "nix", "other") == 1
    printed = capsys.readouterr()
    assert printed.err == f"error: No segment in {shm} has the label 'none' or 'nix'. See: tensorstash ls\n"
    assert printed.out == "".join(f"removed {name}\n" for name in names)
    assert [*shm.iterdir()] == []


def test_gc_takes_the_oldest_that_nobody_uses(shm: Path) -> None:
    used = ts.load({"y": [0.0] * 1000}, share="used")
    for label in ("old", "new"):
        ts.load({"y": [0.0] * 1000}, share=label)
    sizes = [path.stat().st_size for path in shm.iterdir()]
    for age, path in enumerate(sorted(shm.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        when = datetime.now(timezone.utc).timestamp() - (3 - age) * 86400
        os.utime(path, (when, when))
    assert (
        run("prune")
        == run("prune", "--older-than", "10d")
        == run("prune", "--max-bytes", "1MB")
        == "No segment was removed.\n"
    )
    assert run("prune", "--max-bytes", str(sum(sizes) - 1)).startswith("removed old-")
    assert run("prune", "--older-than", "12h").startswith("removed new-")
    assert run("prune", "--max-bytes", "0") == "No segment was removed.\n"
    assert used["y"].tolist() == [0.0] * 1000
    assert ts.shared.list()["label"].to_list() == ["used"]


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("0", 0), ("17", 17), ("17B", 17), ("2kB", 2000), ("1.5 GB", 1_500_000_000), ("10g", 10**10), ("2GiB", 2**31)],
)
def test_sizes_are_read_as_people_write_them(text: str, nbytes: int) -> None:
    assert parsed("prune", "--max-bytes", text)["max_bytes"] == nbytes


def test_an_error_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tensorstash", "load", str(tmp_path / "none.parquet"), "--share", "none"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: A source needs at least one file; '{tmp_path / 'none.parquet'}' matches no file "
        f"(working directory '{os.getcwd()}').\n"
    )


def test_only_a_terminal_without_no_color_shows_colors() -> None:
    """The command runs in a terminal of its own, with its standard error there."""
    for environment, colored in (({}, True), ({"NO_COLOR": "1"}, False)):
        reader, terminal = pty.openpty()
        command = [sys.executable, "-m", "tensorstash", "rm", "none"]
        done = subprocess.run(
            command, cwd=ROOT, stderr=terminal, env=without_color() | environment, check=False, timeout=300
        )
        os.close(terminal)
        said = os.read(reader, 1 << 16).decode()
        os.close(reader)
        assert done.returncode == 1
        assert said.startswith("\x1b[31m\x1b[1merror:\x1b[0m No segment" if colored else "error: No segment"), said


def without_color() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "NO_COLOR"}


def test_ctrl_c_while_the_command_line_starts_is_quiet() -> None:
    program = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'tensorstash.cli.commands': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from tensorstash.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_what_is_printed_as_json_can_be_read(tmp_path: Path) -> None:
    path = table(tmp_path)
    planned = json.loads(run("inspect", path, "--columns", "u", "--json"))
    assert (planned["rows"], [column["column"] for column in planned["columns"]]) == (3, ["u"])
    assert planned["bytes"] == sum(column["bytes"] for column in planned["columns"]) == 24
    assert planned["times"] is None
    options = ["--history", "1", "--horizon", "0", "--seconds", "0.1", "--workers", "1", "--json"]
    results = json.loads(run("bench", path, "--columns", "u", *options))
    assert [result["way"] for result in results] == ["tensorstash", "DataLoader, 0 workers", "DataLoader, 1 workers"]
    machine = json.loads(run("info", "--json"))
    assert machine.keys() >= {"tensorstash", "kernel"}
    assert machine["threads"] == {"torch": torch.get_num_threads(), "cores": len(os.sched_getaffinity(0))}
    assert 0 < machine["memory"]["free_bytes"] <= machine["memory"]["bytes"]


def test_bench_takes_the_step_of_time_and_ignores_gaps(tmp_path: Path) -> None:
    columns = {"t": [0, 1, 2, 10, 13, 16, 19], "y": [0.0] * 7}
    path = str(write_parquet(tmp_path / "steps.parquet", [pa.table(columns)]))
    common = ["bench", path, "--time", "t", "--history", "4", "--horizon", "0", "--seconds", "0.1", "--workers", "1"]
    with pytest.warns(UserWarning, match="Gaps cost 75%"):
        assert ", 1 windows\n" in run(*common, "--frequency", "3")
    assert ", 4 windows\n" in run(*common, "--gaps", "ignore")


def test_several_entity_columns_make_tuples(tmp_path: Path) -> None:
    path = table(tmp_path)
    run("load", path, "--columns", "u", "--entity", "e", "--entity", "s", "--time", "t", "--share", "two")
    stash = ts.load(path, ["u"], entity=["e", "s"], time="t", share="two")
    assert stash.entities == [("a", 7), ("b", 8)]
    assert len(ts.shared.list()) == 1
    assert (
        str(ts.plan(path, ["u"], entity=["e", "s"])).splitlines()[1:4]
        == (run("inspect", path, "--columns", "u", "--entity", "e", "--entity", "s").splitlines()[1:4])
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", WEATHER, "--columns", "tmp"], f"{WEATHER} has no column 'tmp'; did you mean 'temp'?"),
        (["load", WEATHER, "--share", "a/b"], "A label is a text of up to 100 letters"),
        (["load", WEATHER, "--columns", "__x=temp"], "The names anchor, entity, reset, valid, window, "),
        (["load", WEATHER, "--columns", "temp", "--time", "time_hour"], "A time occurs once in each entity; "),
    ],
)
def test_errors_of_every_type_are_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert status(monkeypatch, *arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {message}")
    assert said.count("\n") == 1
    assert len(ts.shared.list()) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["prune", "--max-bytes", "10x"],
            "Invalid value for '--max-bytes': '10x' is not a size such as 500MB, 10GB or 8GiB.",
        ),
        (["load", "f", "--columns", "a,a"], "Invalid value for '--columns': 'a,a' names a column twice."),
        (
            ["load", "f", "--columns", "a", "--columns", "a=b"],
            "Invalid value for '--columns': 'a=b' names a column twice.",
        ),
        (["load"], "Missing argument 'FILE...'."),
        (["rm"], "Missing argument 'LABEL...'."),
        (["load", "f", "--dtype", "int8"], "Invalid value for '--dtype': 'int8' is not one of "),
        (["load", "f", "--colums", "a"], "No such option"),
        (["lod"], "No such command 'lod'."),
        (["shard", "f", "--to", "x"], "Shards are of entities. Name the entity column: --entity COLUMN."),
    ],
)
def test_wrong_usage_is_one_line_with_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert status(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {message}")
    assert said.endswith(f" See: tensorstash {arguments[0]} --help\n" if arguments[0] in NAMES else " --help\n")
    assert said.count("\n") == 1


def test_without_arguments_there_is_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert not status(monkeypatch)
    assert capsys.readouterr().out.startswith("Usage: tensorstash ")


def test_ctrl_c_ends_a_command_with_the_status_of_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr("tensorstash.segments.shared.lines", interrupted)
        assert status(changed, "ls") == 130


def test_the_shell_completes_labels_and_files() -> None:
    ts.load({"y": [1.0]}, share="weather")
    ts.load({"y": [2.0]}, share="wind")
    ts.load({"y": [3.0]}, share="sales")
    assert completed("rm", "w") == [("plain", "weather"), ("plain", "wind")]
    assert completed("load", "x.csv", "--share", "s") == [("plain", "sales")]
    for before in (["load"], ["inspect", "a.parquet"], ["load", "x", "--file"]):
        assert completed(*before, "ex") == [("file", "ex")]
    assert completed("shard", "x", "--to", "ex") == [("dir", "ex")]


def test_info_says_what_matters_on_this_machine(shm: Path) -> None:
    lines = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in run("info").splitlines())
    assert [*lines] == ["tensorstash", "python", "torch", "numpy", "pyarrow", "polars", "kernel", "memory", *SHOWN]
    assert lines["tensorstash"].endswith(f" in {Path(ts.__file__).parent}")
    assert lines["torch"].startswith(torch.__version__)
    assert lines["numpy"] == np.__version__
    assert lines["kernel"].startswith(("native: ", "not native: "))
    assert re.fullmatch(r"[\d,]+ MB free in RAM, of [\d,]+ MB", lines["memory"])
    assert re.fullmatch(rf"[\d,.]+ [kMG]B free in /dev/shm, of [\d,.]+ [kMG]B; segments lie in {shm}", lines["shared"])
    assert lines["threads"] == f"{torch.get_num_threads()} of torch, on {len(os.sched_getaffinity(0))} cores"
    assert re.fullmatch(r"(enabled: .*\[\w+\].*; shmem_enabled: .*\[\w+\].*)?", lines["huge pages"])
    assert not shm.exists()  # looking makes nothing


def test_info_knows_a_directory_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TENSORSTASH_DIR", str(tmp_path / "not" / "there"))
        assert f"free in {tmp_path}, of" in run("info")


@pytest.mark.parametrize("command", ["info", "ls", "rm", "prune", "load", "shard", "inspect", "bench"])
def test_help_has_examples_that_are_read(command: str) -> None:
    """Each example is a line that the command's own parser takes."""
    printed = run(command, "--help")
    examples = re.findall(rf"^  +tensorstash {command}(.*)$", printed.split("Examples:")[1], re.MULTILINE)
    assert len(examples) == {"info": 1, "bench": 1, "inspect": 3}.get(command, 2)
    for example in examples:
        words = [word.strip("'") for word in example.split(" | ")[0].split()]
        parsed(command, *words)


def test_the_commands_of_the_guide_run(shm: Path) -> None:
    """As a person types them, one after the other; the load is that of the Python on the page of sharing."""
    page = (ROOT / "docs" / "guide" / "command-line.md").read_text("utf-8")
    block = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    printed = {}
    for line in block.splitlines():
        program, command, *options = shlex.split(line)
        done = start(command, *options, *(["--seconds", "0.2"] if command == "bench" else []))
        assert program == "tensorstash"
        assert (done.returncode, done.stderr) == (0, ""), line
        printed[command] = done.stdout
        if command == "load":
            (path,) = shm.iterdir()
            columns = {"x": ["temp", "dewp", "humid"], "y": "temp"}
            stash = ts.load(WEATHER, columns, entity="origin", time="time_hour", share="nyc-weather")
            assert stash.path == str(path)
            del stash
    assert sorted([*printed, "shard"]) == NAMES  # shards have a page of their own
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert without_free(printed["inspect"]) == without_free(shown)
    assert printed["ls"].splitlines()[1].startswith("nyc-weather ")
    assert printed["rm"] == f"removed {path.name}\n"


def without_free(text: str) -> str:
    """What `inspect` prints but for the free memory, which differs."""
    return re.sub(r"of [\d,]+ MB free", "", text)


def test_the_script_is_the_command_line() -> None:
    assert 'tensorstash = "tensorstash.__main__:main"' in (ROOT / "pyproject.toml").read_text().splitlines()
    assert re.fullmatch(r".*, version \d+\.\d+\.\d+\n", run("--version"))


def test_shards_are_made_and_found(tmp_path: Path) -> None:
    source, to = table(tmp_path), str(tmp_path / "to")
    options = ["--columns", "u", "--entity", "e", "--time", "t", "--to", to, "--shards", "2"]
    pattern = rf"{re.escape(to)}: 2 shards of (\d) to (\d) rows, [\d.,]+ kB, "
    for _ in range(2):
        assert re.fullmatch(rf"{pattern}ready in \d+\.\d\d s\n", run("shard", source, *options))
    assert ts.cluster.open(to).manifest.rows == 3
    refusal = invoke("shard", source, "--to", to)
    assert refusal.exit_code == 2
    assert "Name the entity column: --entity COLUMN." in refusal.output
