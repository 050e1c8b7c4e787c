import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import indent
from types import ModuleType

import numpy as np
import pytest

from confide.aggregator.campaigns.measurements import Measurements
from confide.aggregator.campaigns.summary import as_text
from confide.protocol.commands import command_line
from confide.protocol.commands import terminal as terminal_module
from confide.protocol.version import CODE_VERSION
from confide.simulation.defaults import run_defaults
from tests.support.programs.commands import run_main
from tests.support.programs.processes import read_terminal, started, terminal
from tests.support.repository.places import ROOT

# Every command line, and where its `main` is.
COMMANDS = {
    "client": "confide.client.__main__.main",
    "aggregator": "confide.aggregator.__main__.main",
    "card": "confide.aggregator.__main__.card",
    "shuffler": "confide.shuffler.__main__.main",
    "simulation": "confide.__main__.main",
}
# What each is called, and the first of its commands.
NAMES = {
    "client": ("confide-client", "init"),
    "aggregator": ("confide-aggregator", "init"),
    "card": ("confide-card", "search"),
    "shuffler": ("confide-shuffler", "init"),
    "simulation": ("confide", "evaluate"),
}
NARROW = os.environ | {"COLUMNS": "80"}
EXPERIMENT = str(ROOT / "examples" / "experiment.toml")
ASKED = ["--records", "99", "--epsilon", "1"]
RUN = """
import importlib, sys
place, missing, *sys.argv[1:] = sys.argv[1:]
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in missing.split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
module, _, name = place.rpartition(".")
getattr(importlib.import_module(module), name)()
"""


