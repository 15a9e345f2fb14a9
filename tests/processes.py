"""Programs in processes of their own that start in milliseconds: forked from a template that has imported everything.

A fresh interpreter needs two to three seconds to import torch, pyarrow, polars and tensorstash. The template does so
once for each process of pytest, computes nothing, and forks a child for every program. The child behaves as a fresh
interpreter does: it gets the environment, the directory, the arguments and the descriptors of the caller, the program
runs as `__main__`, its functions for the exit are called and its threads joined at the end. The pools of torch and
polars begin in the child, because the template has never used them; for that the child resets what the inside,
`common/forks.py`, knows of forks. OMP_NUM_THREADS and PYTHONPATH hold for what the child does and imports.

A second template has imported torch alone, most of what a fresh interpreter imports. Its children (`bare=True`) are for
tests of what the package imports, and for variables that it reads meanwhile (TENSORSTASH_NATIVE).

A fresh interpreter (`subprocess`) stays where a test is about imports of torch, options of Python, other hash seeds, or
objects that are alive when the interpreter is taken apart, which costs a forked child most of a second and is left out.

A preloaded `forkserver` of multiprocessing starts a child as cheaply, but runs only functions of its own parent: what a
child starts with `sys.executable`, such as the ranks of torchrun, would be fresh interpreters of two seconds each.
"""

import atexit
import builtins
import ctypes
import fcntl
import gc
import importlib
import itertools
import json
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, NoReturn, ParamSpec, TextIO, TypeVar

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"MPLBACKEND": "Agg"}  # before a test changes it
SECONDS = 600.0  # a child that takes longer hangs

_P = ParamSpec("_P")
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
PRELOAD = (
    "matplotlib.pyplot",
    "multiprocessing.util",
    "numpy",
    "pandas",
    "polars",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "tensorstash.cli.commands",
    "torch._dynamo",  # the first step of an optimizer imports it
    "torch.distributed.run",
    "torch.utils.data",
)

# In the process of pytest


