"""The options of `confide evaluate`: those of every method, and those that each method owns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.planning.settings import FAILURE, belongs, check_used, promising
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.counts.central import OWNER_NOISED, CentralTerms
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.registry import METHODS as TERMS
from confide.protocol.scores.registry import SCORES_HELP, find_score
from confide.protocol.scores.task import CLASSIFICATION, REGRESSION, Task
from confide.simulation.arrays.calibrate import variants
from confide.simulation.data.synthetic import LINE_BOUND

FULL_DATA = FullDataTerms.method
METHODS = (*variants(), FULL_DATA)


def _of_campaigns() -> dict[str, tuple[str, ...]]:
    """The settings of campaigns as options, each with the methods or variants that have it."""
    found = {
        f"--{name}": tuple(one for one in owners if one.partition(":")[0] in variants())
        for name, owners in belongs().items()
    }
    return {name: owners for name, owners in found.items() if owners}


# Options that only some methods have, or some variants of them.
BELONGS = _of_campaigns()
BELONGS |= {
    **{name: (*BELONGS[name], FULL_DATA) for name in ("--privacy-delta", "--beta", "--bins")},
    "--owners": (f"{CentralTerms.method}:{OWNER_NOISED}",),
    "--share": tuple(
        f"full-data:{name}" for name in ("certified", "dpcp", "scp-f", "scp-a", "differential")
    ),
    "--buffer": ("full-data:scp-f",),
    "--stability": ("full-data:scp-f",),
    "--smoothness": ("full-data:scp-f",),
    "--theorem-15": ("full-data:differential",),
} | dict.fromkeys(
    (
        "--feature-range",
        "--feature-ranges",
        "--scaling-epsilon",
        "--model",
        "--hidden",
        "--epochs",
        "--steps",
        "--batch",
        "--rate",
        "--clip",
        "--optimizer",
        "--release",
        "--ridge",
        "--lasso",
        "--target-range",
    ),
    (FULL_DATA,),
)
# The tasks that can be evaluated.
EVALUATED = {task.name: task for task in (CLASSIFICATION, REGRESSION)}
OF_TASKS = {"--score": (CLASSIFICATION.name,), "--range": (REGRESSION.name,)}
Renamed = Annotated[float | None, typer.Option("--delta", hidden=True)]


@dataclass(frozen=True)
class SharedOptions:
    """What is evaluated, on which records, and how often: of every method."""

    data: Annotated[
        Path | None,
        typer.Option(
            help="npz, csv or parquet with label and probabilities (p0, p1, ...), or target and "
            "prediction (and scale, or lower and upper); full-data: npz with features (n, d) and "
            "labels or targets; default: records that come with the project"
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            help="full-data: classification or regression; elsewhere it is that of the score"
        ),
    ] = None
    method: Annotated[
        str,
        typer.Option(
            help="labels: private labels, the rest in clear; bits: both private; pairs: both, with "
            "a threshold for each label; central: a "
            "trusted curator calibrates, or owners noise their counts; full-data: a trusted "
            "curator trains and calibrates on the same records"
        ),
    ] = "labels"
    variant: Annotated[
        str | None,
        typer.Option(
            help="labels and bits: certified, published, published-star, one-shot (bits only), "
            "class-conditional (labels, pairs), for-every-owner, per-owner, for-every-group, "
            "per-group, non-private; central: "
            "trusted, owner-noised, non-private; full-data: certified, dpcp, scp-f, scp-a, split, "
            "split-certified, pscp, differential, split-cp or naive [default: the first]"
        ),
    ] = None
    score: Annotated[str | None, typer.Option(help=f"{SCORES_HELP} [default: hps]")] = None
    epsilon: Annotated[
        float, typer.Option(help="privacy loss allowed a record, local or in all")
    ] = 1.0
    alpha: Annotated[float, typer.Option(help="the promise is coverage of at least 1 - alpha")] = (
        0.1
    )
    delta: Renamed = None
    residual_range: Annotated[
        float | None,
        typer.Option(
            "--range",
            help="public bound on residuals of numbers: short for the score absolute-residual",
        ),
    ] = None
    n: Annotated[
        int | None, typer.Option(help="calibration records; the rest is the test [default: half]")
    ] = None
    trials: Annotated[int, typer.Option(help="repetitions, each with a fresh split")] = 20
    seed: Annotated[
        int | None,
        typer.Option(
            help="repeatable randomness, stamped as such; default: the operating system's"
        ),
    ] = None
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE|-", help="write the result as JSON; - prints only JSON"
        ),
    ] = None

    def check(self, given: list[str], *, guarantee: str | None) -> None:
        """Refuse an unknown method or task, and options that this method does not have."""
        if self.delta is not None:
            raise BadInput(FAILURE)
        check_choice("method", self.method, METHODS)
        check_choice("task", self.asked_task.name, EVALUATED)
        check_used(given, promising([f"{self.method}:{self.asked_variant}"], guarantee), BELONGS)
        if self.on_training_records:
            check_used(given, [self.asked_task.name], OF_TASKS)
        elif self.score is not None and self.residual_range is not None:
            raise BadInput("--range and --score are given; accepted is one, a score has its bound")
        elif find_score(self.asked_score).task != self.asked_task:
            raise BadInput(
                f"task is {self.asked_task} with score {self.asked_score}; accepted is a score of "
                "that task, or no task: it is that of the score"
            )

    @property
    def on_training_records(self) -> bool:
        """Whether what is calibrated on is what a model was trained on."""
        return TERMS[self.method].on_training_records

    @property
    def asked_variant(self) -> str:
        """The variant that was asked for, or the first of the method."""
        return self.variant or TERMS[self.method].variants[0]

    @property
    def asked_score(self) -> str:
        """The score; without one, `--range` or the task of numbers mean the absolute residual."""
        if self.score is not None:
            return self.score
        numbers = self._named_task is not None and self._named_task.of_numbers
        if self.on_training_records or not (numbers or self.residual_range is not None):
            return "hps"
        bound = LINE_BOUND if self.residual_range is None else self.residual_range
        if self.residual_range is None and self.data is not None:
            raise BadInput(
                "residuals need a public bound, known without the records: --range BOUND"
            )
        return f"absolute-residual bound={bound!r}"

    @property
    def _named_task(self) -> Task | None:
        if self.task is None:
            return None
        check_choice("task", self.task, EVALUATED)
        return EVALUATED[self.task]

    @property
    def asked_task(self) -> Task:
        if self._named_task is not None:
            return self._named_task
        return CLASSIFICATION if self.on_training_records else find_score(self.asked_score).task

    def repeated(self, records: int) -> dict[str, Any]:
        """The fields that the settings of all methods share, for this total number of records."""
        return {
            "score": self.asked_score,
            "epsilon": self.epsilon,
            "alpha": self.alpha,
            "n": records // 2 if self.n is None else self.n,
            "trials": self.trials,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class CuratorOptions:
    """Of central and full-data, where a trusted curator has the records."""

    privacy_delta: Annotated[
        float | None,
        typer.Option(
            help="delta of (epsilon, delta)-DP where noise is Gaussian [default: central 1e-6, "
            "full-data 1e-5]"
        ),
    ] = None
    beta: Annotated[
        float | None,
        typer.Option(
            help="central, full-data: probability that the quantile fails, a part of alpha "
            "[default: none if coverage can be averaged over the mechanism, else what suits it]"
        ),
    ] = None
    bins: Annotated[
        int | None,
        typer.Option(
            help="bins of the public grid of scores [default: central as suits the mechanism, "
            "full-data 16,384]"
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        return given_fields(self)


def given_fields(options: Any) -> dict[str, Any]:
    """The fields of options that were given."""
    return {name: value for name, value in vars(options).items() if value is not None}
