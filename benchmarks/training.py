"""What per-record clipping costs a step of training: closed form against Opacus and against no privacy.

Run with the project's environment: `python benchmarks/training.py [--batch 4096] [--features 512] [--json FILE]`.
Forward, backward, clipping and update of one batch, without noise and sampling, which all private ways share. The claims are
ratios within one run: rounds alternate between the ways, and the median round counts.
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
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from client.clipping import make_clipper

WAYS = ("no privacy", "closed form", "Opacus")


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def one_step(way: str, model: nn.Module, features: Tensor, labels: Tensor) -> Callable[[], None]:
    """A function that takes one step on a model of its own."""
    own = copy.deepcopy(model)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    if way == "no privacy":

        def plain() -> None:
            optimizer.zero_grad()
            torch.autograd.backward(losses(own(features), labels).mean())
            optimizer.step()

        return plain
    clipped = make_clipper(own, losses, 1.0, "stack" if way == "closed form" else "opacus")

    def private() -> None:
        clipped(features, labels)
        optimizer.step()

    return private


def measure(model: nn.Module, *, batch: int, features: int, labels: int, rounds: int) -> dict[str, float]:
    """Median milliseconds a step, for each way."""
    torch.manual_seed(0)
    x, y = torch.randn(batch, features), torch.randint(0, labels, (batch,))
    steps = {way: one_step(way, model, x, y) for way in WAYS}
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for round_ in range(rounds + 2):
        for way, step in steps.items():
            started = time.perf_counter()
            step()
            if round_ >= 2:
                taken[way].append(1000 * (time.perf_counter() - started))
    return {way: statistics.median(times) for way, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4096, help="records a step (default 4,096)")
    parser.add_argument("--features", type=int, default=512, help="features of a record (default 512)")
    parser.add_argument("--labels", type=int, default=10, help="classes (default 10)")
    parser.add_argument("--rounds", type=int, default=30, help="steps timed for each way (default 30)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if min(arguments.batch, arguments.features, arguments.labels, arguments.rounds, arguments.threads) < 1:
        parser.error("every number must be at least 1")
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", message="Full backward hook|Secure RNG")
    logging.disable(logging.WARNING)
    d, k = arguments.features, arguments.labels
    models = {
        f"linear head {d}-{k}": nn.Sequential(nn.Linear(d, k)),
        f"MLP {d}-16-16-{k}": nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, k)),
    }
    rows = []
    for name, model in models.items():
        found = measure(model, batch=arguments.batch, features=d, labels=k, rounds=arguments.rounds)
        rows.append({"model": name, **{f"{way} (ms)": found[way] for way in WAYS},
                     "closed / no privacy": found["closed form"] / found["no privacy"],
                     "Opacus / closed": found["Opacus"] / found["closed form"]})  # fmt: skip
    table = Table(title=f"one step on {arguments.batch:,} records", title_justify="left")
    for heading in rows[0]:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else value for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