@dataclass
class Child:
    """A process that runs a program, with pipes to its input and output. It is killed at the end of a `with`."""

    pid: int
    stdin: TextIO
    stdout: TextIO
    errors: IO[str]
    status: TextIO  # the template writes there how the child has ended
    code: int | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill(signal.SIGKILL)
        self.wait()
        for file in (self.stdin, self.stdout, self.errors, self.status):
            file.close()

    def wait(self) -> int:
        """The exit status, or the negative number of the signal that has ended the child."""
        if self.code is None:
            if not self.has_ended(SECONDS):
                raise subprocess.TimeoutExpired(f"process {self.pid}", SECONDS)
            self.code = os.waitstatus_to_exitcode(int(self.status.readline()))
        return self.code

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, or does so within some seconds."""
        if self.code is not None:
            return True
        poll = select.poll()  # select() refuses descriptors from 1,024 on
        poll.register(self.status, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def kill(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if not self.has_ended():
            os.kill(self.pid, number)

    def finish(self) -> "subprocess.CompletedProcess[str]":
        """Close its input, read all of its output, and wait for its end."""
        hanging = threading.Timer(SECONDS, self.kill, [signal.SIGKILL])
        hanging.start()
        with self:
            self.stdin.close()
            printed = self.stdout.read()
            self.wait()
            hanging.cancel()
            self.errors.seek(0)
            return subprocess.CompletedProcess([], self.wait(), printed, self.errors.read())


def start(
    program: str | Path,
    *arguments: object,
    env: dict[str, str] | None = None,
    cwd: Path = ROOT,
    warn: str = "error",
    mount: tuple[Path, str] | None = None,
    nested: bool = False,
    bare: bool = False,
) -> Child:
    """Start a program.

    Args:
        program: its text, or the path of its file.
        arguments: `sys.argv[1:]`, as texts.
        env: the whole environment; `os.environ` if None.
        cwd: its working directory.
        warn: what becomes of warnings, as after `python -W`.
        mount: a directory, and the options of a tmpfs that this child alone sees there.
        nested: whether what it starts with `sys.executable`, or as processes of multiprocessing, is forked from the
            template too.
        bare: whether it begins with torch alone, and imports the package and the engines anew.
    """
    request = {
        "program": str(program),
        "file": isinstance(program, Path),
        "arguments": [*map(str, arguments)],
        "env": dict(os.environ) if env is None else env,
        "cwd": str(cwd),
        "inherited": [],
        "warn": warn,
        "mount": mount and [*map(str, mount)],
        "nested": nested,
    }
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  it is open as long as the child
    (asked, ask), (stdin, write), (read, stdout), (status, tell) = (os.pipe() for _ in range(4))
    socket.send_fds(
        _template(("torch",) if bare else PRELOAD)[0], [b"."], [asked, stdin, stdout, errors.fileno(), tell]
    )
    for fd in (asked, stdin, stdout, tell):
        os.close(fd)
    with os.fdopen(ask, "w") as file:
        json.dump(request, file)
    lines = os.fdopen(status)
    return Child(int(lines.readline()), os.fdopen(write, "w"), os.fdopen(read), errors, lines)


def _finished(begin: Callable[_P, Child]) -> "Callable[_P, subprocess.CompletedProcess[str]]":
    """The same call, which waits for the end of the program."""

    def run(*arguments: _P.args, **options: _P.kwargs) -> "subprocess.CompletedProcess[str]":
        return begin(*arguments, **options).finish()

    return run


run = _finished(start)


def in_child(method: str, work: Callable[[_Argument], _Result], argument: _Argument) -> _Result:
    """What a function of a test returns in a process of multiprocessing, which starts it by a method."""
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=_put, args=(work, argument, results))
    child.start()
    found: _Result = results.get(timeout=300)
    child.join()
    return found


def _put(work: Callable[[_Argument], _Result], argument: _Argument, results: Any) -> None:
    import torch

    torch.set_num_threads(1)  # without the kernel, torch's threads do not survive a fork
    results.put(work(argument))


def executable() -> str:
    """What multiprocessing may start in place of an interpreter: its processes are forked from the template then."""
    return _template(PRELOAD)[1]


@cache
def _template(modules: tuple[str, ...]) -> tuple[socket.socket, str]:
    ours, theirs = socket.socketpair()
    scripts = socket.socket(socket.AF_UNIX)
    folder = tempfile.TemporaryDirectory(prefix="tensorstash-template-")
    scripts.bind(f"{folder.name}/socket")
    scripts.listen(100)
    python = Path(folder.name, "python")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {__file__} script {folder.name}/socket "$@"\n')
    python.chmod(0o700)
    fds = [theirs.fileno(), scripts.fileno()]
    command = [sys.executable, "-m", "tests.processes", "serve", *map(str, fds), str(python), *modules]
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdin=null, stdout=null, pass_fds=fds)
    theirs.close()
    scripts.close()

    def stop() -> None:
        ours.close()
        process.wait()
        folder.cleanup()

    atexit.register(stop)
    return ours, str(python)


# In the template

_SCRIPTS = ""


def _serve(requests: socket.socket, scripts: socket.socket) -> list[int]:
    """Fork a child for every request and tell how it ends. Returns in the children, with the descriptors of each."""
    status: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    poll = select.poll()  # select() refuses descriptors from 1,024 on, which the caller may have
    poll.register(requests, select.POLLIN)
    poll.register(scripts, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if woken in ready:
            os.read(woken, 1000)
            _report(status)
        fds: list[int] = []
        if requests.fileno() in ready:
            _, fds, _, _ = socket.recv_fds(requests, 1, 5)
            if not fds:
                _end(status)
        elif scripts.fileno() in ready:
            connection, _ = scripts.accept()
            with connection:
                _, fds, _, _ = socket.recv_fds(connection, 1, 100)
        if fds:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                requests.close()
                scripts.close()
                for fd in (woken, wake, fds.pop(), *status.values()):
                    os.close(fd)
                return fds
            for fd in fds[:-1]:
                os.close(fd)
            status[pid] = fds[-1]
            os.write(fds[-1], f"{pid}\n".encode())


def _report(status: dict[int, int]) -> None:
    for pid in list(status):
        ended, how = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(BrokenPipeError):  # nobody waits for it
                os.write(status[pid], f"{how}\n".encode())
            os.close(status.pop(pid))


def _end(status: dict[int, int]) -> NoReturn:
    for pid in status:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _become(fds: list[int]) -> None:
    """Take over what the caller asks for, and run the program."""
    from multiprocessing import spawn

    if forks := sys.modules.get("tensorstash.common.forks"):
        forks._state["forked"] = False  # torch has started no thread that this process could lack
    with os.fdopen(fds[0]) as file:
        request = json.load(file)
    numbers = [0, 1, 2, *request["inherited"]]
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in fds[1:]]  # no number is taken
    for fd in fds[1:]:
        os.close(fd)
    for fd, number in zip(above, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if "OMP_NUM_THREADS" in os.environ:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if request["nested"]:
        sys.executable = _SCRIPTS
        spawn.set_executable(_SCRIPTS)
    if request["mount"]:
        _mount(*request["mount"])
    name = request["program"] if request["file"] else "-c"
    sys.argv = [name, *request["arguments"]]
    beside = os.path.dirname(name) if request["file"] else ""
    sys.path[:1] = [beside, *filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))]
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    if request["file"]:
        main.__file__ = name
    text = Path(name).read_text("utf-8") if request["file"] else request["program"]
    warnings.resetwarnings()
    warnings.simplefilter(request["warn"])
    warnings.filterwarnings("ignore", ".* entities have no window")  # as in pyproject.toml
    exec(compile(text, name if request["file"] else "<string>", "exec", dont_inherit=True), vars(main))


def _run_to_the_end(fds: list[int]) -> NoReturn:
    """What an interpreter does from its first to its last line of Python."""
    code: object = 0
    try:
        _become(fds)
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201  as the interpreter does
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        if not file.closed:
            file.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code or 0)


def _mount(directory: str, options: str) -> None:
    """Mount a tmpfs in a namespace of this process, in which it is root."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(0x1002_0000):  # CLONE_NEWUSER | CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}.items():
        Path(f"/proc/self/{name}").write_text(text)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={options},mode=700", "none", directory], check=True)


