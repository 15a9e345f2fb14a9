"""Children of the template are as fresh interpreters: what they get, what they can do, and how they end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.spaces import mounting


def test_a_child_gets_what_the_caller_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import json, os, sys\nprint(json.dumps([sys.argv, dict(os.environ), os.getcwd(), __name__]))"
    monkeypatch.setenv("TENSORSTASH_DIR", "here")
    arguments, environment, directory, name = json.loads(processes.run(program, "a", 3, cwd=tmp_path).stdout)
    assert (arguments, directory, name) == (["-c", "a", "3"], str(tmp_path), "__main__")
    assert environment == dict(os.environ)
    assert json.loads(processes.run(program, env={"ONLY": "one"}).stdout)[1] == {"ONLY": "one"}


def test_a_file_runs_as_a_script(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7")
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, beside\n"
        "def work(queue): queue.put(beside.value)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.SimpleQueue()\n"
        "    context.Process(target=work, args=(queue,)).start()\n"
        "    print(__file__, queue.get())\n"
    )
    for nested in (False, True):
        done = processes.run(script, nested=nested)
        assert (done.returncode, done.stdout) == (0, f"{script} 7\n"), done.stderr


def test_a_child_computes_with_polars_and_with_threads_of_torch() -> None:
    program = """
import os, numpy as np, polars as pl, torch, tensorstash as ts
assert not [name for name in os.listdir("/proc/self/task") if int(name) != os.getpid()]
torch.set_num_threads(3)
frame = pl.DataFrame({"e": np.arange(100_000) % 7, "y": np.arange(100_000.0)})
print(frame.lazy().group_by("e").agg(pl.col("y").sum()).collect().height)
windows = ts.Windows(ts.load(frame, ["y"], entity="e", progress=False), 64)
print(sum(len(batch["y"]) for batch in ts.Loader(windows, 1024)) == len(windows))
"""
    done = processes.run(program)
    assert (done.stdout, done.stderr) == ("7\nTrue\n", "")


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('why')", 1, "why\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import warnings; warnings.warn('careful')", 1, "UserWarning: careful\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit, sys; atexit.register(print, 'end', file=sys.stderr)", 0, "end\n"),
    ],
)
def test_it_ends_as_an_interpreter_does(program: str, code: int, said: str) -> None:
    done = processes.run(program)
    assert done.returncode == code
    assert done.stderr.endswith(said)
    assert bool(done.stderr) == bool(said)


def test_it_is_talked_to_and_killed() -> None:
    program = "import sys, time\nprint(sys.stdin.readline().upper(), end='', flush=True)\ntime.sleep(1000)"
    with processes.start(program) as child:
        child.stdin.write("hello\n")
        child.stdin.flush()
        assert child.stdout.readline() == "HELLO\n"
        assert not child.has_ended()
        child.kill(signal.SIGTERM)
        assert child.wait() == -signal.SIGTERM
        assert child.has_ended()
    with processes.start(program) as other:
        pass
    assert other.code == -signal.SIGKILL


def test_a_file_system_of_its_own_is_gone_with_it(shm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not mounting(shm, "1m", capsys):
        pytest.skip("mounting a tmpfs is not allowed here")
    program = "import os, sys\nopen(sys.argv[1] + '/file', 'x').close()\nprint(os.statvfs(sys.argv[1]).f_blocks)"
    assert processes.run(program, shm, mount=(shm, "64m")).stdout == f"{(64 << 20) // os.sysconf('SC_PAGESIZE')}\n"
    assert os.listdir(shm) == []


def test_the_template_has_imported_what_takes_long() -> None:
    done = processes.run("import sys; print({'torch', 'polars', 'pyarrow', 'tensorstash'} <= {*sys.modules})")
    assert done.stdout == "True\n"


def test_scripts_of_a_nested_program_come_from_the_template_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "print('torch' in sys.modules, sys.argv[1:], sys.stdin.read(), flush=True)\n"
        "if not sys.argv[1:]:\n"
        "    sys.exit(subprocess.run([sys.executable, __file__, 'again'], input='in', text=True).returncode)\n"
        "sys.exit(7)\n"
    )
    done = processes.run(script, nested=True)
    assert (done.stdout, done.stderr) == ("True [] \nTrue ['again'] in\n", "")
    assert done.returncode == 7


def test_the_template_may_be_made_by_a_process_with_many_descriptors() -> None:
    """It gets the numbers of descriptors that its maker has, and `select` refuses those from 1,024 on."""
    program = (
        "import os\n"
        "held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]\n"
        "from tests import processes\n"
        "print(processes.run('print(1 + 1)', bare=True).stdout)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=processes.ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
