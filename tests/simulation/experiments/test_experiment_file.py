from pathlib import Path

import pytest

from confide.protocol.errors import BadInput
from confide.simulation.experiments.cells import ExperimentCell, cells
from confide.simulation.experiments.experiment import Experiment, PopulationTerms, read_experiment
from tests.support.programs.experiments import CELLS, SMALL, written
from tests.support.programs.simulation import simulation
from tests.support.repository.places import ROOT


def test_cells_are_all_combinations(tmp_path: Path) -> None:
    """Methods without privacy have no budgets; cells of the same records share their splits."""
    found = cells(read_experiment(written(tmp_path)))
    assert len(found) == len({cell.name for cell in found}) == CELLS
    assert [cell.number for cell in found] == list(range(CELLS))
    assert {(cell.method, cell.epsilon) for cell in found if "non-private" in cell.method} == {
        ("labels:non-private", None)
    }
    assert len({cell.split_name for cell in found}) == 2
    seeds = {cell.seeds(trial) for cell in found for trial in range(100)}
    assert len(seeds) == len({own for _, own in seeds}) == CELLS * 100


def test_a_cell_keeps_its_seeds_in_a_larger_experiment() -> None:
    """What was run stays valid when methods, sizes and trials are added."""
    small = cells(Experiment(methods=("bits:certified",), trials=5))
    large = cells(
        Experiment(
            methods=("labels:certified", "bits:certified"), sizes=(100, 4_000), trials=7, title="x"
        )
    )
    assert {cell.name for cell in small} < {cell.name for cell in large}
    other = cells(Experiment(methods=("bits:certified",), trials=5, alpha=0.2))
    assert small[0].name != other[0].name
    assert small[0].split_name == other[0].split_name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("trials = 5", "trails = 5"), "key 'trails' is unknown; accepted: alpha, budgets,"),
        (("trials = 5", "trials = 0"), "trials is 0"),
        (("trials = 5", 'trials = "5"'), "trials is '5'; accepted is a whole number"),
        (("budgets = [2, 8.0]", "budgets = 2"), "budgets is 2; accepted is a list, each a number"),
        (("budgets = [2, 8.0]", "budgets = [2, 2.0]"), "accepted is each of them once"),
        (("budgets = [2, 8.0]", "budgets = [-1]"), "epsilon is -1"),
        (("labels:certified", "labels:certifed"), "variant of labels is 'certifed'"),
        (("labels:certified", "guesses"), "method is 'guesses'; accepted"),
        (("central:rank-exponential", "central:pps2"), "mechanism of central is 'pps2'"),
        (("sizes = [1500]", "sizes = [16001]"), "16001 records to 50 owners"),
        (("owners = 10", "owner = 10"), "[populations.skewed] key 'owner' is unknown; accepted"),
        (("dropout = 0.1", "dropout = 1.5"), "[populations.skewed] dropout is 1.5; accepted"),
        (("owners = 10", 'data = "none.npz"'), "accepted is a file that exists"),
        (("methods", "scores = ['hpz']\nmethods"), "score hpz"),
        (("methods", 'where = "moon"\nmethods'), "where is 'moon'; accepted"),
        (("seed = 3", "seed = ]"), "is no TOML file"),
        (
            ("[populations.even]", '[settings."bits:certified"]\nbin = 3\n[populations.even]'),
            "[settings.\"bits:certified\"] key 'bin' is unknown; accepted: guarantee, max-corrupt",
        ),
        (
            (
                "[populations.even]",
                '[settings."bits:certified"]\nmax-corrupt = "3"\n[populations.even]',
            ),
            "[settings.\"bits:certified\"] max-corrupt is '3'; accepted is a whole number",
        ),
        (("concentration = 0.3", "concentration = nan"), "concentration nan; accepted"),
        (
            ("[populations.even]", '[settings."bits:one-shot"]\n[populations.even]'),
            "settings are given for 'bits:one-shot'; accepted are methods of this experiment",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_what_was_found_and_is_accepted(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    """Nothing is run, and the message names the file and the place in it."""
    from confide.simulation.experiments.runner import Workers, run_experiment

    assert change[0] in SMALL
    path = written(tmp_path, SMALL.replace(*change, 1))
    with pytest.raises(BadInput) as caught:
        run_experiment(read_experiment(path), tmp_path / "out", workers=Workers(1))
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_commands_end_with_2_for_what_they_cannot_read(tmp_path: Path) -> None:
    """A wrong key of an experiment is one line on standard error."""
    path = written(tmp_path, SMALL.replace("trials", "trails"))
    found = simulation("run", path, "--out", tmp_path / "out")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"error: {path}: key 'trails' is unknown; accepted: alpha,")
    assert len(found.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_changed_file_of_records_makes_other_cells(tmp_path: Path) -> None:
    """A population is told by the content of its file, and not by its path."""
    named: list[ExperimentCell] = []
    for content in (b"one", b"one", b"other"):
        path = tmp_path / f"{len(named)}.csv"
        path.write_bytes(content)
        terms = PopulationTerms(data=str(path))
        named.append(cells(Experiment(methods=("bits:certified",), populations={"p": terms}))[0])
    assert named[0].name == named[1].name != named[2].name


def test_the_example_is_an_experiment() -> None:
    """The file that the documents show can be read."""
    assert len(cells(read_experiment(ROOT / "examples" / "experiment.toml"))) > 5
