"""Campaigns side by side, as rows of text; in a simulation also measured, next to calibration without privacy."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from aggregator.nonprivate import split_conformal
from protocol.certificate import Certificate
from protocol.embedded import deal, owned, predictions
from protocol.scores import SCORES, all_scores, true_scores
from protocol.training import Terms, Weights, predict

Row = dict[str, Any]

COLUMNS: dict[str, Callable[[Row], str]] = {
    "campaign": lambda row: row["campaign"],
    "channel": lambda row: row["channel"] or "-",
    "exact epsilon": lambda row: "-" if row["epsilon"] is None else f"{row['epsilon']:.4f}",
    "reports": lambda row: f"{row['n']:,}",
    "threshold": lambda row: f"{row['threshold']:.6f}",
    "promised": lambda row: f"{row['level']:.3f} {row['kind']}",
    "test coverage": lambda row: f"{row['coverage']:.4f}" if "coverage" in row else "-",
    "mean set size": lambda row: f"{row['mean_size']:.2f}" if "mean_size" in row else "-",
}


def cells(row: Row) -> list[str]:
    """A campaign as text, a column each."""
    return [show(row) for show in COLUMNS.values()]


def notes(rows: list[Row]) -> list[str]:
    """Why campaigns ended with the trivial threshold, where they did."""
    return [f"{row['campaign']} is trivial: {row['reason']}" for row in rows if row["reason"]]


def as_text(rows: list[Row]) -> str:
    """A table of campaigns with aligned columns, and the notes below it."""
    lines = [list(COLUMNS), *(cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([table[0], "-" * (sum(widths) + 2 * len(widths) - 2), *table[1:], *notes(rows)])


def simulated(certificate: Certificate, *, score: str, records: int, replacement: bool, seed: int) -> dict[str, float]:
    """Coverage and set size of a simulated campaign on the embedded records that nobody was dealt."""
    probs, labels = predictions()
    _, rest = deal(labels, owners=1, records=records, replacement=replacement, seed=max(seed, 0))
    u = np.random.default_rng(max(seed, 0)).random(len(labels))[rest]
    threshold = np.float64(certificate.threshold)
    own = true_scores(SCORES[score], probs[rest], labels[rest], u=u)
    every = all_scores(SCORES[score], probs[rest], u=u)
    return {"coverage": float(np.mean(own <= threshold)), "mean_size": float((every <= threshold).sum(axis=1).mean())}


def simulated_accuracy(terms: Terms, weights: Weights, *, score: str, records: int, replacement: bool, seed: int) -> float:
    """How often a model trained in a simulation is right on the embedded records that nobody was dealt."""
    features, labels = owned()
    _, rest = deal(labels, owners=1, records=records, replacement=replacement, seed=max(seed, 0))
    return float(np.mean(predict(terms, weights, features[rest]).argmax(axis=1) == labels[rest]))


def non_private(*, score: str, alpha: float, records: int, replacement: bool, seed: int) -> Row:
    """Split conformal prediction without privacy on the records that a simulated federation deals out, as a row."""
    probs, labels = predictions()
    (dealt,), _ = deal(labels, owners=1, records=records, replacement=replacement, seed=max(seed, 0))
    u = np.random.default_rng(max(seed, 0)).random(len(labels))[dealt]
    certificate = split_conformal(true_scores(SCORES[score], probs[dealt], labels[dealt], u=u), alpha=alpha)
    measured = simulated(certificate, score=score, records=records, replacement=replacement, seed=seed)
    return {"campaign": "non-private", **asdict(certificate), **measured}