def command(
    name: str, *arguments: str, missing: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """A command line as its console script starts it, where a package may not be installed."""
    given = [sys.executable, "-c", RUN, COMMANDS[name], missing, *arguments]
    return subprocess.run(
        given,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=NARROW | variables,
    )


def main_of(name: str) -> Callable[[], None]:
    """The function that the console script of a command line calls."""
    module, _, main = COMMANDS[name].rpartition(".")
    found: Callable[[], None] = getattr(import_module(module), main)
    return found


@pytest.mark.parametrize(
    ("name", "missing", "extra", "arguments"),
    [
        ("client", "typer", "client", ["--help"]),
        ("client", "rich", "client", ["--help"]),
        ("client", "flwr", "flower", ["bundle-hash"]),
        ("aggregator", "typer", "server", ["--help"]),
        ("aggregator", "sqlalchemy", "server", ["--help"]),
        ("card", "typer", "server", ["--help"]),
        ("shuffler", "typer", "server,client", ["--help"]),
        ("shuffler", "grpc", "server,client", ["--help"]),
        ("simulation", "typer", "client", ["predict"]),
        ("simulation", "typer", "simulation", ["federation"]),
        ("simulation", "matplotlib", "simulation", ["federation"]),
        ("simulation", "psutil", "simulation", ["federation"]),
        ("simulation", "ray", "simulation", ["federation"]),
        ("simulation", "flwr", "simulation", ["federation"]),
        ("simulation", "matplotlib", "plots", ["reproduce", "ldp-figure-3", "--out", "{}"]),
        ("simulation", "matplotlib", "plots", ["report", "{}"]),
        ("simulation", "matplotlib", "plots", ["advise", *ASKED, "--picture", "{}"]),
        ("simulation", "ray", "simulation", ["run", EXPERIMENT, "--workers", "2", "--out", "{}"]),
        ("simulation", "torch", "train", ["evaluate", "--method", "full-data"]),
        ("simulation", "dp_accounting", "train", ["evaluate", "--method", "full-data"]),
    ],
)
def test_a_missing_extra_is_named(
    name: str, missing: str, extra: str, arguments: list[str], tmp_path: Path
) -> None:
    """Where a package of an extra is not installed, one line says which extra to install, before
    anything is computed or written; exit code 2, no traceback."""
    out = tmp_path / "out"
    run = command(name, *(one.format(out) for one in arguments), missing=missing)
    assert not out.exists()
    assert run.returncode == 2, run.stderr
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("error: ")
    assert f"confide[{extra}]" in run.stderr


@pytest.mark.parametrize("loads", [terminal_module, command_line])
def test_ctrl_c_while_packages_are_loaded_is_one_line(
    loads: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the command line, and those of a command, which take seconds on a busy machine."""

    def pressed(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loads, "import_module", pressed)
    monkeypatch.setattr(sys, "argv", ["confide-aggregator", "serve"])
    with pytest.raises(SystemExit, match="130"):
        main_of("aggregator")()
    assert capsys.readouterr().err == "interrupted\n"


def test_predicting_and_evaluating_need_no_federation() -> None:
    """Who has a card, or records of its own, installs no framework for them."""
    frameworks = "psutil,matplotlib,ray,flwr,torch,sqlalchemy"
    for arguments in (["predict", "--help"], ["evaluate", "--trials", "1", "--n", "1000"]):
        run = command("simulation", *arguments, missing=frameworks)
        assert run.returncode == 0, run.stderr


DRAW = """
import confide
from confide.simulation.arrays.evaluate import Evaluation
try:
    {}
except confide.BadInput as error:
    print(error)
"""


@pytest.mark.parametrize(
    "call",
    [
        "confide.plots.set_sizes([[True, False]])",
        "confide.plots.against_epsilon([Evaluation('bits', 'hps', 1.0, 0.1, 9, ())])",
    ],
)
def test_a_picture_names_the_extra_that_draws_it(call: str, tmp_path: Path) -> None:
    """Without matplotlib a call of `confide.plots` is bad input that says what to install."""
    (tmp_path / "script.py").write_text(f"def main():\n{indent(DRAW.format(call), '    ')}")
    given = [sys.executable, "-c", RUN, "script.main", "matplotlib"]
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    run = subprocess.run(
        given,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=NARROW | {"PYTHONPATH": path},
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "confide[plots]" in run.stdout


def test_a_module_of_the_project_that_is_missing_is_no_extra() -> None:
    """A broken installation is not taken for a missing extra: it shows itself."""
    run = command("client", "--help", missing="confide.client.ledger")
    assert run.returncode == 1
    assert "confide.client.ledger" in run.stderr
    assert "confide[" not in run.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("client", []),
        ("client", ["contribute"]),
        ("client", ["allow"]),
        ("aggregator", []),
        ("aggregator", ["serve"]),
        ("aggregator", ["campaign"]),
        ("aggregator", ["campaign", "create"]),
        ("aggregator", ["owner", "add"]),
        ("card", ["search"]),
        ("card", []),
        ("simulation", []),
        ("simulation", ["evaluate"]),
        ("simulation", ["federation"]),
    ],
)
def test_help_is_plain_text_of_80_columns(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No escaped brackets, no control characters, no line beyond the terminal, and defaults in
    brackets."""
    monkeypatch.setenv("COLUMNS", "80")
    run = run_main(main_of(name), *arguments, "--help")
    assert run.returncode == 0, run.stderr
    assert "\\[" not in run.stdout
    assert all(line.isprintable() for line in run.stdout.splitlines())
    assert max(map(len, run.stdout.splitlines())) <= 80
    if arguments in (["evaluate"], ["federation"], ["search"], ["serve"]):
        assert "[default: " in run.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_line_has_a_version(name: str) -> None:
    """`--version` prints the name and the version that cards state; subcommands do not have it."""
    run = command(name, "--version")
    assert (run.returncode, run.stdout) == (0, f"{NAMES[name][0]} {CODE_VERSION}\n")
    assert run_main(main_of(name), NAMES[name][1], "--version").returncode == 2


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_line_completes_in_a_shell(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--show-completion` prints a script for bash, and what that script calls lists commands."""
    program, first = NAMES[name]
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    script = run_main(main_of(name), "--show-completion", "bash").stdout
    assert f"{variable}=complete_bash" in script
    assert script.splitlines()[-1].endswith(f" {program}")
    asked = {variable: "complete_bash", "COMP_WORDS": f"{program} {first[0]}", "COMP_CWORD": "1"}
    assert first in command(name, **asked).stdout.splitlines()


def on_a_terminal(columns: int, *arguments: str) -> list[str]:
    """What `confide` shows on a terminal of so many columns, line by line and without styles."""
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "confide", *arguments]
    with (
        terminal(columns) as (ours, theirs),
        started(
            command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env
        ) as process,
    ):
        os.close(theirs)
        shown = b"".join(iter(partial(read_terminal, ours), b""))
        assert process.wait(timeout=60) == 0, shown
    return re.sub("\x1b\\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n").splitlines()


NUMBERS = re.compile(r"0\.900 \w+ +[01]\.\d{3} ± \d\.\d{3} +\d+\.\d\d ± \d\.\d\d +\d+ %")


def test_results_survive_a_terminal_of_80_columns() -> None:
    """Promise, coverage, set size and the share of trivial campaigns are whole; what is left out is
    named."""
    lines = on_a_terminal(80, "variants", "--trials", "1")
    assert max(map(len, lines)) <= 80
    assert sum(NUMBERS.search(line) is not None for line in lines) == 6
    assert "left out at 80 columns: channel, exact epsilon" in lines
    wide = on_a_terminal(140, "evaluate", "--method", "central", "--trials", "1")
    assert any("exact epsilon" in line and "trivial" in line for line in wide)
    assert not any("left out" in line for line in wide)


def test_a_table_of_campaigns_fits_80_columns() -> None:
    """Columns of how a result came about go first; a trivial campaign says so in its row; any width
    shows everything."""
    config = run_defaults() | {"records": 2_000, "seed": 1}
    row = Measurements(config, owners=1).non_private(alpha=0.1)
    shown = {"campaign": "labels:published-star", "channel": "rank-exponential", "epsilon": 2.0}
    rows = [row, row | shown | {"threshold": 1.0, "reason": "why"}]
    head, _, plain, trivial, note, left_out = as_text(rows, width=80).splitlines()
    assert max(map(len, (head, plain, trivial))) <= 80
    assert head.split("  ")[0] == "campaign"
    assert all(name in head for name in ("promised", "test coverage", "mean set size", "trivial"))
    assert (plain.split()[-1], trivial.split()[-1]) == ("no", "yes")
    assert note == "labels:published-star is trivial: why"
    assert left_out == "left out at 80 columns: channel, exact epsilon, reports, threshold"
    assert np.all(
        [name in as_text(rows) for name in ("channel", "exact epsilon", "reports", "threshold")]
    )