def _main(requests: str, scripts: str, python: str, *modules: str) -> NoReturn:
    global _SCRIPTS  # noqa: PLW0603  a child finds it there
    _SCRIPTS = python
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # pages of the template stay shared
    _run_to_the_end(_serve(socket.socket(fileno=int(requests)), socket.socket(fileno=int(scripts))))


# In what children start with `sys.executable`


def _script(template: str, *arguments: str) -> NoReturn:
    """Let the template run a script with the descriptors of this process, pass signals on, and end as it ends."""
    options = [*itertools.takewhile(lambda argument: argument.startswith("-"), arguments)]
    program, *rest = arguments[len(options) :]
    inherited = _inherited()
    request = {"program": program, "file": "-c" not in options, "arguments": rest, "inherited": inherited}
    request |= {"env": dict(os.environ), "cwd": os.getcwd(), "warn": "ignore", "mount": None, "nested": True}
    (asked, ask), (status, tell) = os.pipe(), os.pipe()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(template)
        socket.send_fds(connection, [b"."], [asked, 0, 1, 2, *inherited, tell])
    os.close(asked)
    os.close(tell)
    with os.fdopen(ask, "w") as file:
        json.dump(request, file)
    with os.fdopen(status) as lines:
        pid = int(lines.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _: os.kill(pid, received))
        code = os.waitstatus_to_exitcode(int(lines.readline()))
    if code < 0:
        if -code in (signal.SIGINT, signal.SIGTERM):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _inherited() -> list[int]:
    """The descriptors that this process got beside those of input, output and errors."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the one that listed them
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return found


if __name__ == "__main__":
    kept = sys.modules["__main__"]  # the program takes its place
    if sys.argv[1] == "serve":
        _main(*sys.argv[2:])
    else:
        _script(*sys.argv[2:])
