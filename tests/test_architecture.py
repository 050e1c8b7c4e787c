import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from confide.client.home import Home
from tests.support.owners.spending import ASKED, spend
from tests.support.repository.imports import imports, sources, top, within
from tests.support.repository.packages import PACKAGES
from tests.support.repository.places import ROOT

# Which rooms of the aggregator a room may use, besides the modules that lie beside the rooms.
ROOMS: dict[str, set[str]] = {
    "quantiles": set(),
    "procedures": {"quantiles"},
    "campaigns": {"procedures", "quantiles"},
    "cards": {"campaigns", "procedures", "quantiles"},
    "storage": {"campaigns"},
    "server": {"campaigns", "cards", "procedures", "quantiles", "storage"},
    "web": {"campaigns", "storage"},
    "cli": {"campaigns", "cards", "server", "storage", "web"},
}
# The files that may name a technology: it can be exchanged without touching what decides.
ADAPTERS = {
    "grpc": {
        "aggregator/server/grpc_server.py",
        "aggregator/server/service.py",
        "aggregator/server/health.py",
        "client/transport/grpc_client.py",
    },
    "sqlalchemy": {"aggregator/storage/", "shuffler/storage.py"},
    "alembic": {"aggregator/storage/"},
    "starlette": {"aggregator/web/server.py"},
    "prometheus_client": {"aggregator/web/metrics.py"},
    "flwr": {
        "aggregator/flower_app.py",
        "aggregator/flower_messages.py",
        "client/flower_app.py",
        "client/transport/pinned_launcher.py",
    },
}
# Folders of tests that mirror no room: whole systems, pages and scripts, what others register, the
# package of public names, and helpers.
NO_ROOMS = {"system", "docs", "examples", "extension", "public", "support"}
# The longest that a module may be, in lines, and the most modules that a room may hold.
LONGEST = 300
MOST = 12
SKIPPED = re.compile("# fmt: (skip|off)$")
HEAVY = {"flwr", "torch", "opacus", "grpc", "sqlalchemy"}


def test_every_module_fits_a_few_screens() -> None:
    """No module of the repository is above 300 lines, tests and benchmarks included."""
    written = [
        path
        for path in sources(*PACKAGES, "confide", "tests", "benchmarks", "examples", "docs")
        if not path.name.endswith("_pb2.py")
    ]
    lengths = {str(path): len(path.read_text().splitlines()) for path in written}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_every_room_has_few_modules() -> None:
    """A room of one subject is seen at a glance; what outgrows it gets a room of its own."""
    held = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for path in sources(*PACKAGES, "benchmarks")
        if not path.name.startswith("__") and not path.name.endswith("_pb2.py")
    )
    # Migrations are one after the other, and never read together.
    del held["aggregator/storage/migrations/versions"]
    assert {room: modules for room, modules in held.items() if modules > MOST} == {}


def strays(folders: set[str]) -> set[str]:
    """The folders of tests that are named like no room of the code."""
    rooms = {folder for folder in folders if folder.partition("/")[0] not in NO_ROOMS}
    return {room for room in rooms if not (ROOT / room / "__init__.py").exists()}


def test_tests_stand_in_the_rooms_of_the_code() -> None:
    """What tests a room's modules is found under the name of the room."""
    tests = {path.parent.relative_to(ROOT / "tests").as_posix() for path in sources("tests")}
    assert strays(tests - {"."}) == set()
    assert strays({"client/ledger", "client/nowhere", "support/cards"}) == {"client/nowhere"}


def test_lines_fit_and_the_formatter_is_not_disturbed() -> None:
    """Also lines with a remark for a checker at their end, which the linter lets pass."""
    for path in sources(*PACKAGES, "confide", "tests", "benchmarks", "examples", "docs"):
        lines = [] if path.name.endswith("_pb2.py") else path.read_text().splitlines()
        assert [line for line in lines if len(line) > 100 or SKIPPED.search(line)] == [], path


def alike(names: set[str]) -> set[str]:
    """The names of which another one is the plural."""
    return {name for name in names if {f"{name}s", f"{name}es"} & names}


def test_no_two_modules_of_a_room_differ_by_an_s() -> None:
    """Modules and rooms that stand side by side have names that nobody takes for each other."""
    rooms: dict[Path, set[str]] = {}
    for path in sources(*PACKAGES, "confide", "benchmarks", "examples", "docs"):
        held = path.parent if path.name == "__init__.py" else path
        rooms.setdefault(held.parent, set()).add(held.stem)
    assert {str(room): alike(names) for room, names in rooms.items() if alike(names)} == {}
    assert alike({"target", "targets", "class", "classes", "trial"}) == {"target", "class"}


def other_tests(path: Path) -> set[str]:
    """The modules of tests that a file of tests takes something from."""
    return {
        name
        for name in imports(path)
        if name.startswith("tests.") and re.search(r"\.test_\w+$", name)
    }


def test_tests_take_nothing_from_other_tests(tmp_path: Path) -> None:
    """Helpers stand in tests/support, so that a test can change without breaking others."""
    for path in sources("tests"):
        assert other_tests(path) == set(), path
    planted = tmp_path / "planted.py"
    planted.write_text("from tests.client import test_owner\nfrom tests.client.test_x import y\n")
    assert other_tests(planted) == {"tests.client.test_owner", "tests.client.test_x"}


def test_there_is_one_import_name() -> None:
    """Imported by their folders' names, modules would be loaded a second time."""
    for path in sources("confide", *PACKAGES, "tests", "benchmarks"):
        assert not top(imports(path)) & set(PACKAGES), path


