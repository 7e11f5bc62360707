"""The order of folders in docs/architecture.md holds, names and docstrings are words, and quick starts load little."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePath

import pytest

from tests.conftest import ROOT

ROOMS = ("gradsweep", "compressors", "trainers", "sweep", "reports", "hydra_plugins")
NEVER = {
    "gradsweep": ("torch", "hydra", "omegaconf", "mpi4py", "pandas", "numpy", "submitit"),
    "compressors": ("mpi4py", "hydra", "omegaconf", "pandas"),
    "trainers": ("hydra", "omegaconf", "pandas"),
    "reports": ("torch", "hydra", "omegaconf", "mpi4py"),
}
"""Packages that no file of a room imports."""
MOST_FILES = 15
A_FILE_EACH = {
    "gradsweep": "thing that all programs share",
    "compressors/kernels/cpu": "kernel",
    "compressors/kernels/cuda": "kernel",
    "compressors/kernels/reference": "kernel",
    "reports/commands": "command",
    "trainers/data": "data set",
    "trainers/models": "model",
    "trainers/optimizers": "optimizer",
}
"""Folders with a file for each thing of one kind; they may have more than MOST_FILES."""
MOST_LOOKS = 11

Graph = Mapping[str, set[str]]


# The code


@functools.cache
def parse_rooms() -> dict[str, ast.Module]:
    """Return the syntax tree of every file of the rooms, by its path."""
    paths = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@functools.cache
def index_modules() -> dict[str, str]:
    """Return the file of every module of the rooms, by its dotted name."""
    return {".".join(PurePath(file).with_suffix("").parts).removesuffix(".__init__"): file for file in parse_rooms()}


def list_imports(file: str) -> set[str]:
    """Return all modules that a file imports, inside functions and under TYPE_CHECKING too.

    `from a import b` counts as a.b, which is a module or a name in one.
    """
    modules = set()
    for node in ast.walk(parse_rooms()[file]):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = file.split("/")[:-1]
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            modules |= {f"{base}.{alias.name}" for alias in node.names}
    return modules


@functools.cache
def build_graph() -> Graph:
    """Return the files of the rooms that each file imports."""
    modules = index_modules()
    graph: dict[str, set[str]] = {}
    for file in parse_rooms():
        graph[file] = set()
        for module in list_imports(file):
            while module and module not in modules:
                module = module.rpartition(".")[0]
            if module and modules[module] != file:
                graph[file].add(modules[module])
    return graph


def get_folder(file: str) -> str:
    return str(PurePath(file).parent)


def is_below(folder: str, other: str) -> bool:
    """Tell whether a folder is another one or lies in it."""
    return PurePath(folder).is_relative_to(other)


def defines_nothing(file: str) -> bool:
    """Tell whether an `__init__.py` only hands on names."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return file.endswith("__init__.py") and not any(isinstance(node, definitions) for node in parse_rooms()[file].body)


def find_circles(graph: Graph) -> list[list[str]]:
    """Return the sets of nodes that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, ahead = set(), [start]
        while ahead:
            for node in graph.get(ahead.pop(), set()) - seen:
                seen.add(node)
                ahead.append(node)
        reached[start] = seen
    return sorted(
        {tuple(sorted(node for node in reached[start] if start in reached.get(node, ()))) for start in graph} - {()}
    )


# The order of folders


def read_order() -> list[str]:
    """Return the folders in the order in which docs/architecture.md prints them."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## Folders and the direction of imports\n")
    return re.findall(r"^\| `([\w/]+)/` \|", section.partition("\n## ")[0], re.MULTILINE)


def test_the_page_lists_every_folder_once() -> None:
    order = read_order()
    assert len(order) == len(set(order))
    assert set(order) == {get_folder(file) for file in parse_rooms()}


def test_a_folder_imports_only_folders_printed_above_it() -> None:
    place = {folder: number for number, folder in enumerate(read_order())}
    wrong = []
    for file, imported in build_graph().items():
        for other in imported:
            folder, target = get_folder(file), get_folder(other)
            starts_it = file.endswith("/__main__.py") and is_below(target, folder)
            if place[target] > place[folder] and not starts_it:
                wrong.append(f"{file} imports {other}")
    assert not wrong


def test_reports_look_at_sweeps_and_steer_none() -> None:
    looks = [
        (file, other)
        for file, imported in build_graph().items()
        for other in imported
        if file.startswith("reports/") and other.startswith(("sweep/", "trainers/", "compressors/"))
    ]
    assert {get_folder(other) for _, other in looks} <= {"sweep/status"}
    assert len(looks) <= MOST_LOOKS


def test_sweep_is_told_of_trainers_by_hydra_plugins_only() -> None:
    found = {
        (file, other)
        for file, imported in build_graph().items()
        for other in imported
        if file.startswith("sweep/") and not other.startswith(("sweep/", "gradsweep/"))
    }
    assert not found
    plugin = {other for other in build_graph()["hydra_plugins/gradsweep/__init__.py"] if other.startswith("trainers/")}
    assert {get_folder(other) for other in plugin} <= {"trainers/config", "trainers/options", "trainers/rules"}


