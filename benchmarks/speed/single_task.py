"""Seconds and peak memory of one local method, in a process of its own: for `speed.py`."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.speed.turns import Row, timed
from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.labels import procedure as labels
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import true_scores
from confide.simulation.driver import BitUsers, LabelUsers, drive

Array = NDArray[Any]

ALPHA = DELTA = 0.1
EPSILON, K = 1.0, 10
REPORTS = 1_000_000
MEMORY, CERTIFIED_MEMORY = 2_000_000_000, 1_000_000_000
# Softmax of independent normal logits with this spread: with ten labels the model is right two
# times in three.
SPREAD = 3.0


def softmax(n: int, k: int, *, dtype: type, rng: np.random.Generator) -> tuple[Array, Array]:
    """Probabilities of a calibrated model and labels drawn from them.

    They are made in slices, so that no more memory is needed than for the result.
    """
    probs: Array = np.empty((n, k), dtype=dtype)
    truth: Array = np.empty(n, dtype=np.int64)
    for start in range(0, n, 10_000):
        part = np.exp(rng.normal(0, SPREAD, (min(10_000, n - start), k)))
        part /= part.sum(axis=1, keepdims=True)
        truth[start : start + len(part)] = np.minimum(
            (part.cumsum(axis=1) < rng.random((len(part), 1))).sum(axis=1), k - 1
        )
        probs[start : start + len(part)] = part
    return probs, truth


def hps_scores(n: int) -> tuple[Array, Array]:
    """HPS scores of every label, in place, and the true labels."""
    probs, truth = softmax(n, K, dtype=np.float64, rng=np.random.default_rng(0))
    np.subtract(1, probs, out=probs)
    return probs, truth


def alone(task: str) -> dict[str, float]:
    """Seconds and peak memory of one task, in a process of its own; the peak includes the data."""
    if task == "bits":
        probs, truth = softmax(REPORTS, K, dtype=np.float64, rng=np.random.default_rng(0))
        users = BitUsers(true_scores(SCORES["hps"], probs, truth), os_entropy)
        del probs
        work = timed(
            lambda: drive(
                bits.certified(channel=Bit(EPSILON), alpha=ALPHA, delta=DELTA, n=REPORTS), users
            )
        )
    else:
        scores, truth = hps_scores(REPORTS)
        channel = KaryRR(EPSILON, k=K)
        procedure = labels.published if task == "sweep" else labels.certified
        work = timed(
            lambda: drive(
                procedure(channel=channel, alpha=ALPHA, delta=DELTA),
                LabelUsers(scores, truth, os_entropy),
            )
        )
    seconds = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return {"seconds": seconds, "bytes": peak}


def in_processes() -> list[Row]:
    """One row a task. Run before this process grows: a child's peak starts at its parent's."""
    rows = []
    for task, what, most in (
        ("sweep", f"LDP-CP-L by the sweep, {REPORTS} x {K}", MEMORY),
        ("labels", f"certified labels, {REPORTS} x {K}", CERTIFIED_MEMORY),
        ("bits", f"certified bits, {REPORTS} users", None),
    ):
        ran = subprocess.run([sys.executable, __file__, task], capture_output=True, text=True)
        if ran.returncode:
            rows.append(Row(what, f"failed: {ran.stderr.strip().splitlines()[-1]}"))
            continue
        result = json.loads(ran.stdout)
        goal, met = (
            (None, None)
            if most is None
            else (f"peak <= {most / 1e9:g} GB", result["bytes"] <= most)
        )
        rows.append(Row(what, "-", result["seconds"], bytes=result["bytes"], goal=goal, met=met))
    return rows


if __name__ == "__main__":
    print(json.dumps(alone(sys.argv[1])))
