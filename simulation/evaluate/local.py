"""What would this cost me? Repeated local-DP campaigns on records whose labels are known."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures import bits, labels
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.protocol.certificate import LocalCertificate
from confide.protocol.channels.base import Channel, LabelChannel
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS, auto
from confide.protocol.errors import BadInput, check_choice, check_probability
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.bits import BitProcedure, BitQuery, BitTally
from confide.protocol.methods.label_query import LabelProcedure
from confide.protocol.methods.owner_terms import OWNER_VARIANTS
from confide.protocol.methods.registry import local_variants
from confide.protocol.privacy.amplification import (
    NO_AMPLIFICATION,
    SHUFFLE_DELTA,
    shuffled_epsilon,
)
from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.simulation.data.population import Population
from confide.simulation.driver import BitUsers, LabelUsers, drive
from confide.simulation.evaluate.trials import Repeated, Row, measured


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
            (*array_variants(self.method), "non-private"),
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

    def run(self, records: Population) -> Iterator[Row]:
        channel = self.make_channel(records.probs.shape[1])
        rng = np.random.default_rng(self.seed)
        score, u = find_label_score(self.score), rng.random(len(records))
        splits = self.splits(records, rng)
        every = all_scores(score, records.probs, u=u)
        own = true_scores(score, records.probs, records.labels, u=u)
        for calibration, test, entropy in splits:
            row: Row = {"Delta": None}
            if channel is None:
                certificate = split_conformal(own[calibration], alpha=self.alpha)
            else:
                chosen = own[calibration], every[calibration], records.labels[calibration]
                certificate, row = self._on_arrays.calibrate(
                    self, channel, _Chosen(*chosen, entropy)
                )
            limits = np.array(
                certificate.class_thresholds or [certificate.threshold] * every.shape[1]
            )
            size = float(np.count_nonzero(every[test] <= limits) / len(test))
            # Scores above the threshold of their own label lie above any.
            within = own[test] <= limits[records.labels[test]]
            yield {
                **measured(
                    certificate.threshold,
                    np.where(within, own[test], 2.0),
                    size,
                    level=certificate.level,
                ),
                **class_coverage(within, records.labels[test], every.shape[1]),
                "trivial": certificate.trivial,
                "reason": certificate.reason,
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


def array_variants(method: str) -> tuple[str, ...]:
    """The variants that records in arrays can be evaluated with: those have no owners."""
    return tuple(name for name in local_variants()[method] if name not in OWNER_VARIANTS)


def class_coverage(within: NDArray[np.bool_], truth: NDArray[Any], k: int) -> Row:
    """The coverage of the label that is covered least, among those with test records."""
    counts = np.bincount(truth, minlength=k)
    covered = np.bincount(truth[within], minlength=k)
    return {"least_class_coverage": float((covered[counts > 0] / counts[counts > 0]).min())}


class _Chosen(NamedTuple):
    """The records that are calibrated on: true scores, scores of every label, and true labels."""

    own: NDArray[Any]
    every: NDArray[Any]
    labels: NDArray[Any]
    entropy: Entropy


class _Bits:
    """Method bits on arrays."""

    channels = (Bit.name,)
    shuffle = f"with a shuffler only: bits, at delta {SHUFFLE_DELTA}, smallest round"

    def make_channel(self, setting: Local, k: int) -> Bit:
        return Bit(epsilon=setting.epsilon)

    def procedure(self, setting: Local, **asked: Any) -> BitProcedure:
        return bits.procedure(n=setting.n, **asked)

    def calibrate(
        self, setting: Local, channel: Bit, chosen: _Chosen
    ) -> tuple[LocalCertificate, Row]:
        users = _Observed(BitUsers(chosen.own, chosen.entropy))
        certificate: LocalCertificate = drive(setting.procedure(channel), users)
        hidden = users.shuffle_epsilon(channel, setting.max_corrupt)
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
        self, setting: Local, channel: LabelChannel, chosen: _Chosen
    ) -> tuple[LocalCertificate, Row]:
        users = LabelUsers(chosen.every, chosen.labels, chosen.entropy)
        certificate: LocalCertificate = drive(setting.procedure(channel), users)
        return certificate, {"Delta": certificate.slack}


ON_ARRAYS: dict[str, Any] = {"labels": _Labels(), "bits": _Bits()}


class _Observed:
    """Bit users that record the reports of the smallest round, which a shuffler would mix."""

    def __init__(self, users: BitUsers) -> None:
        self._users = users
        self.entropy = users.entropy
        self._crowd: int | None = None

    def __call__(self, query: BitQuery) -> BitTally:
        tally = self._users(query)
        crowds = [n for n in (tally.crowd(), self._crowd) if n]
        self._crowd = min(crowds, default=None)
        return tally

    def shuffle_epsilon(self, channel: Bit, max_corrupt: int) -> float | None:
        """The epsilon in the smallest round with a shuffler; only honest reports count."""
        if self._crowd is None:
            return None
        return shuffled_epsilon(
            local_epsilon=channel.epsilon, n=max(1, self._crowd - max_corrupt), delta=SHUFFLE_DELTA
        )
