"""Intervals calibrated by three owners with csv files: over a real gRPC server, and over Flower.

    python benchmarks/federations/regression.py [--data FILE.csv --target COLUMN --bound B]

Without --data, records are made up: targets around a curve, with noise that grows along it. A
quarter of the records is the provider's, who fits least squares of squares and products of the
features to the targets, and another to the sizes of the residuals: prediction and scale, and from
both a lower and an upper end. Half of the records is dealt to the owners, whose files have these
four numbers beside the target; the rest is the test. Every owner is a
process of `confide-client contribute`, with TLS to a process of `confide-aggregator serve`.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.aggregator.keys import SIGNING_KEY
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.regression import residual
from tests.support.owners.owners import PUBLIC as KEY
from tests.support.repository.places import ROOT
from tests.support.servers.servers import Place, Running, aggregator, eventually
from tests.support.training.chains import Contributor

Array = NDArray[Any]
Table = dict[str, Array]

OWNERS, ALPHA, EPSILON, SEED = 3, 0.1, 2.0, 1
CAMPAIGNS = ("bits:certified", "central:trusted", "central:owner-noised")
# The model behind the predictions is not a file here.
MODEL = "00" * 32


def made_up(n: int) -> tuple[Array, Array]:
    """Features and targets: a curve, and noise whose scale grows from 0.5 to 2.5."""
    rng = np.random.default_rng(SEED)
    features = rng.uniform(-1, 1, (n, 4))
    curve = 6 * np.sin(2 * features[:, 0]) + 4 * features[:, 1] * features[:, 2]
    return features, curve + rng.normal(size=n) * (1.5 + features[:, 3])


def read(path: Path, target: str) -> tuple[Array, Array]:
    """The numbers of a csv file; columns of text, and rows that lack a number, are left out."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {}
    for name in rows[0]:
        try:
            columns[name] = np.array([float(row[name] or "nan") for row in rows])
        except ValueError:
            continue
    targets = columns.pop(target)
    features = np.stack(list(columns.values()), axis=1)
    whole = np.isfinite(features).all(axis=1) & np.isfinite(targets)
    return features[whole], targets[whole]


