"""What would this cost me? Repeated campaigns on records whose labels are known."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.nonprivate import split_conformal
from aggregator.procedures import make_procedure
from aggregator.shuffle import NO_AMPLIFICATION, shuffled_epsilon
from protocol.campaign import VARIANTS, check_choice
from protocol.certificate import Certificate
from protocol.channel import Channel, LabelChannel
from protocol.channels import LABEL_CHANNELS, Bit, auto
from protocol.errors import BadInput, check_probability
from protocol.queries import BitQuery, BitTally
from protocol.sampling import Entropy, SeededEntropy, os_entropy, randomness
from protocol.scores import SCORES, all_scores, true_scores
from simulation.driver import BitUsers, LabelUsers, drive
from simulation.population import Population

SHUFFLE_DELTA = 1e-6
MEASURES = ("threshold", "coverage", "mean_size", "certified_level", "trivial")


@dataclass(frozen=True)
class Setting:
    """One row of a comparison: what is run, on how many records, how often."""

    method: str = "labels"
    variant: str = "certified"
    channel: str = "auto"
    score: str = "hps"
    epsilon: float = 1.0
    alpha: float = 0.1
    delta: float = 0.1
    n: int = 10_000
    trials: int = 20
    seed: int | None = None
    max_corrupt: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, VARIANTS)
        check_choice(f"variant of {self.method}", self.variant, (*VARIANTS[self.method], "non-private"))
        check_choice("score", self.score, SCORES)
        accepted = ("auto", *LABEL_CHANNELS) if self.method == "labels" else ("auto", "bit")
        check_choice(f"channel of {self.method}", self.channel, accepted)
        check_probability("alpha", self.alpha)
        check_probability("delta", self.delta)
        if self.trials < 1:
            raise BadInput(f"trials is {self.trials}; at least 1 is needed")
        if self.max_corrupt < 0:
            raise BadInput(f"max_corrupt is {self.max_corrupt}; it must be 0 or more")

    def make_channel(self, k: int) -> LabelChannel | Bit | None:
        """The channel that `auto` or the name stands for over k labels; published label variants are defined for k-RR."""
        if self.variant == "non-private":
            return None
        if self.method == "bits":
            return Bit(epsilon=self.epsilon)
        if self.channel != "auto":
            return LABEL_CHANNELS[self.channel](k=k, epsilon=self.epsilon)
        if self.variant.startswith("published"):
            return LABEL_CHANNELS["k-rr"](k=k, epsilon=self.epsilon)
        return auto(k=k, epsilon=self.epsilon)

    def procedure(self, channel: Channel) -> Any:
        """The calibration procedure of this setting."""
        return make_procedure(
            variant=self.variant, channel=channel, alpha=self.alpha, delta=self.delta, n=self.n, max_corrupt=self.max_corrupt
        )


def run_trials(population: Population, setting: Setting) -> Iterator[dict[str, Any]]:
    """One row a trial; records are drawn without replacement, calibration and test disjoint."""
    n, total = setting.n, len(population)
    if not 1 <= n < total:
        raise BadInput(
            f"n is {n}; {population.name} has {total} records, so accepted are 1 to {total - 1} (the rest is the test)"
        )
    channel = setting.make_channel(population.probs.shape[1])
    rng = np.random.default_rng(setting.seed)
    score, u = SCORES[setting.score], rng.random(total)
    every = all_scores(score, population.probs, u=u)
    own = true_scores(score, population.probs, population.labels, u=u)
    for trial in range(setting.trials):
        order = rng.permutation(total)
        calibration, test = order[:n], order[n:]
        entropy: Entropy = os_entropy if setting.seed is None else SeededEntropy(setting.seed, trial)
        row: dict[str, Any] = {}
        if channel is None:
            certificate = split_conformal(own[calibration], alpha=setting.alpha)
        elif isinstance(channel, Bit):
            users = _Observed(BitUsers(own[calibration], entropy))
            certificate = drive(setting.procedure(channel), users)
            row["shuffle_epsilon"] = users.shuffle_epsilon(channel, setting.max_corrupt)
        else:
            certificate = drive(
                setting.procedure(channel), LabelUsers(every[calibration], population.labels[calibration], entropy)
            )
        yield {**_measure(certificate, own[test], every[test]), **row}


class _Observed:
    """Bit users, watched for the smallest crowd that any answer was shuffled in: same round, same threshold."""

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
        """Only honest reports hide anybody."""
        if self._crowd is None:
            return None
        return shuffled_epsilon(local_epsilon=channel.epsilon, n=max(1, self._crowd - max_corrupt), delta=SHUFFLE_DELTA)


def _measure(certificate: Certificate, own: NDArray[Any], every: NDArray[Any]) -> dict[str, Any]:
    threshold = np.float64(certificate.threshold)
    return {
        "threshold": certificate.threshold,
        "coverage": float(np.mean(own <= threshold)),
        "mean_size": float(np.count_nonzero(every <= threshold) / len(every)),
        "certified_level": certificate.level,
        "trivial": certificate.trivial,
        "reason": certificate.reason,
        "Delta": certificate.slack,
    }


def summarise(population: Population, setting: Setting, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything resolved, every trial, means and standard deviations (population form, 0 for one trial)."""
    channel = setting.make_channel(population.probs.shape[1])
    entropy: Entropy = os_entropy if setting.seed is None else SeededEntropy(setting.seed)
    resolved = {
        **asdict(setting),
        "data": population.name,
        "records": len(population),
        "labels": population.probs.shape[1],
        "channel": None if channel is None else channel.name,
        "exact_epsilon": None if channel is None else channel.epsilon,
        "kind": "marginal" if channel is None else "PAC",
        "Delta": rows[0]["Delta"],
        "randomness": randomness(entropy),
        "shuffle": NO_AMPLIFICATION if setting.method == "labels" else f"bits, at delta {SHUFFLE_DELTA}, smallest crowd",
    }
    values = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in MEASURES}
    return {
        "arguments": resolved,
        "trials": rows,
        "mean": {name: float(column.mean()) for name, column in values.items()},
        "std": {name: float(column.std()) for name, column in values.items()},
    }


def write_json(result: Any, path: Path) -> None:
    """Write the whole file or nothing."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; accepted is a file in a writable folder") from None
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(result, file, indent=2, allow_nan=False, default=_plain)
            file.write("\n")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


Progress = Callable[[], None]


def evaluate(population: Population, setting: Setting, *, progress: Progress = lambda: None) -> tuple[dict[str, Any], bool]:
    """Run all trials; on Ctrl-C keep those that finished. The flag tells whether it ran to the end."""
    rows: list[dict[str, Any]] = []
    try:
        for row in run_trials(population, setting):
            rows.append(row)
            progress()
    except KeyboardInterrupt:
        if not rows:
            raise
        return summarise(population, setting, rows), False
    return summarise(population, setting, rows), True
