"""The options of `confide evaluate --method full-data`: pipeline, preprocessing and model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.planning.settings import check_used
from confide.aggregator.procedures.full_data.levels import PUBLISHED_BUFFER, Stability
from confide.aggregator.procedures.full_data.published_bounds import Smoothness
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.scores.task import REGRESSION
from confide.simulation.data.limits import Limits, read_limits
from confide.simulation.data.synthetic import LINE_TARGETS
from confide.simulation.evaluate.options import CuratorOptions, SharedOptions
from confide.simulation.evaluate.repeated import Repeated

NETWORK = "network"
# The linear models: where the noise is by default, and their penalties (ridge, lasso).
LINEAR: dict[str, tuple[str, float, float]] = {
    "ols": ("statistics", 0.0, 0.0),
    "ridge": ("output", 0.1, 0.0),
    "lasso": ("statistics", 0.0, 0.01),
}
MODELS = (NETWORK, *LINEAR)
_LINES = tuple(LINEAR)
# Options that only some models have.
OF_MODELS = {
    "--hidden": (NETWORK,),
    "--epochs": (NETWORK,),
    "--steps": (NETWORK,),
    "--batch": (NETWORK,),
    "--rate": (NETWORK,),
    "--clip": (NETWORK,),
    "--optimizer": (NETWORK,),
    "--smoothness": (NETWORK,),
    "--release": ("ridge", "lasso"),
    "--ridge": ("ridge", "lasso"),
    "--lasso": ("lasso",),
    "--target-range": _LINES,
}


@dataclass(frozen=True)
class ModelOptions:
    """Of full-data: which model is trained, and how."""

    model: Annotated[
        str, typer.Option(help="full-data: network, or for regression ols, ridge or lasso")
    ] = NETWORK
    hidden: Annotated[
        str,
        typer.Option(metavar="WIDTHS", help='network: widths of hidden layers, such as "64 32"'),
    ] = "16 16"
    epochs: Annotated[float, typer.Option(help="network: expected visits of a record")] = 50
    steps: Annotated[
        int | None, typer.Option(help="network: steps of training, instead of --epochs")
    ] = None
    batch: Annotated[int, typer.Option(help="network: expected records in a step")] = 256
    rate: Annotated[float, typer.Option(help="network: learning rate")] = 8e-3
    clip: Annotated[float, typer.Option(help="network: the length gradients are clipped to")] = 1.0
    optimizer: Annotated[str, typer.Option(help="network: adam or sgd")] = "adam"
    release: Annotated[
        str | None,
        typer.Option(
            help="ridge, lasso: where the noise is; output (on the solution, needs --ridge) or "
            "statistics (on X'X and X'y) [default: ridge output, lasso statistics]"
        ),
    ] = None
    ridge: Annotated[
        float | None,
        typer.Option(help="ridge, lasso: penalty on squared weights [default: ridge 0.1, lasso 0]"),
    ] = None
    lasso: Annotated[
        float | None, typer.Option(help="lasso: penalty on weights [default: 0.01]")
    ] = None
    target_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="ols, ridge, lasso: public limits of the targets"),
    ] = None

    def check(self, shared: SharedOptions, given: list[str]) -> None:
        """Refuse an unknown model, options of another one, and a line through labels."""
        if not shared.on_training_records:
            return
        check_choice("model", self.model, MODELS)
        check_used(given, [self.model], OF_MODELS)
        if self.model in LINEAR and not shared.asked_task.of_numbers:
            raise BadInput(
                f"model is {self.model} and task is {shared.asked_task}; accepted is "
                f"{REGRESSION}, or model {NETWORK}"
            )
        if {"--epochs", "--steps"} <= set(given):
            raise BadInput("--epochs and --steps are given; accepted is one of them")

    def recipe(self, shared: SharedOptions) -> Any:
        """The public numbers of the model's training."""
        from confide.simulation.evaluate.full_data.linear import LinearRecipe
        from confide.simulation.evaluate.full_data.networks import Recipe

        if self.model == NETWORK:
            return Recipe(
                hidden=widths("hidden", self.hidden),
                epochs=self.epochs,
                batch=self.batch,
                rate=self.rate,
                clip=self.clip,
                fixed_steps=self.steps,
                optimizer=self.optimizer,
            )
        targets = self.target_range
        if targets is None and shared.data is not None:
            raise BadInput(
                "targets need public limits, known without the records: --target-range LOW HIGH"
            )
        release, ridge, lasso = LINEAR[self.model]
        return LinearRecipe(
            targets=LINE_TARGETS if targets is None else targets,
            release=release if self.release is None else self.release,
            ridge=ridge if self.ridge is None else self.ridge,
            lasso=lasso if self.lasso is None else self.lasso,
        )