def predicted(features: Array, targets: Array) -> tuple[Table, Table]:
    """The owners' records and the test, with what the provider's model returns for them."""
    order = np.random.default_rng(SEED).permutation(len(targets))
    own, dealt, rest = np.split(order, [len(order) // 4, 3 * len(order) // 4])
    means, scales = features[own].mean(axis=0), features[own].std(axis=0)
    terms = _terms(np.clip((features - means) / scales, -4, 4))
    prediction = terms @ _least_squares(terms[own], targets[own])
    sizes = np.abs(targets - prediction)
    scale = np.maximum(terms @ _least_squares(terms[own], sizes[own]), 0.1 * sizes[own].mean())
    # Of normal residuals with this mean size, 90 % lie within.
    half = 2.06 * scale
    columns = {"target": targets, "prediction": prediction, "scale": scale}
    columns |= {"lower": prediction - half, "upper": prediction + half}
    found = [
        {"id": rows} | {name: all_[rows] for name, all_ in columns.items()}
        for rows in (dealt, rest)
    ]
    return found[0], found[1]


def _terms(features: Array) -> Array:
    """A constant, the features, and all their products."""
    first, second = np.triu_indices(features.shape[1])
    products = features[:, first] * features[:, second]
    return np.concatenate([np.ones((len(features), 1)), features, products], axis=1)


def _least_squares(terms: Array, targets: Array) -> Array:
    return np.linalg.solve(terms.T @ terms + np.eye(terms.shape[1]), terms.T @ targets)


def write(path: Path, table: Table) -> Path:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(table)
        out.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
    return path


def owners(place: Place, folder: Path, dealt: Table) -> list[Contributor]:
    """Three owners of unequal size, each with a file of its own."""
    holders = np.random.default_rng(SEED).choice(OWNERS, len(dealt["id"]), p=[0.5, 0.3, 0.2])
    found = []
    for number in range(OWNERS):
        home = folder / str(number)
        home.mkdir()
        mine = {name: column[holders == number] for name, column in dealt.items()}
        file = write(home / "records.csv", mine)
        found.append(
            Contributor(home, place, file, models=f'["{MODEL}"]', epsilon_per_record="40.0")
        )
    return found


def run(
    place: Place, server: Running, people: list[Contributor], *, name: str, score: str, n: int
) -> Predictor:
    """One campaign from its plan to a predictor of its card."""
    asked = {
        "--campaign": name,
        "--score": score,
        "--records": n,
        "--owners": OWNERS,
        "--epsilon": EPSILON,
        "--alpha": ALPHA,
        "--model": MODEL,
        "--key": place.keys / SIGNING_KEY,
        "--db": place.url,
    }
    code, said = aggregator("campaign", "create", *(w for pair in asked.items() for w in pair))
    campaign = said.strip()
    if code or aggregator("campaign", "open", campaign, "--db", place.url)[0]:
        raise BadInput(f"{name} cannot be opened: {said}")
    eventually(lambda: place.store.rounds(campaign))
    with ThreadPoolExecutor(OWNERS) as pool:
        for done in pool.map(lambda one: one.contribute(server, campaign), people):
            if done.returncode:
                raise BadInput(f"an owner of {name} failed: {done.stderr}")
    card = parse_card(str(eventually(lambda: place.store.card(campaign, PUBLIC), seconds=120)))
    broken = [finding.clause for finding in verify(card, key=KEY) if not finding.holds]
    if broken:
        raise BadInput(f"the card of {name} does not verify: {broken}")
    return Predictor.from_card(card, key=KEY)


def measured(predictor: Predictor, test: Table) -> str:
    """Coverage and mean width of a threshold on the test, as cells of a table."""
    columns = residual(predictor.score).columns
    results = np.stack([test[name] for name in columns], axis=1)
    low, high = predictor.predict_interval(results[:, 0] if len(columns) == 1 else results).T
    covered = np.mean((low <= test["target"]) & (test["target"] <= high))
    return f"{predictor.threshold:.4f} | {covered:.4f} | {np.maximum(high - low, 0).mean():.4g}"


def non_private(score: str, dealt: Table) -> Predictor:
    chosen = residual(find_score(score))
    results = np.stack([dealt[name] for name in chosen.columns], axis=1)
    own = chosen.owned_scores(results, dealt["target"], u=None)
    return Predictor(chosen, split_conformal(own, alpha=ALPHA).threshold)


def over_grpc(folder: Path, scores: list[str], dealt: Table, test: Table) -> list[str]:
    """The lines of the table of all campaigns through one server."""
    place = Place(folder / "aggregator")
    lines = []
    try:
        people, server, n = owners(place, folder, dealt), place.serve(), len(dealt["id"])
        for score in scores:
            lines.append(f"| {score} | non-private | {measured(non_private(score, dealt), test)} |")
            for name in CAMPAIGNS:
                found = run(place, server, people, name=name, score=score, n=n)
                lines.append(f"| {score} | {name}, gRPC | {measured(found, test)} |")
    finally:
        place.close()
    return lines


def over_flower(folder: Path, scores: list[str], dealt: Table, test: Table) -> list[str]:
    """The same campaigns by `confide federation` on a file of all records."""
    whole = {name: np.concatenate([dealt[name], test[name]]) for name in dealt}
    whole["owner"] = np.random.default_rng(SEED).choice(["a", "b", "c"], len(whole["id"]))
    file, lines = write(folder / "all.csv", whole), []
    for score in scores:
        out = folder / "flower"
        given = ["--data", file, "--owner-column", "owner", "--score", score, "--out", out]
        given += ["--campaigns", " ".join(CAMPAIGNS), "--epsilon", EPSILON, "--alpha", ALPHA]
        given += ["--records", len(dealt["id"])]
        command = [sys.executable, "-m", "confide", "federation", *map(str, given)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode or done.stdout.count(": verified, ") != len(CAMPAIGNS):
            raise BadInput(f"the federation failed: {done.stdout}{done.stderr}")
        for name in CAMPAIGNS:
            row = json.loads((out / f"{name.replace(':', '-')}.json").read_text())
            cells = f"{row['threshold']:.4f} | {row['coverage']:.4f} | {row['mean_width']:.4g}"
            lines.append(f"| {score} | {name}, Flower | {cells} |")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path)
    options.add_argument("--target", default="target")
    options.add_argument("--bound", type=float, default=20.0)
    options.add_argument("--records", type=int, default=20_000, help="records that are made up")
    given = options.parse_args()
    records = made_up(given.records) if given.data is None else read(given.data, given.target)
    dealt, test = predicted(*records)
    bounds = {"absolute-residual": given.bound, "normalised-residual": 20.0, "cqr": given.bound}
    scores = [f"{name} bound={bound:g}" for name, bound in bounds.items()]
    with tempfile.TemporaryDirectory(prefix="confide-regression-") as made:
        folder = Path(made)
        lines = over_grpc(folder, scores, dealt, test) + over_flower(folder, scores, dealt, test)
    name = "made up" if given.data is None else given.data.name
    print(
        f"{name}: {len(dealt['id']):,} records of {OWNERS} owners, {len(test['id']):,} for the "
        f"test, epsilon {EPSILON:g}, target {1 - ALPHA:g}\n\n"
        "| score | campaign | threshold | test coverage | mean width |\n|---|---|---|---|---|"
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
