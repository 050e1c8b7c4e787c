"""An audit of the noise of training: lower bounds on epsilon from canaries, next to the claim.

Run `python benchmarks/training/audit.py [--runs 200000] [--epsilon 1 4] [--engine exact] [--json
FILE]`, about five minutes for each epsilon and engine. Every run takes one step on a batch with one
of two canaries and lets the auditor guess which (`confide.simulation.attackers.estimator`).
`--engine` takes any of: the exact arithmetic of linear layers; an engine on the same layer; `cnn`,
convolutions by the engine that `auto` takes; `sampled`, a layer whose records join with probability
1/2. A row is a noise: the one that the claim asks for, and half of it, planted (a quarter for
`sampled`, whose claim is less tight). `by definition` assumes nothing but independent runs;
`Gaussian` assumes the shape of the noise. A bound is above the true epsilon with probability at
most --false-alarm. The command ends with status 1 if a bound of the stated noise is above the
claim.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.client.training.computing import AUTO, ENGINE_NAMES, Computing
from confide.client.training.local_round import Trainer
from confide.client.training.randomness import poisson_batch
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.training.network_terms import described
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.privacy.renyi import training_noise
from confide.simulation.attackers.canaries import (
    DELTA,
    canaries,
    claimed_terms,
    closed_form,
    noisy_step,
)
from confide.simulation.attackers.estimator import (
    Array,
    Canaries,
    Release,
    by_definition,
    by_gaussian,
    watch,
)

Row = dict[str, Any]


def engine_sums(terms: TrainingTerms, engine: str, weights: Array) -> Release:
    """The clipped sums of an owner of this engine, at these weights.

    They are the same at every call, so each batch is taken once.
    """
    sums = Trainer(terms, computing=Computing("cpu", engine)).sums
    found: dict[bytes, Array] = {}

    def release(features: Array, labels: Array) -> Array:
        key = features.tobytes() + labels.tobytes()
        if key not in found:
            found[key] = sums(weights, (features, labels), os_entropy)
        return found[key]

    return release


@dataclass(frozen=True)
class Watched:
    """A step: its terms, its sums without noise, and what is put into it."""

    terms: TrainingTerms
    sums: Release
    canaries: Canaries

    @property
    def planted(self) -> float:
        """The part of its noise with which an audit finds it: chance hides a sampled record."""
        return 0.5 if self.terms.sampling_rate == 1.0 else 0.25


def of_layer(epsilon: float, engine: str) -> Watched:
    """A linear layer at weights of 0, by an engine or in exact arithmetic."""
    terms = claimed_terms(epsilon)
    sums = closed_form(terms)
    if engine != EXACT:
        sums = engine_sums(terms, engine, np.zeros(terms.size))
    return Watched(terms, sums, canaries())


def of_cnn(epsilon: float, _: str) -> Watched:
    """Convolutions at their first weights, by the engine that `auto` takes.

    With two labels, the gradients of a record under either are opposite; the clip is shorter.
    """
    network = described("cnn image=1,4,4 channels=4", features=16, outputs=2)
    terms = replace(claimed_terms(epsilon), **network, clip=1e-3)
    sums = engine_sums(terms, AUTO, terms.network().first_weights().astype(np.float64))
    features = np.random.default_rng(1).random((1, 16))
    first, second = ((features, np.array([label])) for label in (0, 1))
    direction = sums(*first).astype(np.float64)
    return Watched(terms, sums, Canaries(first, second, direction / np.linalg.norm(direction)))


def of_sample(epsilon: float, _: str) -> Watched:
    """The canary of a linear layer alone, which joins the step with probability 1/2."""
    noise = training_noise(epsilon=epsilon, delta=DELTA, sampling_rate=HALF, steps=1)
    terms = replace(claimed_terms(epsilon), sampling_rate=HALF, noise_multiplier=noise)
    exact, both = closed_form(terms), canaries()

    def sums(features: Array, labels: Array) -> Array:
        rows = poisson_batch(len(labels), HALF, os_entropy)
        return exact(features[rows], labels[rows])

    batches = ((features[:1], labels[:1]) for features, labels in (both.first, both.second))
    return Watched(terms, sums, Canaries(*batches, both.direction))


EXACT, HALF = "exact", 0.5
KINDS = {
    **dict.fromkeys((EXACT, *ENGINE_NAMES), of_layer),
    "cnn": of_cnn,
    "sampled": of_sample,
}


def threshold(watched: Watched) -> float:
    """Where the planted noise makes a canary e^(1.2 epsilon) times as likely as the other.

    Fixed before any run, and about the best for 200,000 of them without sampling.
    """
    terms, q = watched.terms, watched.terms.sampling_rate
    noise = terms.noise_multiplier * watched.planted

    def apart(statistic: float) -> float:
        with_first, with_second = (
            np.logaddexp(
                math.log(q) - (statistic - sign) ** 2 / 2 / noise**2,
                (math.log1p(-q) if q < 1 else -math.inf) - statistic**2 / 2 / noise**2,
            )
            for sign in (1, -1)
        )
        return float(with_first - with_second) - 1.2 * terms.epsilon

    return float(brentq(apart, 0.0, 1e3 * max(noise, 1.0)))


def audit(kind: str, epsilon: float, *, runs: int, false_alarm: float) -> Iterator[Row]:
    """Both bounds for a step that claims epsilon, with all of its noise and with a part of it."""
    watched = KINDS[kind](epsilon, kind)
    terms = watched.terms
    for noise in (1.0, watched.planted):
        step = noisy_step(terms, watched.sums, os_entropy, noise=noise)
        statistics = watch(step, watched.canaries, runs=runs, seed=0) / CLIP_UNITS
        # A sampled step has no Gaussian shape.
        shaped = terms.sampling_rate == 1.0
        yield {
            "step": kind,
            "claim": epsilon,
            "delta": DELTA,
            "noise": noise,
            "by definition": by_definition(
                statistics, threshold=threshold(watched), delta=DELTA, false_alarm=false_alarm
            ),
            "Gaussian": by_gaussian(statistics, delta=DELTA, false_alarm=false_alarm)
            if shaped
            else None,
        }


def cell(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200_000, help="of each noise (default 200,000)")
    parser.add_argument("--engine", nargs="+", default=[EXACT], choices=list(KINDS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0], help="claims")
    parser.add_argument("--false-alarm", type=float, default=1e-4, help="default 1e-4")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.runs < 1 or not 0 < arguments.false_alarm < 1:
        parser.error("accepted are at least 1 run and a false alarm between 0 and 1")
    given = {"runs": arguments.runs, "false_alarm": arguments.false_alarm}
    rows = [
        row
        for kind in arguments.engine
        for claim in arguments.epsilon
        for row in audit(kind, claim, **given)
    ]
    table = Table(title=f"{arguments.runs:,} runs", title_justify="left")
    for heading in rows[0]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*map(cell, row.values()))
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(
        any(
            max(row["by definition"], row["Gaussian"] or 0.0) > row["claim"]
            for row in rows
            if row["noise"] == 1.0
        )
    )


if __name__ == "__main__":
    main()
