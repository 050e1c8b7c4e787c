import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from confide.protocol.errors import BadInput
from confide.simulation.experiments import cells as cells_module
from confide.simulation.experiments.cell_trial import MEASURES
from confide.simulation.experiments.comparison import compared
from confide.simulation.experiments.experiment import read_experiment
from confide.simulation.experiments.journal import NAME, open_journal
from confide.simulation.experiments.results import RESULTS, TIMINGS, read_results
from confide.simulation.experiments.runner import Workers, run_experiment
from tests.support.programs.experiments import CELLS, SMALL, TRIALS, run, written
from tests.support.repository.places import ROOT

SHORT = SMALL.replace("trials = 5", "trials = 2").replace("budgets = [2, 8.0]", "budgets = [8]")
SHORT = SHORT.replace(', "central:rank-exponential"', "")
ON_RAY = """
import sys
from pathlib import Path
from ray.cluster_utils import Cluster
from confide.simulation.cli import app
if __name__ == "__main__":
    file, out = sys.argv[1:]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    app(["run", file, "--out", out, "--ray-address", cluster.address], standalone_mode=False)
    print("nodes", len(cluster.list_all_nodes()))
    cluster.shutdown()
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """An experiment, and its results in one go, in this process."""
    folder = tmp_path_factory.mktemp("whole")
    file = written(folder)
    return file, run(file, folder / "out")


def test_rows_are_tidy_and_say_where_they_come_from(whole: tuple[Path, bytes]) -> None:
    """A row a trial in order, with its seeds and its code; seconds are in another file."""
    found = read_results(whole[0].parent / "out")
    assert [(row["cell"], row["trial"]) for row in found.rows] == [
        (cell, trial) for cell in range(CELLS) for trial in range(TRIALS)
    ]
    assert len({row["seed"] for row in found.rows}) == CELLS * TRIALS
    assert {row["version"] for row in found.rows} == {"0.1.0"}
    assert found.about["experiment"]["title"] == "bits against labels"
    assert (whole[0].parent / "out" / TIMINGS).exists()
    for row in found.rows:
        assert 0.7 <= row["coverage"] <= 1
        assert 1 <= row["mean_size"] <= 26
        assert row["certified_level"] == 0.9
        private = row["method"] != "labels:non-private"
        assert (row["exact_epsilon"] is not None) == private
        assert not private or 0 < row["exact_epsilon"] <= row["epsilon"]
    even = [row for row in found.rows if row["population"] == "even"]
    assert {row["reports"] for row in even if row["method"] != "bits:certified"} == {1_500}
    skewed = [row["reports"] for row in found.rows if row["population"] == "skewed"]
    assert max(skewed) < 1_500


def test_killed_and_started_again_the_results_are_the_same(
    whole: tuple[Path, bytes], tmp_path: Path
) -> None:
    """kill -9 of the command; then a half-written line; only what is missing runs again."""
    command = [sys.executable, "-m", "confide", "run", str(whole[0]), "--workers", "1"]
    process = subprocess.Popen([*command, "--out", str(tmp_path)], cwd=ROOT)
    journal = tmp_path / NAME
    while not (journal.exists() and journal.read_text().count("\n") > 10):
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = journal.read_text().splitlines()
    assert len(kept) < CELLS * TRIALS
    with journal.open("a") as file:
        file.write(kept[0][: len(kept[0]) // 2])
    assert run(whole[0], tmp_path) == whole[1]
    lines = journal.read_text().splitlines()
    assert lines[: len(kept)] == kept
    assert len(lines) == CELLS * TRIALS + 1
    # Nothing is left to do: no line is added, and the results are the same once more.
    assert run(whole[0], tmp_path) == whole[1]
    assert len(journal.read_text().splitlines()) == len(lines)


def after_half(file: Path, out: Path) -> bytes:
    """The results after half of the trials had run before, in reversed order."""
    out.mkdir()
    run(file, out)
    journal = out / NAME
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(reversed(lines[: len(lines) // 2])))
    return run(file, out)


def test_a_shared_generator_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds drawn one after the other, which depend on what ran before, give other results."""
    small = written(tmp_path, SHORT)
    assert after_half(small, tmp_path / "ours") == run(small, tmp_path / "once")
    shared = np.random.default_rng(1)
    monkeypatch.setattr(
        cells_module, "_seed", lambda name, trial: int(shared.integers(1 << 31)), raising=True
    )
    assert after_half(small, tmp_path / "planted") != run(small, tmp_path / "again")


