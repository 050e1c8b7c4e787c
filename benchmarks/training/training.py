"""What private training costs: clipping, exact noise, and accuracy under exact noise.

Run `python benchmarks/training/training.py [SECTION] [--json FILE]`, with the sections (default:
the first)

    clipping    closed form against Opacus and against no privacy: forward, backward, clipping and
                update of one batch, without noise and sampling, which all private ways share
                (--batch, --features, --labels, --rounds, --threads)
    step        a step of federated training as in pyproject.toml (an owner of 1,000 letters) with
                exact noise, against the same step with noise in floating point (--rounds)
    accuracy    federated training of that network as in pyproject.toml (10 owners of 1,000
                letters), with exact noise and with noise in floating point at the same noise
                multiplier, the plan's and others, and the epsilon of both accountings (--seeds,
                --noise)

Claims about time are ratios within one run: rounds alternate between the ways, and the median round
counts.
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
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.training.training_accuracy import Row, accuracy, embedded_terms, float_noise
from confide.client.training.engines.choice import make_clipper
from confide.client.training.layers import bounded
from confide.client.training.local_round import Trainer, moved
from confide.client.training.randomness import poisson_batch
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import CLIP_UNITS, sensitivity
from confide.protocol.exact.sampling import Entropy, os_entropy
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.simulated.embedded import owned

WAYS = ("no privacy", "closed form", "Opacus")


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def one_step(way: str, model: nn.Module, features: Tensor, labels: Tensor) -> Callable[[], None]:
    """A function that takes one step on a model of its own: in double precision, but for the one
    without privacy."""
    own = copy.deepcopy(model) if way == "no privacy" else copy.deepcopy(model).double()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    if way == "no privacy":

        def plain() -> None:
            optimizer.zero_grad()
            torch.autograd.backward(losses(own(features), labels).mean())
            optimizer.step()

        return plain
    trained, doubles = list(own.parameters()), features.double()
    engine, like = "stack" if way == "closed form" else "hooks", (doubles[:7], 0 * labels[:7])
    clipped = make_clipper(own, losses, 1.0, engine=engine, like=like, batch=len(features))

    def private() -> None:
        sums = clipped(doubles, labels)[1] / CLIP_UNITS / len(features)
        for parameter, part in zip(
            trained, sums.split([parameter.numel() for parameter in trained]), strict=True
        ):
            parameter.grad = part.view_as(parameter)
        optimizer.step()

    return private


def alternate(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, taken in turn after two rounds to warm up."""
    taken: dict[str, list[float]] = {way: [] for way in steps}
    for round_ in range(rounds + 2):
        for way, step in steps.items():
            started = time.perf_counter()
            step()
            if round_ >= 2:
                taken[way].append(1000 * (time.perf_counter() - started))
    return {way: statistics.median(times) for way, times in taken.items()}


def clipping(arguments: argparse.Namespace) -> list[Row]:
    torch.manual_seed(0)
    d, k = arguments.features, arguments.labels
    x, y = torch.randn(arguments.batch, d), torch.randint(0, k, (arguments.batch,))
    models = {
        f"linear head {d}-{k}": nn.Sequential(nn.Linear(d, k)),
        f"MLP {d}-16-16-{k}": nn.Sequential(
            nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, k)
        ),
    }
    rows = []
    for name, model in models.items():
        found = alternate({way: one_step(way, model, x, y) for way in WAYS}, arguments.rounds)
        rows.append(
            {
                "model": name,
                **{f"{way} (ms)": found[way] for way in WAYS},
                "closed / no privacy": found["closed form"] / found["no privacy"],
                "Opacus / closed": found["Opacus"] / found["closed form"],
            }
        )
    return rows


def exact_noise(terms: TrainingTerms, entropy: Entropy) -> NDArray[np.int64]:
    return discrete_gaussian(
        (Fraction(terms.noise_multiplier) * sensitivity(terms.size)) ** 2, terms.size, entropy
    )


def step(arguments: argparse.Namespace) -> list[Row]:
    terms, _ = embedded_terms()
    features, labels = (array[:1_000] for array in owned())
    weights = bounded(terms.network().first_weights())
    clipped = Trainer(terms).sums

    def take(noise: Callable[[TrainingTerms, Entropy], NDArray[Any]] | None) -> Callable[[], None]:
        def taken() -> None:
            rows = poisson_batch(1_000, terms.sampling_rate, os_entropy)
            sums = clipped(weights, (features[rows], labels[rows]), os_entropy)
            moved(terms, weights, sums if noise is None else sums + noise(terms, os_entropy))

        return taken

    found = alternate(
        {"none": take(None), "exact": take(exact_noise), "float": take(float_noise)},
        20 * arguments.rounds,
    )
    return [
        {
            "network": terms.architecture,
            "no noise (ms)": found["none"],
            "floating point (ms)": found["float"],
            "exact (ms)": found["exact"],
            "exact / floating point": found["exact"] / found["float"],
        }
    ]


SECTIONS = {"clipping": clipping, "step": step, "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("section", nargs="?", choices=SECTIONS, default="clipping")
    parser.add_argument("--batch", type=int, default=4096, help="records a step (default 4,096)")
    parser.add_argument(
        "--features", type=int, default=512, help="features of a record (default 512)"
    )
    parser.add_argument("--labels", type=int, default=10, help="classes (default 10)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=30,
        help="rounds timed for each way (default 30; of 20 in `step`)",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--seeds", type=int, default=20, help="trainings of each kind (default 20)")
    parser.add_argument(
        "--noise",
        type=float,
        nargs="*",
        default=[2.5, 5.0],
        help="other noise multipliers (default 2.5 5)",
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    numbers = ("batch", "features", "labels", "rounds", "threads", "seeds")
    if min(getattr(arguments, name) for name in numbers) < 1:
        parser.error("every number must be at least 1")
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", message="Full backward hook|Secure RNG")
    logging.disable(logging.WARNING)
    rows = SECTIONS[arguments.section](arguments)
    title = (
        f"one step on {arguments.batch:,} records"
        if arguments.section == "clipping"
        else arguments.section
    )
    table = Table(title=title, title_justify="left")
    for heading in rows[0]:
        table.add_column(heading, no_wrap=len(rows[0]) < 7)
    for row in rows:
        table.add_row(
            *(f"{value:.4g}" if isinstance(value, float) else value for value in row.values())
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
