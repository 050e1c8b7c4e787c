"""The sizes that `confide advise` expects, next to those of campaigns, and whether it chooses well.

Run with the project's environment: `python benchmarks/laboratory/advice.py [--trials 200] [--score
hps] [--only FILE ...] [--data FILE.npz] [--json FILE]`. It prints the tables of docs/advice.md.
Campaigns are those of `confide evaluate`, seeded, on the embedded letters, on five classes of two
clusters each under a linear model, and on a made-up calibrated model of ten classes; `--data` adds
a file of your own probabilities. Everything is allowed but a trusted aggregator, which is measured
beside the others.

`ratio` is expected to simulated size; its error is one standard error of the simulated mean. The
choice is the allowed method with the smallest expected sets; `loss` is how much larger its
simulated sets are than those of the method that is best in the simulation. The command ends with
status 1 if a ratio is off by more than 10 %, or a loss is more than 5 %, and the error of the
simulated means does not explain it (three standard errors).
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.markdown import table
from confide.protocol.scores.registry import find_score
from confide.protocol.simulated.embedded import discriminant
from confide.simulation.advice.advise import Advice, ScoreCurves, ranked
from confide.simulation.advice.question import AdviceQuestion
from confide.simulation.advice.simulated import setting
from confide.simulation.data.population import Predictions, embedded, predicted
from confide.simulation.data.synthetic import Clusters, softmax_records
from confide.simulation.evaluate.repeated import run_trials

SIZES, EPSILONS = (3_000, 10_000), (0.5, 1.0, 2.0, 4.0)
CLOSE, LOSS, ERRORS = 0.10, 0.05, 3.0

Row = dict[str, Any]


def five_classes() -> Predictions:
    """A linear model of the five-class problem of SCP section S6.3.2, fitted to 4,000 records."""
    rng = np.random.default_rng(0)
    features, labels = Clusters.drawn(rng).draw(30_000, rng)
    probs = discriminant(features[:4_000], labels[:4_000], features[4_000:])
    return Predictions("five classes", probs, labels[4_000:])


def ten_classes() -> Predictions:
    """A calibrated model of ten classes, made up."""
    return Predictions("ten classes", *softmax_records(26_000, np.random.default_rng(1)))


FILES: dict[str, Callable[[], Predictions]] = {
    "letters": embedded,
    "five": five_classes,
    "ten": ten_classes,
}


def asked(score: str, n: int, epsilon: float) -> AdviceQuestion:
    return AdviceQuestion(
        records=n,
        epsilon=epsilon,
        score=score,
        owner_has_model=True,
        features_may_leave=True,
        trusted_aggregator=True,
    )


def cell(
    population: Predictions, scored: ScoreCurves, question: AdviceQuestion, *, trials: int
) -> list[Row]:
    """Expected and simulated sizes of every method at one number of records and one epsilon."""
    advice: Advice = ranked(scored, question)
    rows = []
    for option in advice.options:
        count = trials if option.method != "central:trusted" else (trials + 3) // 4
        chosen = setting(option, advice, trials=count, seed=question.records)
        result, _ = run_trials(population, chosen)
        size, error = (result[part]["mean_size"] for part in ("mean", "std"))
        rows.append(
            {
                "n": question.records,
                "epsilon": question.epsilon,
                "method": option.method,
                "expected": option.expected.size,
                "simulated": size,
                "error": error / math.sqrt(count),
                "ratio": option.expected.size / size,
                "trivial": (option.expected.trivial, result["mean"]["trivial"]),
            }
        )
    return rows


def run(name: str, population: Predictions, *, score: str, trials: int) -> Iterator[Row]:
    scored = ScoreCurves(population)
    for n in (n for n in SIZES if n < len(population)):
        for epsilon in EPSILONS:
            for row in cell(population, scored, asked(score, n, epsilon), trials=trials):
                print(name, row, file=sys.stderr, flush=True)
                yield {"file": name} | row


def surely_off(row: Row) -> bool:
    """Whether a size is off by more than is close, beyond the error of the simulated mean."""
    away = abs(row["expected"] - row["simulated"]) - ERRORS * row["error"]
    return bool(away > CLOSE * row["simulated"])


def choices(rows: list[Row]) -> list[Row]:
    """For every cell, the chosen and the best local method, and what the choice loses."""
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["method"] != "central:trusted":
            cells.setdefault((row["file"], row["n"], row["epsilon"]), []).append(row)
    found = []
    for (file, n, epsilon), options in cells.items():
        chosen = min(options, key=lambda row: row["expected"])
        best = min(options, key=lambda row: row["simulated"])
        error = math.hypot(chosen["error"], best["error"]) if chosen is not best else 0.0
        found.append(
            {"file": file, "n": n, "epsilon": epsilon, "chosen": chosen["method"]}
            | {"best": best["method"], "loss": chosen["simulated"] / best["simulated"] - 1}
            | {"error": error / best["simulated"]}
        )
    return found


def size_table(rows: list[Row]) -> str:
    """A line a file, n and epsilon; a column a method: expected, simulated and their ratio."""
    methods = sorted({row["method"] for row in rows})
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        text = f"{row['expected']:.2f}, {row['simulated']:.2f} ± {row['error']:.2f}"
        key = row["file"], f"{row['n']:,}", f"{row['epsilon']:g}"
        lines.setdefault(key, {})[row["method"]] = f"{text} ({row['ratio']:.2f})"
    cells = [[*key, *(found[name] for name in methods)] for key, found in lines.items()]
    return table(["file", "n", "epsilon", *methods], cells)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200, help="campaigns a method and cell")
    parser.add_argument("--score", default="hps", help="of campaigns and advice (default: hps)")
    parser.add_argument("--only", nargs="+", choices=[*FILES], help="these files (default: all)")
    parser.add_argument("--data", type=Path, help="npz with probs and labels, as well")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    if given.trials < 2:
        parser.error(f"--trials is {given.trials}; at least 2 are needed")
    files = {name: FILES[name] for name in given.only or FILES}
    if given.data is not None:
        files[given.data.stem] = lambda: predicted(given.data, find_score("hps"))
    asked_of = {"score": given.score, "trials": given.trials}
    rows = [row for name, make in files.items() for row in run(name, make(), **asked_of)]
    chosen = choices(rows)
    print(size_table(rows))
    apart = sorted(abs(row["ratio"] - 1) for row in rows)
    print(f"\nMean distance of ratios from 1: {np.mean(apart):.3f}; largest: {apart[-1]:.3f}.")
    same = sum(row["chosen"] == row["best"] for row in chosen)
    print(f"Choice the best in {same} of {len(chosen)}; ", end="")
    print(f"largest loss {max(row['loss'] for row in chosen):.3f}.")
    if given.json is not None:
        given.json.write_text(json.dumps({"sizes": rows, "choices": chosen}, indent=2) + "\n")
    off = [row for row in rows if surely_off(row)]
    off += [row for row in chosen if row["loss"] - ERRORS * row["error"] > LOSS]
    for row in off:
        print(f"off: {row}")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
