"""What would this cost me? Repeated campaigns on records whose truth is known."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from confide.protocol.errors import check_choice
from confide.protocol.privacy.amplification import SHUFFLE_DELTA, shuffled_epsilon
from confide.protocol.scores.registry import find_score
from confide.simulation.arrays.calibrate import NON_PRIVATE, variants
from confide.simulation.arrays.evaluate import MeasuredTrial, drawn_trials, measured_trial
from confide.simulation.arrays.records import ArrayRecords, read_records, with_groups
from confide.simulation.arrays.trial import Trial
from confide.simulation.data.population import Predictions
from confide.simulation.evaluate.repeated import NamedRecords, Repeated, Row, measured


@dataclass(frozen=True, kw_only=True)
class Calibrated(Repeated):
    """Calibration of a model's results by the method of a campaign, or without privacy.

    `settings` are those of `confide.calibrate`; the task is that of the score.
    """

    method: str = "labels"
    variant: str = "certified"
    score: str = "hps"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("method", self.method, variants())
        accepted = (*variants()[self.method], NON_PRIVATE)
        check_choice(f"variant of {self.method}", self.variant, accepted)
        find_score(self.score)

    def prepared(self, records: Predictions, rng: np.random.Generator) -> ArrayRecords:
        return read_records(records.results, records.truth, self.score, groups=records.groups)

    def splits(self, records: NamedRecords, rng: np.random.Generator) -> Iterator[Trial]:
        owners = records.owners if isinstance(records, Predictions) else None
        return drawn_trials(
            len(records), n=self.n, trials=self.trials, seed=self.seed, owners=owners
        )

    def row(self, prepared: ArrayRecords, trial: Trial) -> Row:
        method = NON_PRIVATE if self.variant == NON_PRIVATE else f"{self.method}:{self.variant}"
        asked = {"method": method, "epsilon": self.epsilon, "alpha": self.alpha}
        found = measured_trial(prepared, trial, **asked, **with_groups(prepared, self.settings))
        return self._row(found)

    def _row(self, trial: MeasuredTrial) -> Row:
        made = trial.calibration.certificate
        row = measured(made.threshold, trial.coverage, trial.size, level=made.level) | {
            "trivial": made.trivial,
            "reason": made.reason,
            "reports": made.n,
            "certificate": {
                name: value
                for name, value in asdict(made).items()
                if name not in ("strata", "rungs", "threshold", "reason")
            },
        }
        if trial.least_class_coverage is not None:
            row["least_class_coverage"] = trial.least_class_coverage
        if trial.parts:
            row["parts"] = [one._asdict() for one in trial.parts]
        return row | self._shuffled(trial)

    def _shuffled(self, trial: MeasuredTrial) -> Row:
        """The epsilon in the smallest round with a shuffler; only honest reports count."""
        crowd, epsilon = trial.calibration.crowd, trial.calibration.certificate.epsilon
        if epsilon is None or not crowd:
            return {}
        honest = max(1, crowd - int(self.settings.get("max_corrupt", 0)))
        amplified = shuffled_epsilon(local_epsilon=epsilon, n=honest, delta=SHUFFLE_DELTA)
        return {"shuffle_epsilon": amplified, "shuffle_delta": SHUFFLE_DELTA}

    def resolved(self, records: Predictions, rows: list[Row]) -> Row:
        made, score = rows[0]["certificate"], find_score(self.score)
        return {
            "score": score.text,
            "labels": records.results.shape[1] if score.task.of_labels else None,
            "channel": made.get("channel", made.get("release")),
            "exact_epsilon": made["epsilon"],
            "privacy_delta": made["privacy_delta"],
            "kind": made["kind"],
            "adjacency": made["adjacency"],
            "failure_probability": made.get("delta"),
            "beta": made.get("beta"),
            "bins": made.get("bins"),
            "grid": made.get("grid"),
            "rank": made.get("rank"),
            "inflation_ranks": made.get("inflation"),
            "Delta": made.get("slack"),
            "shuffle": "with a shuffler only: bits, at shuffle_delta, smallest round"
            if "shuffle_epsilon" in rows[0]
            else None,
        }
