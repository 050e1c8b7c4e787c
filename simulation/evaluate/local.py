"""What would this cost me? Repeated local-DP campaigns on records whose labels are known."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures import bits, labels
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.aggregator.procedures.shuffle import NO_AMPLIFICATION, shuffled_epsilon
from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.base import Channel, LabelChannel
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS, auto
from confide.protocol.errors import BadInput, check_choice, check_probability
from confide.protocol.methods.bits import BitProcedure, BitQuery, BitTally
from confide.protocol.methods.label_query import LabelProcedure
from confide.protocol.methods.registry import local_variants
from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.simulation.data.population import Population
from confide.simulation.driver import BitUsers, LabelUsers, drive
from confide.simulation.evaluate.trials import Repeated, Row, Trial, arrived, measured

SHUFFLE_DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class Local(Repeated):
    """A campaign of local reports: randomised labels, or randomised bits."""

    method: str = "labels"
    variant: str = "certified"
    channel: str = AUTO
    score: str = "hps"
    failure_probability: float = 0.1
    max_corrupt: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, ON_ARRAYS)
        check_choice(
            f"variant of {self.method}",
            self.variant,
            (*local_variants()[self.method], "non-private"),
        )
        find_label_score(self.score)
        accepted = (AUTO, *self._on_arrays.channels)
        check_choice(f"channel of {self.method}", self.channel, accepted)
        super().__post_init__()
        check_probability("failure probability", self.failure_probability)
        if self.max_corrupt < 0:
            raise BadInput(f"max_corrupt is {self.max_corrupt}; it must be 0 or more")

    @property
    def _on_arrays(self) -> Any:
        return ON_ARRAYS[self.method]

    def make_channel(self, k: int) -> Any:
        """The channel that `auto` or the name stands for over k labels; None without privacy."""
        return None if self.variant == "non-private" else self._on_arrays.make_channel(self, k)

    def procedure(self, channel: Channel) -> Any:
        """The calibration procedure of this setting."""
        return self._on_arrays.procedure(
            self,
            variant=self.variant,
            channel=channel,
            alpha=self.alpha,
            delta=self.failure_probability,
            max_corrupt=self.max_corrupt,
        )

    def prepared(self, records: Population, rng: np.random.Generator) -> "_Scores":
        score, u = find_label_score(self.score), rng.random(len(records))
        return _Scores(
            all_scores(score, records.probs, u=u),
            true_scores(score, records.probs, records.labels, u=u),
            records.labels,
            self.make_channel(records.probs.shape[1]),
        )

    def row(self, prepared: "_Scores", trial: Trial) -> Row:
        every, own, truth, channel = prepared
        row: Row = {"Delta": None}
        certificate: Any
        if channel is None:
            here = trial.calibration[arrived(trial)]
            certificate = split_conformal(own[here], alpha=self.alpha)
        else:
            certificate, row = self._on_arrays.calibrate(self, prepared, trial)
        test, labels = trial.test, truth[trial.test]
        limits = np.array(certificate.class_thresholds or [certificate.threshold] * every.shape[1])
        size = float(np.count_nonzero(every[test] <= limits) / len(test))
        # Scores above the threshold of their own label lie above any.
        within = own[test] <= limits[labels]
        scores = np.where(within, own[test], 2.0)
        return {
            **measured(certificate.threshold, scores, size, level=certificate.level),
            **class_coverage(within, labels, every.shape[1]),
            "trivial": certificate.trivial,
            "reason": certificate.reason,
            "reports": certificate.n,
            **row,
        }

    def resolved(self, records: Population, rows: list[Row]) -> Row:
        channel = self.make_channel(records.probs.shape[1])
        return {
            "labels": records.probs.shape[1],
            "channel": None if channel is None else channel.name,
            "exact_epsilon": None if channel is None else channel.epsilon,
            "kind": "marginal" if channel is None else "PAC",
            "Delta": rows[0]["Delta"],
            "shuffle": self._on_arrays.shuffle,
        }


def class_coverage(within: NDArray[np.bool_], truth: NDArray[Any], k: int) -> Row:
    """The coverage of the label that is covered least, among those with test records."""
    counts = np.bincount(truth, minlength=k)
    covered = np.bincount(truth[within], minlength=k)
    return {"least_class_coverage": float((covered[counts > 0] / counts[counts > 0]).min())}


class _Scores(NamedTuple):
    """Scores of every label and of the true one, the true labels, and the channel."""

    every: NDArray[Any]
    own: NDArray[Any]
    labels: NDArray[Any]
    channel: Any


class _Bits:
    """Method bits on arrays."""

    channels = (Bit.name,)
    shuffle = f"bits, at delta {SHUFFLE_DELTA}, smallest crowd"

    def make_channel(self, setting: Local, k: int) -> Bit:
        return Bit(epsilon=setting.epsilon)

    def procedure(self, setting: Local, **asked: Any) -> BitProcedure:
        return bits.procedure(n=setting.n, **asked)

    def calibrate(
        self, setting: Local, scores: _Scores, trial: Trial
    ) -> tuple[LocalCertificate, Row]:
        own = scores.own[trial.calibration]
        users = _Observed(BitUsers(own, trial.entropy, trial.presence))
        certificate: LocalCertificate = drive(setting.procedure(scores.channel), users)
        hidden = users.shuffle_epsilon(scores.channel, setting.max_corrupt)
        return certificate, {"Delta": certificate.slack, "shuffle_epsilon": hidden}


class _Labels:
    """Method labels on arrays; published variants are defined for channels with uniform noise."""

    channels = tuple(LABEL_CHANNELS)
    shuffle = NO_AMPLIFICATION

    def make_channel(self, setting: Local, k: int) -> LabelChannel:
        if setting.channel != AUTO:
            return LABEL_CHANNELS[setting.channel](k=k, epsilon=setting.epsilon)
        published = setting.variant.startswith("published")
        return auto(k=k, epsilon=setting.epsilon, uniform_noise=published)

    def procedure(self, setting: Local, **asked: Any) -> LabelProcedure:
        return labels.procedure(**asked)

    def calibrate(
        self, setting: Local, scores: _Scores, trial: Trial
    ) -> tuple[LocalCertificate, Row]:
        here, labels = trial.calibration, scores.labels[trial.calibration]
        users = LabelUsers(scores.every[here], labels, trial.entropy, trial.presence)
        certificate: LocalCertificate = drive(setting.procedure(scores.channel), users)
        return certificate, {"Delta": certificate.slack}


ON_ARRAYS: dict[str, Any] = {"labels": _Labels(), "bits": _Bits()}


class _Observed:
    """Bit users that record the smallest crowd of any answer: same round, same threshold."""

    def __init__(self, users: BitUsers) -> None:
        self._users = users
        self.entropy = users.entropy
        self._crowd: int | None = None

    def __call__(self, query: BitQuery) -> BitTally:
        tally = self._users(query)
        crowds = [n for n in (*tally.answers, self._crowd) if n]
        self._crowd = min(crowds, default=None)
        return tally

    def shuffle_epsilon(self, channel: Bit, max_corrupt: int) -> float | None:
        """The shuffled epsilon of the smallest crowd; only honest reports count."""
        if self._crowd is None:
            return None
        return shuffled_epsilon(
            local_epsilon=channel.epsilon, n=max(1, self._crowd - max_corrupt), delta=SHUFFLE_DELTA
        )
