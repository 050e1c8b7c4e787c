"""The options of `confide evaluate`: those of every method, and those that each method owns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.settings import FAILURE, check_used, promising
from confide.aggregator.quantiles.registry import DEFAULT, MECHANISMS
from confide.protocol.certificate import MARGINAL, PAC
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.grids import GRIDS, MIXED
from confide.protocol.methods.registry import local_variants
from confide.simulation.data.population import CLASSIFICATION, REGRESSION
from confide.simulation.evaluate.central import Central
from confide.simulation.evaluate.local import Local
from confide.simulation.evaluate.trials import Repeated

METHODS = (*local_variants(), "central", "full-data")
_LOCAL, _CURATOR = tuple(local_variants()), ("central", "full-data")
# Options that only some methods have, or some variants of full-data.
BELONGS = {
    "--variant": (*_LOCAL, "full-data"),
    "--channel": _LOCAL,
    "--failure-probability": (*_LOCAL, f"central:{PAC}"),
    "--guarantee": ("central",),
    "--max-corrupt": _LOCAL,
    "--mechanism": ("central",),
    "--privacy-delta": _CURATOR,
    "--beta": _CURATOR,
    "--bins": _CURATOR,
    "--grid": ("central",),
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
    ("full-data",),
)
OF_TASKS = {"--score": (CLASSIFICATION,), "--range": (REGRESSION,)}
Renamed = Annotated[float | None, typer.Option("--delta", hidden=True)]


@dataclass(frozen=True)
class SharedOptions:
    """What is evaluated, on which records, and how often: of every method."""

    data: Annotated[
        Path | None,
        typer.Option(
            help="npz with probs (n, K) and labels (n,); regression: predictions (n,) and targets "
            "(n,); full-data: features (n, d) and labels or targets; default: records that come "
            "with the project"
        ),
    ] = None
    task: Annotated[
        str, typer.Option(help="classification or regression (methods central and full-data)")
    ] = CLASSIFICATION
    method: Annotated[
        str,
        typer.Option(
            help="labels: private labels, features in clear; bits: both private; central: a "
            "trusted curator calibrates; full-data: a trusted curator trains and calibrates on the "
            "same records"
        ),
    ] = "labels"
    variant: Annotated[
        str,
        typer.Option(
            help="labels and bits: certified, published, published-star, one-shot (bits only), "
            "class-conditional (labels only), non-private; full-data: certified, dpcp, scp-f, "
            "scp-a, split, split-certified, pscp, differential, split-cp or naive"
        ),
    ] = "certified"
    score: Annotated[str, typer.Option(help="hps, aps, aps-randomized, raps, saps or top-k")] = (
        "hps"
    )
    epsilon: Annotated[
        float, typer.Option(help="privacy loss allowed a record, local or in all")
    ] = 1.0
    alpha: Annotated[float, typer.Option(help="the promise is coverage of at least 1 - alpha")] = (
        0.1
    )
    delta: Renamed = None
    residual_range: Annotated[
        float | None, typer.Option("--range", help="regression: public bound on residuals")
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

    def check(self, given: list[str], *, guarantee: str) -> None:
        """Refuse an unknown method or task, and options that this method does not have."""
        if self.delta is not None:
            raise BadInput(FAILURE)
        check_choice("method", self.method, METHODS)
        check_choice("task", self.task, (CLASSIFICATION, REGRESSION))
        if self.task == REGRESSION and self.method in local_variants():
            raise BadInput(
                f"task is regression with method {self.method}; accepted: central, full-data"
            )
        check_used(given, promising([f"{self.method}:{self.variant}"], guarantee), BELONGS)
        check_used(given, [self.task], OF_TASKS)

    def repeated(self, records: int) -> dict[str, Any]:
        """The fields that the setting of every method has, for so many records in all."""
        return {
            "score": self.score,
            "epsilon": self.epsilon,
            "alpha": self.alpha,
            "n": records // 2 if self.n is None else self.n,
            "trials": self.trials,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class LocalOptions:
    """Of labels and bits."""

    channel: Annotated[str, typer.Option(help="auto, k-rr, subset or unary (method labels)")] = (
        "auto"
    )
    failure_probability: Annotated[
        float,
        typer.Option(help="labels, bits, PAC: probability, over calibration, that it fails"),
    ] = 0.1
    max_corrupt: Annotated[
        int,
        typer.Option(
            help="reports that may be lies; the certificate is widened by their worst effect"
        ),
    ] = 0

    def setting(self, shared: SharedOptions, records: int) -> Repeated:
        return Local(
            method=shared.method,
            variant=shared.variant,
            channel=self.channel,
            failure_probability=self.failure_probability,
            max_corrupt=self.max_corrupt,
            **shared.repeated(records),
        )


@dataclass(frozen=True)
class CuratorOptions:
    """Of central and full-data, where a trusted curator has the records."""

    privacy_delta: Annotated[
        float | None,
        typer.Option(
            help=(
                "delta of (epsilon, delta)-DP: Gaussian mechanisms, full-data [default there: 1e-5]"
            )
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
            help=(
                "bins of the public grid of scores [default: central as suits the mechanism, "
                "full-data 16,384]"
            )
        ),
    ] = None

    def fields(self, *, default_delta: float) -> dict[str, Any]:
        """The fields of a setting; beta and the number of bins only where they were given."""
        delta = default_delta if self.privacy_delta is None else self.privacy_delta
        chosen = {"beta": self.beta, "bins": self.bins}
        given = {name: value for name, value in chosen.items() if value is not None}
        return {"privacy_delta": delta, **given}


@dataclass(frozen=True)
class CentralOptions:
    """Of central."""

    guarantee: Annotated[
        str,
        typer.Option(help=f"central: {MARGINAL} (on average) or {PAC} (of this calibration)"),
    ] = MARGINAL

    mechanism: Annotated[str, typer.Option(help=f"central: {', '.join(MECHANISMS)}")] = DEFAULT
    grid: Annotated[str, typer.Option(help=f"central: how the bins lie: {', '.join(GRIDS)}")] = (
        MIXED
    )

    def setting(
        self, shared: SharedOptions, curator: CuratorOptions, records: int, *, failure: float
    ) -> Repeated:
        """`failure` is the probability with which a PAC promise may fail."""
        check_choice("mechanism", self.mechanism, MECHANISMS)
        check_choice("guarantee", self.guarantee, (MARGINAL, PAC))
        return Central(
            variant=self.mechanism,
            grid=self.grid,
            failure_probability=failure if self.guarantee == PAC else None,
            **curator.fields(default_delta=0.0),
            **shared.repeated(records),
        )
