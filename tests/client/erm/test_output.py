import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide.client.erm import objective as objective_module
from confide.client.erm import output as output_module
from confide.client.erm.objective import Objective
from confide.client.erm.output import OutputPerturbation
from confide.client.erm.solver import solve
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.cards.mutants import mutant
from tests.support.truth.least_squares import made_up, one_more

SMALL = Objective(n=50, columns=4, ridge=0.05, limit=1.0)


def exact_minimum(objective: Objective, rows: Any, targets: Any) -> list[Fraction]:
    """The minimum of least squares with a ridge, in rational numbers."""
    p = objective.columns
    xs = [[Fraction(float(value)) for value in row] for row in rows]
    ys = [Fraction(float(value)) for value in targets]
    matrix = [
        [
            sum((x[i] * x[j] for x in xs), Fraction(0)) / objective.n
            + (Fraction(objective.ridge) if i == j else 0)
            for j in range(p)
        ]
        + [sum((x[i] * y for x, y in zip(xs, ys, strict=True)), Fraction(0)) / objective.n]
        for i in range(p)
    ]
    for i in range(p):
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for j in range(p):
            if j != i:
                matrix[j] = [
                    one - matrix[j][i] * other
                    for one, other in zip(matrix[j], matrix[i], strict=True)
                ]
    return [row[-1] for row in matrix]


def moved(release: Any, before: tuple[Any, Any], after: tuple[Any, Any]) -> float:
    """How far, in units, the integers of two data sets are apart."""
    return float(np.linalg.norm(release.integers(*after) - release.integers(*before)))


# A record of the longest row whose residual is beyond the limit on both data sets pulls with all
# the force a record has; with no other record, nothing but the ridge holds against it.
CORNER = np.ones(4)
NOBODY = np.empty((0, 4)), np.empty(0)
STEEP = Objective(n=50, columns=4, ridge=2.0, limit=0.5)


def test_the_worst_record_moves_the_integers_as_far_as_stated() -> None:
    """One record alone, at the corner and beyond the limit, attains the sensitivity; D allows no
    more than the solver's share and rounding on top."""
    release = OutputPerturbation(STEEP)
    far = moved(release, NOBODY, one_more(NOBODY, CORNER, 1.0))
    assert release.moved - 2 <= far <= release.sensitivity
    assert release.sensitivity <= release.moved * (1 + 2**-11) + 3
    # limit sqrt(p) / (n ridge), by hand.
    assert math.ldexp(release.moved, release.exponent) == pytest.approx(0.5 * 2 / (50 * 2.0))
    assert CLIP_UNITS <= release.moved <= 2 * CLIP_UNITS


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* self.columns / (self.n", "/ (self.n"),
        ("Fraction(self.limit) ** 2 *", "Fraction(self.limit / 2) ** 2 *"),
        ("/ (self.n * Fraction(self.ridge)) ** 2", "/ (2 * self.n * Fraction(self.ridge)) ** 2"),
    ],
)
def test_understated_sensitivities_are_found(old: str, new: str) -> None:
    """A bound without the length of rows, with half the limit or twice the records fails on that
    record."""
    wrong = mutant(objective_module, old, new)
    broken = OutputPerturbation(
        wrong.Objective(n=STEEP.n, columns=4, ridge=STEEP.ridge, limit=STEEP.limit)
    )
    assert moved(broken, NOBODY, one_more(NOBODY, CORNER, 1.0)) > 1.5 * broken.sensitivity


@pytest.mark.parametrize("lasso", [0.0, 0.01])
@pytest.mark.parametrize("limit", [0.1, 2.0])
def test_no_neighbour_moves_them_further(lasso: float, limit: float) -> None:
    """Over corner records added to made-up data sets, the integers move by at most D."""
    objective = Objective(n=20, columns=4, ridge=0.01, lasso=lasso, limit=limit)
    release, rng = OutputPerturbation(objective), np.random.default_rng(1)
    for seed in range(10):
        records = made_up(20, 4, seed)
        row = np.append(rng.choice([-1.0, 1.0], 3), 1.0)
        for target in (-1.0, 1.0):
            assert moved(release, records, one_more(records, row, target)) <= release.sensitivity