@dataclass(frozen=True)
class FullDataOptions:
    """Of full-data: budget, features, and constants of theorems."""

    share: Annotated[float, typer.Option(help="full-data: share of epsilon that training gets")] = (
        0.5
    )
    buffer: Annotated[int, typer.Option(help="full-data scp-f: ranks added by hand")] = (
        PUBLISHED_BUFFER
    )
    stability: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(
            metavar="L F U D",
            help="full-data scp-f: constants you vouch for (SCP Theorem 3): scores L-Lipschitz, "
            "density at most F, one record moves the model by more than U with probability at most "
            "D",
        ),
    ] = None
    smoothness: Annotated[
        tuple[float, float, float] | None,
        typer.Option(
            metavar="L F S",
            help="full-data scp-f, network with sgd: constants you vouch for (SCP Theorem 4): "
            "scores L-Lipschitz, density at most F, gradients of the loss S-Lipschitz",
        ),
    ] = None
    theorem_15: Annotated[
        float | None,
        typer.Option(
            metavar="PROBABILITY",
            help="full-data differential: state DPCP Theorem 15, which may fail so often",
        ),
    ] = None
    feature_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="full-data: public limits of the features"),
    ] = None
    feature_ranges: Annotated[
        Path | None,
        typer.Option(help="full-data: public limits of each feature (.toml, .json or .csv)"),
    ] = None
    scaling_epsilon: Annotated[
        float,
        typer.Option(
            help="full-data: part of epsilon for bounds of the features within their public "
            "limits, read off the records privately; 0 scales by the public limits"
        ),
    ] = 0.0
    card_file: Annotated[
        Path | None,
        typer.Option(
            "--card", help="full-data certified: write its contract card, signed as a simulation"
        ),
    ] = None

    def check(self, shared: SharedOptions, model: ModelOptions) -> None:
        """Refuse a card of any method that issues none here, and constants that do not fit."""
        if self.card_file is not None:
            if not shared.on_training_records or shared.asked_variant != "certified":
                raise BadInput(
                    f"a card of {shared.method} {shared.asked_variant} is asked for; accepted "
                    "here: full-data certified"
                )
            if self.scaling_epsilon:
                raise BadInput(
                    "a card is asked for with --scaling-epsilon, which no card states; accepted "
                    "are public limits of the features"
                )
        if self.feature_range is not None and self.feature_ranges is not None:
            raise BadInput("--feature-range and --feature-ranges are given; accepted is one")
        if self.smoothness is not None:
            if self.stability is not None:
                raise BadInput("--stability and --smoothness are given; accepted is one")
            if model.optimizer != "sgd":
                raise BadInput(
                    f"--smoothness is given with optimizer {model.optimizer}; SCP Theorem 4 is "
                    "about plain steps, so accepted is --optimizer sgd"
                )

    @property
    def limits(self) -> Limits | None:
        """The public limits of the features: one pair, or a pair each."""
        return (
            self.feature_range if self.feature_ranges is None else read_limits(self.feature_ranges)
        )

    def setting(
        self, shared: SharedOptions, curator: CuratorOptions, model: ModelOptions, *, records: int
    ) -> Repeated:
        """Training needs packages that no other method here needs, so they are imported late."""
        import torch

        from confide.simulation.evaluate.full_data.run import FullData

        # Steps on small batches are slower on several threads than on one.
        torch.set_num_threads(1)
        return FullData(
            variant=shared.asked_variant,
            share=self.share,
            buffer=self.buffer,
            stability=None if self.stability is None else Stability(*self.stability),
            smoothness=None
            if self.smoothness is None
            else Smoothness(*self.smoothness, rate=model.rate, clip=model.clip),
            theorem_15_failure=self.theorem_15,
            scaling_epsilon=self.scaling_epsilon,
            recipe=model.recipe(shared),
            **curator.given,
            **shared.repeated(records),
        )


def widths(name: str, text: str) -> tuple[int, ...]:
    """Widths of layers from text such as "64 32" or "64,32"; no text is no layer."""
    try:
        return tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        raise BadInput(
            f'{name} is {text!r}; accepted are whole numbers, such as "64 32" or "64,32"'
        ) from None
