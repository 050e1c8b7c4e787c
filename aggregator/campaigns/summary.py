"""Shows campaigns as a table of text.

In a simulation the table also has measurements, next to calibration without privacy.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.procedures.nonprivate import split_conformal
from confide.protocol.architectures.base import Weights
from confide.protocol.architectures.export import predict_file, to_onnx
from confide.protocol.certificate import Certificate
from confide.protocol.embedded import deal, owned, predictions
from confide.protocol.methods.training import TrainingTerms
from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.scoring import all_scores, true_scores

Row = dict[str, Any]

COLUMNS: dict[str, Callable[[Row], str]] = {
    "campaign": lambda row: str(row["campaign"]),
    "channel": lambda row: row["channel"] or "-",
    "exact epsilon": lambda row: "-" if row["epsilon"] is None else f"{row['epsilon']:.4f}",
    "reports": lambda row: f"{row['n']:,}",
    "threshold": lambda row: f"{row['threshold']:.6f}",
    "promised": lambda row: f"{row['level']:.3f} {row['kind']}",
    "test coverage": lambda row: f"{row['coverage']:.4f}" if "coverage" in row else "-",
    "mean set size": lambda row: f"{row['mean_size']:.2f}" if "mean_size" in row else "-",
    "trivial": lambda row: "yes" if row["threshold"] >= 1 else "no",
}
# The columns that a narrow terminal leaves out first: how a result was obtained, not the result.
LEAVE_OUT = ("channel", "exact epsilon", "reports", "threshold")


def cells(row: Row) -> list[str]:
    """The cells of a campaign as text, one for each column."""
    return [show(row) for show in COLUMNS.values()]


def notes(rows: list[Row]) -> list[str]:
    """The reasons of the campaigns that ended with the trivial threshold."""
    return [f"{row['campaign']} is trivial: {row['reason']}" for row in rows if row["reason"]]


def as_text(rows: list[Row], *, width: int | None = None) -> str:
    """A table of campaigns with aligned columns, and the notes below it.

    Columns are left out so that lines have at most `width` characters, if possible.
    """
    shown = {name: [name, *(show(row) for row in rows)] for name, show in COLUMNS.items()}
    out = []
    for name in LEAVE_OUT:
        if (
            width is not None
            and sum(max(map(len, column)) + 2 for column in shown.values()) - 2 > width
        ):
            del shown[name]
            out.append(name)
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in shown.values()]
    head, *body = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    left_out = [f"left out at {width} columns: {', '.join(out)}"] if out else []
    return "\n".join(
        [head, "-" * len("  ".join(column[0] for column in padded)), *body, *notes(rows), *left_out]
    )


def simulated(
    certificate: Certificate,
    *,
    score: str,
    records: int,
    replacement: bool,
    seed: int,
    probs: NDArray[Any] | None = None,
) -> dict[str, float]:
    """Measure coverage and mean set size on the embedded records that were dealt to nobody.

    `probs` are a model's probabilities of all embedded records; without it, the embedded model's.
    """
    embedded, labels = predictions()
    probs = embedded if probs is None else probs
    _, rest = deal(labels, owners=1, records=records, replacement=replacement, seed=max(seed, 0))
    u = np.random.default_rng(max(seed, 0)).random(len(labels))[rest]
    threshold = np.float64(certificate.threshold)
    own = true_scores(find_label_score(score), probs[rest], labels[rest], u=u)
    every = all_scores(find_label_score(score), probs[rest], u=u)
    return {
        "coverage": float(np.mean(own <= threshold)),
        "mean_size": float((every <= threshold).sum(axis=1).mean()),
    }


def simulated_accuracy(
    terms: TrainingTerms,
    weights: Weights,
    *,
    score: str,
    records: int,
    replacement: bool,
    seed: int,
) -> float:
    """Measure the accuracy of a simulated training on the embedded records dealt to nobody."""
    features, labels = owned()
    _, rest = deal(labels, owners=1, records=records, replacement=replacement, seed=max(seed, 0))
    file = to_onnx(terms.network(), weights, centre=terms.centre)
    found = predict_file(file, features[rest]).argmax(axis=1)
    return float(np.mean(found == labels[rest]))


def non_private(*, score: str, alpha: float, records: int, replacement: bool, seed: int) -> Row:
    """A row for split conformal prediction without privacy, on records that a simulation deals."""
    probs, labels = predictions()
    (dealt,), _ = deal(
        labels, owners=1, records=records, replacement=replacement, seed=max(seed, 0)
    )
    u = np.random.default_rng(max(seed, 0)).random(len(labels))[dealt]
    certificate = split_conformal(
        true_scores(find_label_score(score), probs[dealt], labels[dealt], u=u), alpha=alpha
    )
    measured = simulated(
        certificate, score=score, records=records, replacement=replacement, seed=seed
    )
    return {"campaign": "non-private", **asdict(certificate), "channel": None, **measured}
