"""One trial of a cell in this process: records are dealt to owners, who answer or do not."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.terms import CLASS_CONDITIONAL
from confide.protocol.methods.owner_terms import OWNER_VARIANTS
from confide.protocol.scores.registry import find_score
from confide.protocol.simulated.attendance import Attendance
from confide.protocol.simulated.dealing import Dealt
from confide.protocol.simulated.records import SimulatedData, deal_records, simulated_data
from confide.simulation.arrays.calibrate import NON_PRIVATE
from confide.simulation.arrays.trial import Trial
from confide.simulation.data.population import Predictions
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import Row
from confide.simulation.experiments.cells import ExperimentCell
from confide.simulation.experiments.experiment import PopulationTerms
from confide.simulation.planning import plan
from confide.simulation.presence import Presence

# Test records of an owner below which its coverage says little.
LEAST_TESTED = 20
# Settings that no plan of so many records can hold are wrong; too few records are a result.
_MANY = 1_000_000
# What a trial reports of itself, besides what names it; None where it does not apply.
MEASURES = (
    "threshold",
    "coverage",
    "least_class_coverage",
    "least_owner_coverage",
    "mean_size",
    "certified_level",
    "trivial",
    "reports",
    "channel",
    "kind",
    "exact_epsilon",
    "shuffle_epsilon",
    "reason",
)


def run_trial(cell: ExperimentCell, data: SimulatedData, trial: int) -> Row:
    """Run one trial; a cell that cannot promise anything for its numbers says so as its reason."""
    split, own = cell.seeds(trial)
    owners, config = owners_of(cell.terms, data), cell.terms.config(split)
    dealt = deal_records(data, config | {"records": cell.n}, owners=owners)
    # Users are asked in the order of their positions, which must not depend on their owners.
    order = np.random.default_rng([split, 1]).permutation(sum(map(len, dealt.shares)))
    calibration = np.concatenate(dealt.shares)[order]
    holders = np.repeat(np.arange(owners), [len(share) for share in dealt.shares])[order]
    attendance = Attendance.of(config, owners=owners)
    presence = Presence(attendance, holders) if attendance.anyone_missing else None
    entropy = SeededEntropy("trial", own)
    try:
        known = _known(_Shared(cell, data))
        asked = holders if cell.method.partition(":")[2] in OWNER_VARIANTS else None
        drawn = Trial(calibration, dealt.test, entropy, known.u, presence, asked)
        row = cell.setting.row(known.prepared, drawn)
        found = row | cell.setting.resolved(known.records, [row])
    except BadInput as error:
        return dict.fromkeys(MEASURES) | {"reason": f"refused: {error}"}
    if not cell.method.endswith(CLASS_CONDITIONAL):
        found |= _by_owner(known.own, dealt, found["threshold"])
    return {name: found.get(name) for name in MEASURES}


def owners_of(terms: PopulationTerms, data: SimulatedData) -> int:
    """How many owners there are: those that the records name, or as many as the terms say."""
    return len(data.owners) or terms.owners


def population_data(terms: PopulationTerms) -> SimulatedData:
    """The records of a population; refuse what nobody can calibrate on here."""
    data = simulated_data(terms.config(0))
    if not data.task.of_labels or data.task.of_risk or data.results is None:
        raise BadInput(
            f"{terms.data} holds no probabilities of labels; accepted are `label` and `p0`, `p1`, "
            "... (and other records with `confide evaluate` and `confide federation`)"
        )
    return data


def check_records(cell: ExperimentCell, data: SimulatedData) -> None:
    """Refuse a cell that asks for more records than there are, or for what no plan can hold."""
    deal_records(
        data, cell.terms.config(0) | {"records": cell.n}, owners=owners_of(cell.terms, data)
    )
    setting = cell.setting
    if isinstance(setting, Calibrated) and setting.variant != NON_PRIVATE:
        assert data.results is not None
        counted = {"records": _MANY, "labels": data.results.shape[1], "score": setting.score}
        promised = {"epsilon": setting.epsilon, "alpha": setting.alpha, **setting.settings}
        plan(f"{setting.method}:{setting.variant}", **counted, **promised)


class _Shared:
    """What the trials of a cell share, by the name of the cell."""

    def __init__(self, cell: ExperimentCell, data: SimulatedData) -> None:
        self.cell, self.data = cell, data

    def __hash__(self) -> int:
        return hash(self.cell.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shared) and other.cell.name == self.cell.name


class _Known(NamedTuple):
    """The records, uniform numbers of theirs that belong to no trial, and the truth's scores."""

    records: Predictions
    prepared: Any
    u: NDArray[np.float64]
    own: NDArray[Any]


@lru_cache(maxsize=2)
def _known(shared: _Shared) -> _Known:
    cell, data = shared.cell, shared.data
    assert data.results is not None
    records, score = Predictions(data.name, data.results, data.truth), find_score(cell.score)
    # Two streams of one seed: what is prepared draws the same numbers.
    prepared, u = (np.random.default_rng(cell.seeds(-1)[0]) for _ in range(2))
    numbers = u.random(len(records))
    own = score.true_scores(data.results, data.truth, u=numbers if score.randomized else None)
    return _Known(records, cell.setting.prepared(records, prepared), numbers, own)


def _by_owner(own: NDArray[Any], dealt: Dealt, threshold: float) -> Row:
    """The least coverage of the test records of any owner that has enough of them."""
    tested = [rows for rows in dealt.tested if len(rows) >= LEAST_TESTED]
    return {
        "least_owner_coverage": min((np.mean(own[r] <= threshold) for r in tested), default=None)
    }
