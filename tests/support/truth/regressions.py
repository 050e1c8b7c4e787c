"""Records with targets of a known law, in files of owners, and models of one number."""

import csv
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.models.model_file import Model
from confide.protocol.scores.regression import AbsoluteResidual
from tests.support.networks.graphs import FLOAT, constant, node, proto, value

Array = NDArray[Any]

# Far above any residual, and known without the records.
BOUND = 10.0
SCORE = AbsoluteResidual(BOUND).text


class Numbers(NamedTuple):
    """Features, targets, and predictions whose residuals are standard normal."""

    features: Array
    targets: Array
    predictions: Array

    def at(self, rows: Any) -> "Numbers":
        return Numbers(self.features[rows], self.targets[rows], self.predictions[rows])


def numbers(n: int, seed: int) -> Numbers:
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    predictions = features.astype(np.float64) @ [3.0, -1.0] + 2.0
    return Numbers(features, predictions + rng.normal(size=n), predictions)


def coverage(reach: float) -> float:
    """The true coverage of a prediction plus or minus the reach."""
    return math.erf(reach / math.sqrt(2))


def bands(given: Numbers) -> dict[str, Array]:
    """Quantiles half a unit around the predictions, and scales of 1 and 2 in turns."""
    return {
        "lower": given.predictions - 0.5,
        "upper": given.predictions + 0.5,
        "scale": np.arange(len(given.targets)) % 2 + 1.0,
    }


def band_coverage(score: str, reach: float) -> float:
    """The true coverage of what a score makes of these quantiles or scales."""
    if score == "cqr":
        return coverage(0.5 + reach)
    return (coverage(reach) + coverage(2 * reach)) / 2


def write_numbers(path: Path, given: Numbers, *, features: bool = False, **more: Array) -> Path:
    """Write a csv file with ids and targets, and with predictions or features; and more columns."""
    table: dict[str, Array] = {"id": np.arange(len(given.targets)), "target": given.targets} | more
    if features:
        table |= {f"x{i}": given.features[:, i] for i in range(given.features.shape[1])}
    else:
        table |= {"prediction": given.predictions}
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(table)
        out.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
    return path


def number_model(*, flat: bool = False, failing: bool = False) -> Model:
    """The model behind the predictions; it returns (n, 1), or (n,) if `flat`.

    A failing one returns no number for a record whose first feature is below 0.
    """
    nodes = [node("Gemm", ["x", "w", "b"], ["sum"])]
    constants = [constant("w", [[3.0], [-1.0]]), constant("b", [2.0])]
    last = "sum"
    if failing:
        constants += [constant("first", [[1.0], [0.0]])]
        nodes += [
            node("Gemm", ["x", "first"], ["a"]),
            node("Sqrt", ["a"], ["root"]),
            node("Sub", ["root", "root"], ["nothing"]),
            node("Add", ["sum", "nothing"], ["some"]),
        ]
        last = "some"
    if flat:
        constants.append(constant("axis", [1], np.int64))
        nodes.append(node("Squeeze", [last, "axis"], ["y"]))
    else:
        nodes.append(node("Identity", [last], ["y"]))
    outputs = [value("y", FLOAT, ["n"] if flat else ["n", 1])]
    return Model.of(proto(nodes, constants, outputs=outputs).SerializeToString())
