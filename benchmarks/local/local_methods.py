"""Certified against published local calibration: the tables of docs/local-methods.md.

Run with the project's environment: `python benchmarks/local/local_methods.py [--trials 100]
[--markdown] [--json FILE]`. Every campaign is seeded, so a table can be had again. Excess is
coverage above what the best threshold has (1 - alpha, or more where scores tie), which is what sets
pay for; alpha = delta = 0.1.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.local.local_tables import bit_markdown, label_markdown
from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.bits.one_shot import one_shot
from confide.aggregator.procedures.labels import procedure as labels
from confide.aggregator.procedures.ladder import even_in_size
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.channels.registry import auto
from confide.protocol.channels.subset_selection import SubsetSelection
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.protocol.simulated.embedded import PROVIDER_RECORDS, discriminant, letters
from confide.simulation.data.synthetic import softmax_records
from confide.simulation.driver import BitUsers, LabelUsers, drive

ALPHA = DELTA = 0.1
LABELS_TITLE = "LDP-CP-L: mean set size"
BITS_TITLE = "LDP-CP-S: coverage in excess of 1 - alpha, as a share of published S*"
LABEL_CELLS = [(10_000, 1.0), (50_000, 1.0), (3_000, 2.0)]
BIT_CELLS = [(4.0, 10_000), (4.0, 50_000), (1.0, 10_000), (1.0, 30_000), (1.0, 50_000)]


def synthetic(n: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """HPS scores of every label and true labels of a calibrated ten-class model."""
    probs, truth = softmax_records(n, rng)
    return all_scores(SCORES["hps"], probs), truth


def counted(trials: int, what: str) -> Iterable[int]:
    """Trial numbers, behind a progress bar on a terminal."""
    return track(
        range(trials),
        what,
        transient=True,
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )


def label_table(trials: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    test, truth = synthetic(200_000, rng)
    own = test[np.arange(len(truth)), truth]
    provider = even_in_size(synthetic(5_000, rng)[0])
    oracle = float((test <= np.quantile(own, 1 - ALPHA)).sum(axis=1).mean())
    rows = []
    for n, epsilon in LABEL_CELLS:
        k_rr, subset, best = (
            KaryRR(k=10, epsilon=epsilon),
            SubsetSelection(k=10, epsilon=epsilon),
            auto(k=10, epsilon=epsilon),
        )
        variants: dict[str, Callable[[], Any]] = {
            "published L*": lambda c=k_rr: labels.published(
                channel=c, alpha=ALPHA, delta=DELTA, star=True
            ),
            "certified k-rr": lambda c=k_rr: labels.certified(channel=c, alpha=ALPHA, delta=DELTA),
            "certified subset": lambda c=subset: labels.certified(
                channel=c, alpha=ALPHA, delta=DELTA
            ),
            f"certified auto ({best.name}), provider's ladder": lambda c=best: labels.certified(
                channel=c, alpha=ALPHA, delta=DELTA, ladder=provider
            ),
        }
        for name, make in variants.items():
            thresholds = []
            for trial in counted(trials, f"labels n={n} epsilon={epsilon} {name}"):
                scores, drawn = synthetic(n, np.random.default_rng([1, n, trial]))
                users = LabelUsers(scores, drawn, SeededEntropy(name, n, trial))
                thresholds.append(drive(make(), users).threshold)
            rows.append(
                {
                    "n": n,
                    "epsilon": epsilon,
                    "variant": name,
                    "oracle_size": oracle,
                    "mean_size": float(
                        np.mean([np.count_nonzero(test <= q) / len(test) for q in thresholds])
                    ),
                    "coverage": float(np.mean([np.mean(own <= q) for q in thresholds])),
                    "below_target": float(
                        np.mean([np.mean(own <= q) < 1 - ALPHA for q in thresholds])
                    ),
                    "trivial": float(np.mean([q >= 1 for q in thresholds])),
                }
            )
    return rows


def quadratic(features: NDArray[Any], truth: NDArray[Any], unseen: NDArray[Any]) -> NDArray[Any]:
    """Class probabilities under Gaussian classes, each with its own covariance.

    Covariances are shrunk by a tenth towards the pooled one.
    """
    means = np.array([features[truth == label].mean(axis=0) for label in range(26)])
    pooled = np.cov((features - means[truth]).T)
    log = np.empty((len(unseen), 26))
    for label in range(26):
        factor = np.linalg.cholesky(0.9 * np.cov(features[truth == label].T) + 0.1 * pooled)
        log[:, label] = (
            -0.5 * (np.linalg.solve(factor, (unseen - means[label]).T) ** 2).sum(axis=0)
            - np.log(np.diag(factor)).sum()
        )
    weights = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def bit_populations() -> dict[str, NDArray[Any]]:
    """Sorted true-label scores of real classifiers on the embedded data.

    Campaigns draw from them with replacement.
    """
    features, truth = letters()
    own, others = slice(None, PROVIDER_RECORDS), slice(PROVIDER_RECORDS, None)
    made = {}
    for model, fit in (("linear", discriminant), ("quadratic", quadratic)):
        probs = fit(features[own], truth[own], features[others])
        for score in ("hps", "aps") if model == "linear" else ("hps", "saps"):
            made[f"{model} {score}"] = np.sort(true_scores(SCORES[score], probs, truth[others]))
    return made


def coverage(scores: NDArray[Any], threshold: float) -> float:
    return float(np.searchsorted(scores, threshold, side="right") / len(scores))


def bit_table(trials: int) -> list[dict[str, Any]]:
    rows = []
    for epsilon, n in BIT_CELLS:
        channel = Bit(epsilon=epsilon)
        given = {"channel": channel, "alpha": ALPHA, "delta": DELTA, "n": n}
        variants: dict[str, Callable[[], Any]] = {
            "published S*": lambda g=given: bits.published(**g, star=True),
            "certified": lambda g=given: bits.certified(**g),
            "one-shot": lambda g=given: one_shot(**g),
        }
        for population, scores in bit_populations().items():
            published = float("nan")
            best = coverage(scores, float(np.quantile(scores, 1 - ALPHA, method="inverted_cdf")))
            for name, make in variants.items():
                excess, trivial = [], 0
                for trial in counted(trials, f"bits n={n} epsilon={epsilon} {population} {name}"):
                    drawn = scores[np.random.default_rng([2, n, trial]).integers(0, len(scores), n)]
                    certificate = drive(make(), BitUsers(drawn, SeededEntropy(name, n, trial)))
                    excess.append(coverage(scores, certificate.threshold) - best)
                    trivial += certificate.trivial
                mean = float(np.mean(excess))
                published = mean if name == "published S*" else published
                rows.append(
                    {
                        "epsilon": epsilon,
                        "n": n,
                        "population": population,
                        "variant": name,
                        "excess": mean,
                        "of_published": mean / published,
                        "below_target": float(np.mean(np.array(excess) < 0)),
                        "trivial": trivial / trials,
                    }
                )
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), no_wrap=True)
    for row in rows:
        table.add_row(
            *(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values())
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100, help="campaigns a cell (default 100)")
    parser.add_argument("--only", choices=["labels", "bits"], help="one of the two tables")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="print the tables of the page")
    arguments = parser.parse_args()
    if arguments.trials < 1:
        parser.error(f"--trials is {arguments.trials}; at least 1 is needed")
    tables: dict[str, list[dict[str, Any]]] = {}
    if arguments.only != "bits":
        tables["labels"] = label_table(arguments.trials)
        if arguments.markdown:
            print(label_markdown(tables["labels"]))
        else:
            show(LABELS_TITLE, tables["labels"])
    if arguments.only != "labels":
        tables["bits"] = bit_table(arguments.trials)
        if arguments.markdown:
            print(bit_markdown(tables["bits"]))
        else:
            show(BITS_TITLE, tables["bits"])
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(tables, indent=2) + "\n")


if __name__ == "__main__":
    main()