def test_solutions_are_as_close_as_proved() -> None:
    """The distance certified is at least the true one, known in rational numbers, and as small as
    asked for."""
    rows, targets = made_up(200, 5)
    objective = Objective(n=200, columns=5, ridge=0.01, limit=2.0)
    exact = exact_minimum(objective, rows, targets)
    for within in (1e-3, 1e-7, 1e-10):
        found = solve(objective, rows, targets, within=within)
        true = math.sqrt(
            sum((Fraction(float(a)) - b) ** 2 for a, b in zip(found, exact, strict=True))
        )
        assert true <= objective.distance(rows, targets, found) <= within
    for seed in range(20):
        away = found + np.random.default_rng(seed).normal(0, 10.0 ** -(seed / 2), 5)
        true = math.sqrt(
            sum((Fraction(float(a)) - b) ** 2 for a, b in zip(away, exact, strict=True))
        )
        assert true <= objective.distance(rows, targets, away)


def test_a_certificate_that_forgets_the_ridge_is_found() -> None:
    """|gradient| instead of |gradient| / ridge is below the true distance."""
    wrong = mutant(objective_module, "+ error) / self.ridge *", "+ error) *")
    rows, targets = made_up(200, 5)
    objective = wrong.Objective(n=200, columns=5, ridge=0.01, limit=2.0)
    exact = np.array([float(value) for value in exact_minimum(objective, rows, targets)])
    away = exact + 1e-3 * np.eye(5)[0]
    assert objective.distance(rows, targets, away) < 1e-3
    right = Objective(n=200, columns=5, ridge=0.01, limit=2.0)
    assert right.distance(rows, targets, away) >= 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_elastic_nets_and_limits_are_solved(seed: int) -> None:
    """Sparse solutions and residuals beyond the limit reach a distance of 1e-9, and zeros are
    zero."""
    rows, targets = made_up(500, 12, seed)
    objective = Objective(n=500, columns=12, ridge=1e-3, lasso=0.03, limit=0.15)
    weights = solve(objective, rows, targets, within=1e-9)
    assert 0 < np.count_nonzero(weights) < 12
    nothing = solve(Objective(n=500, columns=12, ridge=1e-3, lasso=5.0), rows, targets, within=1e-9)
    assert not nothing.any()


def test_noise_is_discrete_gaussian_of_the_stated_scale() -> None:
    """With noise multiplier z the integers spread by z D, and are whole numbers of units."""
    release, (rows, targets) = OutputPerturbation(SMALL), made_up(50, 4)
    centre = np.ldexp(release.integers(rows, targets).astype(float), release.exponent)
    entropy = SeededEntropy("noise")
    drawn = np.array(
        [
            release.release(rows, targets, noise_multiplier=3.0, entropy=entropy) - centre
            for _ in range(400)
        ]
    )
    units = np.ldexp(drawn, -release.exponent)
    assert np.array_equal(units, np.rint(units))
    # 1,600 draws: five standard errors of a deviation are 9 %.
    assert units.std() == pytest.approx(3.0 * release.sensitivity, rel=0.09)


def test_half_the_noise_is_found() -> None:
    """A release with half the sensitivity in its noise fails the test above."""
    wrong = mutant(
        output_module,
        "(Fraction(noise_multiplier) * self.sensitivity) ** 2",
        "(Fraction(noise_multiplier) * self.sensitivity / 2) ** 2",
    )
    release, (rows, targets) = wrong.OutputPerturbation(SMALL), made_up(50, 4)
    centre = np.ldexp(release.integers(rows, targets).astype(float), release.exponent)
    entropy = SeededEntropy("noise")
    drawn = [
        release.release(rows, targets, noise_multiplier=3.0, entropy=entropy) - centre
        for _ in range(400)
    ]
    found = np.ldexp(np.array(drawn), -release.exponent).std()
    assert found < 0.6 * 3.0 * release.sensitivity


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Objective(n=10, columns=3, ridge=0.0), "noise on sums"),
        (lambda: Objective(n=10, columns=3, ridge=0.1, lasso=-1.0), "lasso penalty"),
        (lambda: Objective(n=0, columns=3, ridge=0.1), "n is 0"),
        (lambda: Objective(n=10, columns=0, ridge=0.1), "rows have 0"),
        (lambda: Objective(n=10, columns=3, ridge=0.1, limit=math.inf), "limit of residuals"),
        (lambda: OutputPerturbation(SMALL).integers(np.full((2, 4), 2.0), np.zeros(2)), "leave"),
        (lambda: OutputPerturbation(SMALL).integers(np.zeros((2, 4)), np.zeros(2)), "end in 1"),
        (lambda: OutputPerturbation(SMALL).integers(np.ones((2, 4)), np.zeros(3)), "shape"),
    ],
)
def test_numbers_outside_the_proof_are_refused(make: Any, says: str) -> None:
    """No ridge, no limit, or rows outside [-1, 1]: the bounds would not hold."""
    with pytest.raises(BadInput, match=says):
        make()
