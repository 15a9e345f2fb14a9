"""The shape of the package: its public names, its rooms, the direction of its imports, the size of its files."""

import ast
import importlib
import io
import tokenize
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import metadata
from pathlib import Path

import pytest

import tensorstash as ts
from tensorstash.common.public import NAMES
from tests import processes

PACKAGE = Path(ts.__file__).parent
# a room imports itself and the rooms before it
ROOMS = [
    "errors",
    "common",
    "native",
    "columns",
    "sources",
    "segments",
    "stash",
    "ingest",
    "gather",
    "windows",
    "sampling",
    "transforms",
    "batches",
    "serving",
    "cluster",
    "plot",
    "cli",
    "__main__",
]
OFFERED = {
    "tensorstash.common.public",
    "tensorstash.errors",
    "tensorstash.cluster",
    "tensorstash.plot",
    "tensorstash.shared",
    "tensorstash.__main__",
}


def modules(package: Path) -> dict[str, Path]:
    """The modules of a package by their dotted names below it; `__init__` of a room is the room."""
    paths = {path: path.relative_to(package).with_suffix("").parts for path in package.rglob("*.py")}
    return {
        ".".join(part for part in parts if part != "__init__"): path
        for path, parts in paths.items()
        if len(parts) > 1 or parts != ("__init__",)
    }


def imports(path: Path, known: set[str]) -> Iterator[tuple[str, int]]:
    """The modules of the package that a file imports, at its top or anywhere inside, and in which line."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == "tensorstash" or name.startswith("tensorstash."):
                inside = name.removeprefix("tensorstash").lstrip(".")
                yield (inside if inside in known else inside.rpartition(".")[0]), node.lineno


def lines_for_types(path: Path) -> set[int]:
    """The lines of a file that only a type checker reads."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    blocks = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {line for block in blocks for line in range(block.lineno, (block.end_lineno or 0) + 1)}