@pytest.mark.parametrize("package", list(PACKAGES))
def test_dependencies_point_one_way(package: str) -> None:
    """protocol knows nobody, client and aggregator know protocol, shuffler and simulation are built
    of these, and nobody knows them."""
    for path in sources(package):
        assert within("confide", imports(path)) & set(PACKAGES) <= PACKAGES[package], path


@pytest.mark.parametrize("room", list(ROOMS))
def test_rooms_of_the_aggregator_are_layers(room: str) -> None:
    """Algorithms know no storage, storage no server, and only the command lines know everything."""
    assert {
        path.name for path in (ROOT / "aggregator").iterdir() if (path / "__init__.py").exists()
    } == set(ROOMS)
    for path in sources(f"aggregator/{room}"):
        assert within("confide.aggregator", imports(path)) & set(ROOMS) <= ROOMS[room] | {room}, (
            path
        )


def test_protocol_stays_light() -> None:
    """No framework is imported by what both sides share; networks import torch when one is made."""
    for path in sources("protocol"):
        networks = path.parent.name == "architectures"
        assert not top(imports(path, at_once=networks)) & HEAVY, path
        assert not networks or top(imports(path)) & HEAVY <= {"torch"}, path


@pytest.mark.parametrize("package", list(PACKAGES))
def test_package_files_hold_a_docstring_only(package: str) -> None:
    """Importing a package does nothing."""
    for path in sources(package):
        if path.name == "__init__.py":
            body = ast.parse(path.read_text()).body
            assert len(body) == 1, path
            assert isinstance(body[0], ast.Expr), path


def test_every_package_is_installed() -> None:
    """A room that setuptools is not told of would be missing from wheels."""
    folders = {
        path.parent.relative_to(ROOT) for path in sources(*PACKAGES) if path.name == "__init__.py"
    }
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert set(told) == {"confide", *(".".join(("confide", *folder.parts)) for folder in folders)}


@pytest.mark.parametrize("technology", list(ADAPTERS))
def test_technologies_are_named_in_adapters_only(technology: str) -> None:
    """What moves or keeps bytes can be exchanged without touching what decides."""
    for path in sources("client", "aggregator", "shuffler"):
        name = path.relative_to(ROOT).as_posix()
        adapter = any(name.startswith(allowed) for allowed in ADAPTERS[technology])
        assert technology not in top(imports(path)) or adapter, name


def test_no_two_classes_have_one_name() -> None:
    """One word for one thing: also on the owner's and the operator's side."""
    places: dict[str, list[str]] = {}
    for path in sources(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("campaigns", [0, 3])
def test_an_owner_that_looks_loads_no_framework(campaigns: int, tmp_path: Path) -> None:
    """`confide-client status` loads neither scipy nor torch, Flower, SQLAlchemy or matplotlib,
    whether the folder is new or its ledger has answered campaigns, one of which trains."""
    home = Home(tmp_path / "home")
    home.create()
    for number in range(campaigns):
        trains: dict[str, Any] = {"rounds": 2, "training": b"plan"} if number == 2 else {}
        name = f"campaign {number}"
        spend(home.ledger(), replace(ASKED, plan=name.encode(), campaign=name, **trains), 1.0)
    script = (
        "import sys\n"
        "from confide.client.__main__ import main\n"
        "from pathlib import Path\n"
        "def run(*words):\n"
        "    sys.argv = ['confide-client', *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
        f"run('init', '--home', {str(home.folder)!r})\n"
        f"run('status', '--home', {str(home.folder)!r})\n"
        "print(sorted({'scipy', 'torch', 'flwr', 'ray', 'sqlalchemy', 'matplotlib'} & "
        "set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f"campaign {number}" in done.stdout for number in range(campaigns))


@pytest.mark.parametrize("module", ["confide.aggregator.cli.server", "confide.simulation.cli"])
def test_command_lines_start_without_what_few_commands_need(module: str) -> None:
    """Migrations, plots, the page, optimisers and scipy's laws are loaded by those who use them;
    with them a command, or a server, would take twice as long to start."""
    slow = {"scipy.stats", "scipy.signal", "scipy.optimize", "alembic", "matplotlib", "torch"}
    slow |= {"starlette", "uvicorn", "jinja2"}
    script = f"import sys, {module}\nprint(sorted({slow!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_public_names_are_there_and_load_nothing_before_they_are_asked_for() -> None:
    """Every name of `__all__` can be imported; importing the package alone imports no other."""
    script = (
        "import sys, confide\n"
        "print(sorted(name for name in sys.modules if name.startswith('confide.')))\n"
        "print(all(getattr(confide, name) is not None for name in confide.__all__))\n"
        "print(sorted((*confide._HOME_OF, *confide._MODULES)) == sorted(confide.__all__))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "True", "True"]


# What writes files in place: each renames what it wrote, or writes for a process of its own.
IN_PLACE = {
    "client/ledger/database.py",
    "client/ledger/mark.py",
    "simulation/federation/harness.py",
}


def in_place(text: str) -> bool:
    """Whether a module writes a file that a kill would leave half written."""
    return re.search(r"\.write_(text|bytes)\(", text) is not None


def test_files_are_written_whole() -> None:
    """Results are written by `protocol/files.py`: a kill leaves the old file or the new one."""
    assert in_place('path.with_suffix(".json").write_text(text)')
    found = {
        str(path.relative_to(ROOT)) for path in sources(*PACKAGES) if in_place(path.read_text())
    }
    assert found == IN_PLACE
