"""Which owners of a simulation answer, and when: the same draws in process and over Flower.

Owners that stay away never answer. Those that miss a round are asked, and do not hear of it. A
straggler is an owner whose answers may be late: it has drawn one and paid for it, and the round is
over when it arrives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Attendance:
    """Shares of owners and probabilities of rounds, from which a seed draws who answers.

    `dropout` is the share that never answers, `round_dropout` the probability that an owner misses
    a round, `stragglers` the share that is slow, and `lateness` the probability that an answer of a
    slow owner is late.
    """

    owners: int
    seed: int
    dropout: float = 0.0
    round_dropout: float = 0.0
    stragglers: float = 0.0
    lateness: float = 0.5

    def __post_init__(self) -> None:
        for name in ("dropout", "round_dropout", "stragglers", "lateness"):
            value = getattr(self, name)
            most = name == "lateness" or name == "stragglers"
            if not (0 <= value < 1 or (most and value == 1)):
                raise BadInput(
                    f"{name.replace('_', '-')} is {value}; accepted are shares from 0 to "
                    f"{'1' if most else 'below 1'}"
                )

    @staticmethod
    def of(config: Mapping[str, Any], *, owners: int) -> "Attendance":
        """The attendance that a run configuration states."""
        shares = ("dropout", "round-dropout", "stragglers", "lateness")
        given = {name.replace("-", "_"): float(config[name]) for name in shares}
        return Attendance(owners=owners, seed=max(int(config["seed"]), 0), **given)

    @property
    def anyone_missing(self) -> bool:
        """Whether any answer may be missing."""
        return bool(self.dropout or self.round_dropout or (self.stragglers and self.lateness))

    @property
    def away(self) -> Flags:
        """The owners that never answer."""
        found: Flags = np.random.default_rng(self.seed).random(self.owners) < self.dropout
        return found

    @lru_cache(maxsize=4)  # noqa: B019 - a frozen value, of which a process has one or two
    def missing(self, round_: int) -> Flags:
        """The owners that do not hear of this round, or of any."""
        return self.away | (self._drawn("missing", round_) < self.round_dropout)

    @lru_cache(maxsize=4)  # noqa: B019
    def late(self, round_: int) -> Flags:
        """The owners whose answer to this round, if they give one, is late."""
        slow = self._drawn("slow", 0) < self.stragglers
        return slow & (self._drawn("late", round_) < self.lateness)

    def arriving(self, round_: int) -> Flags:
        """The owners whose answers to this round arrive in time."""
        return ~(self.missing(round_) | self.late(round_))

    def _drawn(self, what: str, round_: int) -> NDArray[np.float64]:
        """A uniform number an owner, of a stream that belongs to the round and to what is drawn."""
        words = np.frombuffer(what.encode().ljust(8), dtype=np.uint8).tolist()
        return np.random.default_rng([self.seed, round_, *words]).random(self.owners)