def upward(package: Path) -> list[str]:
    """The imports that run against the order of the rooms, or around in a circle of files.

    Those of types, which never run, may go around within a room: a class and the functions that its methods call.
    """
    found, graph, known = [], {}, modules(package)
    for module, path in known.items():
        types = lines_for_types(path)
        graph[module] = {target for target, line in imports(path, {*known}) if line not in types} - {module}
        for target, line in imports(path, {*known}):
            here, there = (name.split(".")[0] for name in (module, target))
            if there not in ROOMS or ROOMS.index(there) > ROOMS.index(here):
                found.append(f"{module}:{line} imports {target or 'tensorstash'}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"a circle of imports: {', '.join(sorted(set(error.args[1])))}")
    return found


FOREIGN = {"_replace", "_strip_protocol", "_version"}  # of named tuples, fsspec and tensors


def private_uses(package: Path) -> list[str]:
    """Attributes with an underscore of objects whose class is in another file, as `file:line name`."""
    found = []
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        nodes = [*ast.walk(tree)]
        private = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
        private = [node for node in private if not node.attr.startswith("__") and node.attr not in FOREIGN]
        own = {node.attr for node in private if _is_self(node.value)}
        own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        own |= {
            node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        found += [
            f"{path.relative_to(package)}:{node.lineno} {node.attr}"
            for node in private
            if not _is_self(node.value) and node.attr not in own
        ]
    return found


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_no_file_uses_private_attributes_of_another() -> None:
    assert private_uses(PACKAGE) == []


def test_a_private_attribute_of_another_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "class One:\n    def _own(self):\n        return self._at + other._own + other._at\n"
    )
    (tmp_path / "two.py").write_text("def two(one):\n    return one._own._replace(at=1)\n")
    assert private_uses(tmp_path) == ["two.py:2 _own"]


def test_every_room_has_its_place() -> None:
    assert sorted(ROOMS) == sorted({name.split(".")[0] for name in modules(PACKAGE)})


def test_imports_run_one_way() -> None:
    assert upward(PACKAGE) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from tensorstash.stash.stash import Stash", ["columns.spec:1 imports stash.stash"]),
        ("def late():\n    import tensorstash.cli", ["columns.spec:2 imports cli"]),
        ("if 0:\n    from tensorstash import load", ["columns.spec:2 imports tensorstash"]),
        ("import tensorstash.columns.other", ["a circle of imports: columns.other, columns.spec"]),
        ("if TYPE_CHECKING:\n    import tensorstash.columns.other", []),
        ("if TYPE_CHECKING:\n    import tensorstash.stash.stash", ["columns.spec:2 imports stash.stash"]),
        ("import tensorstash.errors", []),
    ],
)
def test_an_import_that_runs_back_is_named(tmp_path: Path, line: str, found: list[str]) -> None:
    for name, text in {
        "columns/spec.py": line,
        "columns/other.py": "from tensorstash.columns.spec import late",
        "stash/stash.py": "",
        "errors.py": "",
        "cli.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert upward(tmp_path) == found


def test_the_root_is_short_and_rooms_say_what_they_own() -> None:
    assert len([*PACKAGE.glob("*.py")]) <= 8
    for room in PACKAGE.glob("*/__init__.py"):
        tree = ast.parse(room.read_text("utf-8"))
        assert len((ast.get_docstring(tree) or "").splitlines()) >= 3, room
        if room.parent.name in NAMES:  # `ts.plot.coverage`: it names what users reach through it
            parts = {type(part) for part in tree.body[1:]}
            assert parts == {ast.ImportFrom, ast.Assign, ast.FunctionDef}, room  # the function is `__dir__`
        else:
            assert len(tree.body) == 1, f"{room} holds more than its docstring"


def test_public_names() -> None:
    assert dir(ts) == sorted(NAMES)
    for namespace in (ts.cluster, ts.errors, ts.plot, ts.shared):
        assert dir(namespace) == sorted(namespace.__all__)
    assert dir(ts.shared) == ["list", "prune", "remove"]
    assert ts.__version__ == metadata.version("tensorstash")
    assert all(issubclass(getattr(ts.errors, name), ts.errors.TensorstashError) for name in dir(ts.errors))


# the members of classes that the reference or the page on transforms documents
MEMBERS = {
    "Sampler": ["batch_size", "drop_last", "epoch", "load_state_dict", "ranks", "set_epoch", "state_dict"],
    "Mix": ["fingerprint"],
    "Scaler": ["bind", "fit", "from_state", "inverse", "scaled_spans", "state_dict", "transform", "whole_windows"],
    "InstanceNorm": ["bind", "inverse", "whole_windows"],
    "PackSequences": ["bind", "pack_into", "packed_spans", "runs_on_host"],
    "Cast": [],
    "Cross": [],
    **{name: ["bind"] for name, public in NAMES.items() if public.kind == "order"},
}


@pytest.mark.parametrize("name", MEMBERS)
def test_classes_show_nothing_of_the_inside(name: str) -> None:
    """Fields of records apart, which `repr` shows."""
    shown, fields = dir(getattr(ts, name)), getattr(getattr(ts, name), "__dataclass_fields__", {})
    assert [member for member in shown if not member.startswith("_") and member not in fields] == MEMBERS[name]


def test_files_that_reach_inside_say_so() -> None:
    silent = set()
    for path in Path(__file__).parent.parent.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tensorstash."):
                continue
            offered = {*dir(importlib.import_module(str(node.module)))} if node.module in OFFERED else set()
            public = {alias.name for alias in node.names} <= offered
            if not public and "inside" not in (ast.get_docstring(tree) or "").lower():
                silent.add(f"{path.name}: {ast.unparse(node)}")
    assert silent == set()


MOST_LINES = 320


def lines_of_code(text: str) -> int:
    """How many lines there are without docstrings, comments and empty lines."""
    documented = ast.Module, ast.ClassDef, ast.FunctionDef
    bodies = [node.body for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    # a string that is a statement explains what is before it
    texts = [one.value for body in bodies for one in body if isinstance(one, ast.Expr)]
    texts = [one for one in texts if isinstance(one, ast.Constant)]
    prose = {line for one in texts for line in range(one.lineno, (one.end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spaces = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code = {line for one in tokens if one.type not in spaces for line in range(one.start[0], one.end[0] + 1)}
    return len(code - prose)


def test_files_are_short() -> None:
    found = {path.name: lines_of_code(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines > MOST_LINES} == {}


def test_docstrings_comments_and_empty_lines_are_no_code() -> None:
    text = '"""A\nmodule."""\nx = [\n    1,  # one\n]\n\nclass C:\n    """Of\n    it."""\n    # why\n    y: int = 0\n'
    assert lines_of_code(text) == 5


def test_sampling_touches_neither_polars_nor_pyarrow() -> None:
    """What uses them hangs in a forked child: after the load they could as well be gone."""
    program = """
import sys, numpy as np, tensorstash as ts
stash = ts.load({"t": np.arange(50), "y": np.zeros(50)}, ["y"], time="t")
assert "polars" not in sys.modules
sys.modules.update(dict.fromkeys(["polars", "pyarrow", "pandas", "matplotlib"]))
windows = ts.Windows(stash, 4, 2, require=["y"])
for part in windows.split(25):
    for batch in ts.Loader(part, 8, shuffle=True):
        part.anchors([0])
        print(repr(part), len(batch["y"]))
        break
"""
    done = processes.run(program, warn="default", bare=True)
    assert done.stdout.count("Windows: ") == 2, done.stderr
