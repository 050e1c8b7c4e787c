"""What the papers print, or what a formula gives, comes out."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.privacy.budgets import Budget
from confide.simulation.evaluate.full_data.networks import Recipe
from confide.simulation.evaluate.full_data.terms import PipelineTerms
from confide.simulation.reproduce.all_targets import TARGETS
from confide.simulation.reproduce.files import cifar10
from confide.simulation.reproduce.full_data import dpcp, scp_coupling
from confide.simulation.reproduce.full_data.cells import averages
from confide.simulation.reproduce.full_data.scp import WIDTHS
from confide.simulation.reproduce.full_data.scp_numbers import HOUSING, SETS
from confide.simulation.reproduce.full_data.scp_regression import california_cells
from confide.simulation.reproduce.made_up import classifier
from confide.simulation.reproduce.split import card_figure, ldp_sets, ldp_terms, pps_level
from confide.simulation.reproduce.split.ldp_numbers import TABLE_1
from confide.simulation.reproduce.target import NO, PARTLY, YES, RunOptions
from tests.support.programs.published_files import write_california, write_cifar, write_medmnist

# Their own tests below run them on a part of their settings: all of them take ten seconds or more.
LONG = ("ldp-figure-4", "pps-figure-3")


def once() -> RunOptions:
    """One trial, with trials of its own that are kept in memory."""
    return RunOptions(trials=1)


@pytest.mark.parametrize(
    "name", [name for name, one in TARGETS.items() if one.quick and name not in LONG]
)
def test_every_quick_target_runs(name: str) -> None:
    """It gives rows with the columns of its picture, and an answer to each sentence."""
    target = TARGETS[name]
    rows = target.rows(once())
    named = {name for row in rows for name in row}
    assert {target.plot.x, target.plot.lines, *target.plot.y} <= named
    for claim in target.claims:
        agrees, ours = claim.answer(rows)
        assert agrees in (YES, PARTLY, NO)
        assert ours


def test_card_table_2_comes_out_exactly() -> None:
    """27, 18 and 9 of 36 configurations, three selected, and the printed reductions."""
    rows = TARGETS["card-table-2"].rows(once())
    for row in rows:
        for name, value in row.items():
            if name.startswith("paper "):
                assert row[name.removeprefix("paper ")] == value
    assert [row["paper N_form"] for row in rows] == [27, 18, 9]
    (claim,) = TARGETS["card-table-2"].claims
    assert claim.answer(rows)[0] == YES
    assert claim.answer([rows[0] | {"N_form": 26}])[0] == NO


@pytest.mark.parametrize(("n", "k", "delta"), [(10_832, 4, 0.0225), (23_640, 8, 0.0172)])
def test_the_correction_of_labels_has_its_reference_values(n: int, k: int, delta: float) -> None:
    """At epsilon 4 and delta 0.001."""
    assert ldp_terms.delta_l(n=n, k=k, epsilon=4.0) == pytest.approx(delta, abs=5e-5)


def test_the_formula_explains_the_starred_rows_of_table_1() -> None:
    """1 - alpha + Delta_L is within 0.007 of what LDP prints for L*, ten times."""
    gaps = [
        0.9
        + ldp_terms.delta_l(n=one.n, k=one.k, epsilon=4.0)
        - TABLE_1[one.name, score, "LDP-CP-L*"]["coverage"]
        for one in ldp_terms.MEDICAL
        for score in ("HPS", "APS")
    ]
    assert max(map(abs, gaps)) < 0.007


def test_made_up_classifiers_have_the_printed_size() -> None:
    """Without privacy, at 90 % coverage."""
    made = classifier(n=20_000, k=8, size=5.55, seed=1)
    own = 1 - made.results[np.arange(len(made)), made.truth]
    size = np.mean((1 - made.results <= np.quantile(own, 0.9)).sum(axis=1))
    assert size == pytest.approx(5.55, abs=0.06)


def test_effective_epsilons_are_the_reference_values() -> None:
    """n = 23,640 at epsilon 4: 0.026 as printed; 0.257 for one round, more for one of ten."""
    (row,) = ldp_terms.shuffled(once(), [ldp_terms.DataSet("one", 23_640, 8)], 4)[3:]
    assert row["effective epsilon, as printed"] == pytest.approx(0.026, abs=5e-4)
    assert row["effective epsilon, one round"] == pytest.approx(0.257, abs=1e-3)
    assert row["effective epsilon, proved, bits"] > 0.257


def test_the_level_of_pps_is_the_least_over_gamma() -> None:
    """Equation 3, minimised numerically."""
    n, epsilon, bins = 2_000, 1.0, 500

    def level(gamma: float) -> float:
        q = (n + 1) * 0.9 / (n * (1 - 0.1 * gamma))
        return q + 2 / (epsilon * n) * math.log(bins / (0.1 * gamma))

    best = minimize_scalar(level, bounds=(1e-9, 1), method="bounded", options={"xatol": 1e-10})
    ours = pps_level.adjusted_level(n=n, epsilon=epsilon, bins=bins)
    assert ours == pytest.approx(best.fun, abs=1e-7)
    assert pps_level.adjusted_level(n=50, epsilon=0.1, bins=bins) == 1.0
    (row,) = pps_level.levels(once(), (500,), (8.0,))
    assert 0.9 < row["adjusted level"] <= row["of exact weights"] < 0.92


def test_the_grid_of_scores_finds_the_level_where_noise_is_small() -> None:
    """At epsilon 20 for the quantile and next to nothing for training, coverage is 1 - alpha."""
    terms = PipelineTerms(5_000, Budget(20.0, 1e-9), alpha=0.1, share=0.005)
    drawn = [dpcp.on_scores(terms, number) for number in range(20)]
    # e^-0.1 of alpha is left for the quantile.
    mean = np.mean([row["coverage"] for row in drawn if row is not None])
    assert mean == pytest.approx(1 - 0.1 * math.exp(-0.1), abs=0.005)
    assert dpcp.on_scores(PipelineTerms(100, Budget(0.1, 1e-9), alpha=0.1), 0) is None


def test_coupled_runs_part_by_one_record_only() -> None:
    """They start together and stay near: noise that is not shared would part them by far."""
    rows = [row for row in scp_coupling.coupled(RunOptions(trials=3)) if row["epsilon"] == 0.5]
    assert rows[0]["stability gap"] == 0
    assert 0 < rows[-1]["stability gap"] < 0.03 < 0.2 < rows[-1]["estimation error"]


def test_noise_of_card_is_as_printed() -> None:
    """With much budget the released threshold is the exact one, above it by the offset at most."""
    scores = np.random.default_rng(0).random(4_000)
    rng = np.random.default_rng(1)
    found = card_figure.released(scores, gamma=0.75, epsilon=1e6, rng=rng)
    assert found.exact == found.private == 0.76
    found = card_figure.released(scores, gamma=0.75, epsilon=8.0, rng=rng)
    assert found.exact <= found.private <= found.certified


def test_scps_numbers_are_whole() -> None:
    """Three tables of five sizes and three methods; eleven lines of housing."""
    assert (len(SETS), len(HOUSING), len(TABLE_1)) == (45, 11, 50)
    assert SETS[30_000, 2.0, "scp-a"] == {
        "coverage": 0.904,
        "mean size": 2.071,
        "singletons": 0.371,
    }


def test_table_1_runs_on_medmnist_files(tmp_path: Path) -> None:
    """A network is trained on the first part, and every method calibrates on the others."""
    write_medmnist(tmp_path / "octmnist.npz")
    small: Any = ldp_terms.DataSet("OCTMNIST", 60, 4)
    asked = RunOptions(trials=2, files={"octmnist.npz": tmp_path / "octmnist.npz"})
    rows = ldp_sets.table(asked, lambda one: ldp_sets.of_medmnist(asked, one), [small])
    assert len(rows) == 2 * len(ldp_sets.METHODS)
    assert rows[0]["n"] == 60
    write_medmnist(tmp_path / "octmnist.npz", k=6)
    with pytest.raises(BadInput, match="OCTMNIST has 0 to 3"):
        ldp_sets.of_medmnist(asked, small)
    plain = next(row for row in rows if row["method"] == "Not-Private-CP")
    # Chance has 3.6 of 4 labels at 90 %.
    assert plain["coverage"] > 0.75
    assert plain["size"] < 2.5


def test_figure_1_of_card_runs_on_cifar_files(tmp_path: Path) -> None:
    """A network is trained by DP-SGD on the batches, and the card's diagnostics are taken."""
    write_cifar(tmp_path / "c")
    population = card_figure.of_images(*cifar10(tmp_path / "c"), entropy=SeededEntropy("test"))
    rows = card_figure.diagnostics(once(), lambda _: population, sizes=[7])
    assert (len(population), len(rows)) == (8, 12)
    with pytest.raises(BadInput, match="more than 4,000"):
        card_figure.diagnostics(once(), lambda _: population)
    assert all(row["inflation"] <= 1 for row in rows)


def test_table_2_of_scp_runs_on_a_csv(tmp_path: Path) -> None:
    """Intervals of house values, in units of $100,000."""
    write_california(tmp_path / "h.csv")
    recipe = Recipe(hidden=(4,), batch=64, fixed_steps=20, rate=0.05)
    cells = california_cells(tmp_path / "h.csv", recipe=recipe)[1:2]
    rows = averages(cells, once().kept, 1, measures=WIDTHS)
    assert {row["method"] for row in rows} >= {"scp-f", "scp-a", "split", "naive", "split-cp"}
    assert all(row["n"] == 320 for row in rows)
    naive = next(row for row in rows if row["method"] == "naive")
    assert 0.1 < naive["mean size"] < 6
