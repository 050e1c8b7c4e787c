"""What would this cost me? Repeated local-DP campaigns on records whose labels are known."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from confide.aggregator.procedures import bits, labels
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.aggregator.procedures.shuffle import NO_AMPLIFICATION, shuffled_epsilon
from confide.protocol.channels.base import Channel, LabelChannel
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import AUTO, LABEL_CHANNELS, auto
from confide.protocol.errors import BadInput, check_choice, check_probability
from confide.protocol.methods.bits import BitQuery, BitTally
from confide.protocol.methods.registry import local_variants
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.simulation.data.population import Population
from confide.simulation.driver import BitUsers, LabelUsers, drive
from confide.simulation.evaluate.trials import Repeated, Row, measured

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
        check_choice("method", self.method, local_variants())
        check_choice(
            f"variant of {self.method}",
            self.variant,
            (*local_variants()[self.method], "non-private"),
        )
        check_choice("score", self.score, SCORES)
        accepted = LABEL_CHANNELS if self.method == "labels" else (Bit.name,)
        check_choice(f"channel of {self.method}", self.channel, (AUTO, *accepted))
        super().__post_init__()
        check_probability("failure probability", self.failure_probability)
        if self.max_corrupt < 0:
            raise BadInput(f"max_corrupt is {self.max_corrupt}; it must be 0 or more")

    def make_channel(self, k: int) -> LabelChannel | Bit | None:
        """The channel that `auto` or the name stands for over k labels.

        Published label variants are defined for channels with uniform noise.
        """
        if self.variant == "non-private":
            return None
        if self.method == "bits":
            return Bit(epsilon=self.epsilon)
        if self.channel != AUTO:
            return LABEL_CHANNELS[self.channel](k=k, epsilon=self.epsilon)
        published = self.variant.startswith("published")
        return auto(k=k, epsilon=self.epsilon, uniform_noise=published)

    def procedure(self, channel: Channel) -> Any:
        """The calibration procedure of this setting."""
        asked: dict[str, Any] = {
            "variant": self.variant,
            "channel": channel,
            "alpha": self.alpha,
            "delta": self.failure_probability,
            "max_corrupt": self.max_corrupt,
        }
        if self.method == "bits":
            return bits.procedure(n=self.n, **asked)
        return labels.procedure(**asked)

    def run(self, records: Population) -> Iterator[Row]:
        channel = self.make_channel(records.probs.shape[1])
        rng = np.random.default_rng(self.seed)
        score, u = SCORES[self.score], rng.random(len(records))
        splits = self.splits(records, rng)
        every = all_scores(score, records.probs, u=u)
        own = true_scores(score, records.probs, records.labels, u=u)
        for calibration, test, entropy in splits:
            row: Row = {}
            if channel is None:
                certificate = split_conformal(own[calibration], alpha=self.alpha)
            elif isinstance(channel, Bit):
                users = _Observed(BitUsers(own[calibration], entropy))
                certificate = drive(self.procedure(channel), users)
                row["shuffle_epsilon"] = users.shuffle_epsilon(channel, self.max_corrupt)
            else:
                certificate = drive(
                    self.procedure(channel),
                    LabelUsers(every[calibration], records.labels[calibration], entropy),
                )
            size = float(
                np.count_nonzero(every[test] <= np.float64(certificate.threshold)) / len(test)
            )
            yield {
                **measured(certificate.threshold, own[test], size, level=certificate.level),
                "trivial": certificate.trivial,
                "reason": certificate.reason,
                "Delta": getattr(certificate, "slack", None),
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
            "shuffle": NO_AMPLIFICATION
            if self.method == "labels"
            else f"bits, at delta {SHUFFLE_DELTA}, smallest crowd",
        }


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
