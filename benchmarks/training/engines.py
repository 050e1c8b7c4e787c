"""What clipped sums of per-record gradients cost, engine by engine, next to a step without privacy.

Run `python benchmarks/training/engines.py [--json FILE]`. A batch of 128 records goes through a
convolutional network of about 106,000 weights (16x16 images) and through a perceptron of
256-256-128-10, on one thread. The other side is forward and backward pass of the same batch without
privacy, in double precision as the private ways are, and for the record in single precision too.
Noise is apart: its row is the time of one step's exact noise against the whole private step, so the
ratio is its share.

Claims are ratios of processor time within one run: sides take turns, and the fastest turn of each
counts. The command ends with status 1 if a goal is missed.
"""

import argparse
import copy
import json
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.speed.turns import TURN, Row, Side, table, take_turns
from confide.client.training.engines.choice import make_clipper
from confide.client.training.networks import open_sums
from confide.protocol.architectures.registry import built_in
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import sensitivity
from confide.protocol.exact.sampling import os_entropy

DOUBLE, SINGLE, NOISE = "no privacy, double", "no privacy, single", "exact noise"
# What federations run for stacks of linear layers: no engine of torch, and no rounding in products.
EXACT = "exact arithmetic"
# How many times as long as a step without privacy in double precision, at most.
GOALS = {("cnn", "ghost"): 2.0, ("mlp", "stack"): 1.3, ("mlp", EXACT): 1.3}
ENGINES = {
    "cnn": ("ghost", "hooks", "functional", "single"),
    "mlp": ("stack", "ghost", "hooks", "functional"),
}


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 193),
        nn.ReLU(),
        nn.Linear(193, 10),
    )


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def plain(model: nn.Module, features: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward and backward pass of a batch."""

    def step() -> None:
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(losses(model(features), labels).mean())

    return step


def exact_sums(model: nn.Module, records: tuple[Tensor, Tensor]) -> Callable[[], object]:
    """A clipped sum as owners of a federation take it, from weights that were sent."""
    network = built_in("mlp", '{"hidden":[256,128]}', features=256, outputs=10)
    sent = torch.cat([part.detach().flatten() for part in model.parameters()]).numpy()
    rows = records[0].double().numpy(), records[1].numpy()
    sums = open_sums(network, clip=1.0, centre=0.5, batch=float(len(rows[1])))
    return lambda: sums(sent, rows, os_entropy)


def timed(work: Callable[[], object]) -> Side:
    """Processor seconds of the fastest of as many runs as a turn has time for, one at least."""

    def run() -> float:
        first, found = time.perf_counter(), []
        while not found or time.perf_counter() - first < TURN:
            started = time.process_time()
            work()
            found.append(time.process_time() - started)
        return min(found)

    return run


def sides(name: str, model: nn.Module, records: tuple[Tensor, Tensor]) -> dict[str, Side]:
    """All ways to take a step of one model."""
    features, labels = records
    doubles, like = features.double(), (features[:7].double(), torch.zeros_like(labels[:7]))
    found = {
        DOUBLE: timed(plain(copy.deepcopy(model).double(), doubles, labels)),
        SINGLE: timed(plain(copy.deepcopy(model), features, labels)),
    }
    for engine in ENGINES[name]:
        clipped = make_clipper(
            copy.deepcopy(model).double(),
            losses,
            1.0,
            engine=engine,
            like=like,
            batch=len(features),
        )
        found[engine] = timed(lambda clipped=clipped: clipped(doubles, labels))
    if name == "mlp":
        found[EXACT] = timed(exact_sums(model, records))
    weights = sum(parameter.numel() for parameter in model.parameters())
    variance = (Fraction(1) * sensitivity(weights)) ** 2
    found[NOISE] = timed(lambda: discrete_gaussian(variance, weights, os_entropy))
    return found


def compared(name: str, seconds: dict[str, list[float]]) -> list[Row]:
    """Each engine against both steps without privacy, and the noise as a share."""

    def row(engine: str, against: str, at_most: float | None = None) -> Row:
        ours, peer = seconds[engine], seconds[against]
        ratio = min(ours) / min(peer)
        median = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
        goal = None if at_most is None else f"<= {at_most:g} times as long"
        met = None if at_most is None else ratio <= at_most
        what = f"{engine}, {name}"
        return Row(what, against, min(ours), min(peer), ratio, median, goal=goal, met=met)

    engines = [side for side in seconds if side not in (DOUBLE, SINGLE, NOISE)]
    rows = [row(engine, DOUBLE, GOALS.get((name, engine))) for engine in engines]
    first = ENGINES[name][0]
    whole = f"{first} with noise"
    seconds[whole] = [a + b for a, b in zip(seconds[first], seconds[NOISE], strict=True)]
    return [*rows, row(first, SINGLE), row(NOISE, whole)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=128, help="records a step (default 128)")
    parser.add_argument("--turns", type=int, default=15, help="turns of each side (default 15)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if min(arguments.batch - 6, arguments.turns, arguments.threads) < 1:
        parser.error("--batch must be at least 7, --turns and --threads at least 1")
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", message="Full backward hook|Secure RNG")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    labels = torch.randint(0, 10, (arguments.batch,))
    given = {
        "cnn": (cnn(), torch.randn(arguments.batch, 1, 16, 16)),
        "mlp": (mlp(), torch.randn(arguments.batch, 256)),
    }
    rows = []
    for name, (model, features) in given.items():
        found = take_turns(arguments.turns, sides(name, model, (features, labels)))
        rows += compared(name, found)
    Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    sys.exit(any(row.met is False for row in rows))


if __name__ == "__main__":
    main()
