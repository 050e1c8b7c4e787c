"""The settings of a training that an operator gives as options."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.planning.settings import read_number


@dataclass(frozen=True)
class TrainingPlanOptions:
    """The terms of a training, which needs most of these; only a head has a model."""

    architecture: Annotated[
        str | None, typer.Option(help="network and its arguments, such as 'mlp hidden=64'")
    ] = None
    features: Annotated[
        int | None, typer.Option(help="features of a record; for a head, outputs of its model")
    ] = None
    rounds: Annotated[int | None, typer.Option(help="rounds in which owners answer")] = None
    local_steps: Annotated[int | None, typer.Option(help="steps of DP-SGD in a round")] = None
    sampling_rate: Annotated[
        float | None, typer.Option(help="share of its records that an owner uses in a step")
    ] = None
    clip: Annotated[float | None, typer.Option(help="the most that one record can move a step")] = (
        None
    )
    batch: Annotated[
        Any,
        typer.Option(
            parser=read_number,
            metavar="FLOAT",
            help="public number that the sum of a step is divided by; auto: by records and owners",
        ),
    ] = None
    learning_rate: Annotated[
        Any,
        typer.Option(parser=read_number, metavar="FLOAT", help="learning rate; auto: by the noise"),
    ] = None
    momentum: Annotated[
        float | None,
        typer.Option(help="share of a round's movement that is repeated in the next one"),
    ] = None
    averaged_rounds: Annotated[
        int | None, typer.Option(help="how many of the last rounds are averaged in the end")
    ] = None
    centre: Annotated[
        float | None, typer.Option(help="the feature in [0, 1] that the network sees as 0")
    ] = None
    loss_share: Annotated[
        float | None,
        typer.Option(help="share of the budget for a noised error rate in every round"),
    ] = None
    target_low: Annotated[
        float | None, typer.Option(help="of numbers: the public least target; others are clipped")
    ] = None
    target_high: Annotated[float | None, typer.Option(help="of numbers: the largest target")] = None