def test_no_circle_of_files_or_of_folders() -> None:
    graph = {
        file: {other for other in imported if not defines_nothing(other)}
        for file, imported in build_graph().items()
        if not defines_nothing(file)
    }
    assert not find_circles(graph)
    folders: dict[str, set[str]] = {}
    for file, imported in graph.items():
        folder = get_folder(file)
        others = {get_folder(other) for other in imported}
        folders.setdefault(folder, set()).update(
            other for other in others if not (is_below(folder, other) or is_below(other, folder))
        )
    assert not find_circles(folders)


def test_few_files_lie_flat_in_a_folder() -> None:
    counts: dict[str, int] = {}
    for path in [*parse_rooms(), *(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))]:
        if not path.endswith("__init__.py"):
            counts[get_folder(path)] = counts.get(get_folder(path), 0) + 1
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES}.keys() <= A_FILE_EACH.keys()


def test_rooms_stay_clear_of_packages_of_others() -> None:
    wrong = []
    for file in parse_rooms():
        never = NEVER.get(file.split("/")[0], ())
        wrong += [f"{file} imports {module}" for module in list_imports(file) if module.split(".")[0] in never]
    assert not wrong


# Words


PREPOSITIONS = {"alone", "alike", "at", "beside", "by", "for", "in", "of", "with", "within", "without"}
PARTICIPLES = {"begun", "built", "chosen", "drawn", "found", "given", "gone", "held", "kept", "known", "left", "made"}
PARTICIPLES |= {"said", "sent", "shown", "taken", "told", "written"}
VERBS_IN_ED = {"bleed", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"}
CLAUSES = ("How", "Of", "What", "Whatever", "Where", "Which", "Who", "Whose")


def list_functions() -> Iterable[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield all functions and methods of the rooms, with their file."""
    for file, tree in parse_rooms().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield file, node


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_functions_are_named_by_verbs() -> None:
    """At most 2 % are named by a participle or a preposition: some belong to the interface of a library."""
    names = [
        (file, node.name)
        for file, node in list_functions()
        if not (node.name.startswith("__") or is_property(node)) and node.name.strip("_")
    ]
    wrong = []
    for file, name in names:
        word = name.strip("_").split("_")[0]
        if word in PREPOSITIONS | PARTICIPLES or (word.endswith("ed") and word not in VERBS_IN_ED):
            wrong.append(f"{file}: {name}")
    assert len(wrong) <= 0.02 * len(names), "\n".join(wrong)


def test_docstrings_are_sentences() -> None:
    """Fewer than 1 % of those of functions begin with a relative or interrogative word."""
    docstrings = [(file, node.name, ast.get_docstring(node) or "") for file, node in list_functions()]
    wrong = [f"{file}: {name}" for file, name, text in docstrings if re.split(r"\W", text, maxsplit=1)[0] in CLAUSES]
    assert len(wrong) <= 0.01 * sum(bool(text) for _, _, text in docstrings), "\n".join(wrong)


# Files and starts


def test_csvs_that_people_open_are_written_in_one_place() -> None:
    """Where texts that look like formulas are quoted; what gradsweep writes into run directories has numbers only."""
    writes = re.compile(r"\bcsv\.(writer|DictWriter)\(|(?<!spreadsheets)\.to_csv\(")
    writers = {file for file in parse_rooms() if writes.search((ROOT / file).read_text(encoding="utf-8"))}
    assert writers == {"gradsweep/files.py", "gradsweep/cli/spreadsheets.py"}


def list_loaded_modules(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import reports", {"torch", "mpi4py", "hydra", "matplotlib"}),
        ("import reports.__main__, reports.commands.build", {"pandas", "numpy", "yaml", "rich", "jinja2"}),
        ("import reports.commands.list, reports.commands.logs, reports.commands.prune", {"pandas", "numpy", "yaml"}),
        ("import reports.commands.show, reports.commands.diff", {"pandas", "numpy", "matplotlib", "jinja2"}),
        ("import compressors; compressors.registry()", {"torch", "numba"}),
        ("import trainers.config.run_config", {"torch", "numba", "hydra", "omegaconf", "pandas"}),
        (
            "import gradsweep.run_directory, gradsweep.disk.file_lock, gradsweep.disk.disk_errors",
            {"numpy", "yaml", "rich"},
        ),
        ("import sweep.__main__, sweep.commands.status", {"numpy", "yaml", "rich", "hydra", "submitit"}),
        (
            "import sweep.launch, sweep.launch.detached, sweep.commands.resume",
            {"hydra", "omegaconf", "torch", "pandas"},
        ),
        ("import multirun", {"torch", "numba", "pandas", "matplotlib", "submitit", "mpi4py"}),
        (
            "import trainers.training.loop",
            {"torch._dynamo", "hydra", "pandas", "matplotlib", "sklearn", "torchvision", "numba"},
        ),
    ],
)
def test_a_quick_start_loads_nothing_heavy(statement: str, not_loaded: set[str]) -> None:
    assert not list_loaded_modules(statement) & not_loaded