def test_two_ray_nodes_and_none_give_the_same(tmp_path: Path) -> None:
    """The command on an existing cluster of two nodes: more blocks than cores."""
    file = written(tmp_path, SHORT)
    here = run(file, tmp_path / "here")
    # The cluster leaves its address in Ray's folder, where nobody else shall find it. Its sockets
    # need a short path.
    folder = tempfile.mkdtemp(prefix="ray")
    ran = subprocess.run(
        [sys.executable, "-c", ON_RAY, str(file), str(tmp_path / "there")],
        cwd=ROOT,
        env=os.environ | {"RAY_TMPDIR": folder},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    shutil.rmtree(folder, ignore_errors=True)
    assert ran.returncode == 0, ran.stderr
    assert "nodes 2" in ran.stdout
    assert (tmp_path / "there" / RESULTS).read_bytes() == here


def test_a_cell_that_can_promise_nothing_says_why(tmp_path: Path) -> None:
    """Sizes of a sweep that are too small for a method are rows with a reason, not an end."""
    methods = 'methods = ["central:rank-exponential", "central:dpcp"]\nalpha = 0.01'
    file = written(tmp_path, f"{methods}\nsizes = [5]\nbudgets = [0.1]\ntrials = 1\n")
    run(file, tmp_path / "out")
    trivial, refused = read_results(tmp_path / "out").rows
    assert (trivial["coverage"], trivial["trivial"]) == (1, True)
    assert trivial["reason"].startswith("infeasible: rank")
    assert refused["coverage"] is None
    assert refused["reason"].startswith("refused: ")


def test_one_run_at_a_time_writes_a_folder(whole: tuple[Path, bytes], tmp_path: Path) -> None:
    """A second one is refused, and the first goes on."""
    with open_journal(tmp_path), pytest.raises(BadInput, match="is in use by another run"):
        run(whole[0], tmp_path)


def test_trials_over_flower_and_with_clients_are_of_the_same_owners(tmp_path: Path) -> None:
    """The same file with `where`: nodes miss rounds and are late as users in process are, and the
    code of owners in process gives the row of the federation, in every number."""
    text = """
trials = 1
seed = 3
methods = ["labels:certified"]
budgets = [8]
sizes = [600]
[populations.few]
owners = 4
round-dropout = 0.3
stragglers = 0.5
"""
    run(written(tmp_path, text), tmp_path / "here")
    file = written(tmp_path, f'where = "flower"\n{text}')
    ran = run_experiment(read_experiment(file), tmp_path / "there", workers=Workers(None))
    assert ran == (1, 1)
    run(written(tmp_path, f'where = "client"\n{text}'), tmp_path / "clients")
    (here,), (there,), (clients,) = (
        read_results(tmp_path / name).rows for name in ("here", "there", "clients")
    )
    assert 0 < here["reports"] == there["reports"] < 600
    assert there["kind"] == "PAC"
    assert there["exact_epsilon"] == here["exact_epsilon"]
    assert abs(here["coverage"] - there["coverage"]) < 0.1
    assert {name: there[name] for name in MEASURES} == {name: clients[name] for name in MEASURES}
    both = (read_results(tmp_path / name) for name in ("there", "clients"))
    told = ["setting where: 'flower' in A, 'client' in B", "1 of 1 cells have the same trials"]
    assert compared(*both).lines == told
    assert json.loads((tmp_path / "there" / NAME).read_text())["trial"] == 0


def test_clients_in_process_keep_the_promise(tmp_path: Path) -> None:
    """The whole file is the population, so coverage is known: in 40 trials at failure probability
    0.1 more than 14 miss their level with probability below 1e-5. A level 0.04 above what is
    certified would be missed by more."""
    text = """
where = "client"
trials = 40
methods = ["labels:certified", "bits:certified", "central:rank-exponential"]
budgets = [8]
sizes = [2000]
[populations.drawn]
owners = 5
replacement = true
[settings."central:rank-exponential"]
guarantee = "PAC"
"""
    run(written(tmp_path, text), tmp_path / "out")
    rows = read_results(tmp_path / "out").rows
    assert len(rows) == 120
    for method in {row["method"] for row in rows}:
        mine = [row for row in rows if row["method"] == method]
        assert {row["reports"] for row in mine} == {2_000}
        assert all(7.9 < row["exact_epsilon"] <= 8 for row in mine)
        assert sum(row["coverage"] < row["certified_level"] for row in mine) <= 14, method
        assert sum(row["coverage"] < row["certified_level"] + 0.04 for row in mine) > 14, method
