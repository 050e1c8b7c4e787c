"""Options of `confide federation` about training a model, and about calibrating that model."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.planning.settings import read_number

CHAIN = "training:federated-averaging bits:certified central:trusted central:owner-noised"


@dataclass(frozen=True)
class TrainingOptions:
    """The terms of trainings; an option that is not given has the run configuration's value."""

    chain: Annotated[
        bool,
        typer.Option(
            "--chain", help="train a model on 80 % of the records, then calibrate it on the rest"
        ),
    ] = False
    train_share: Annotated[
        float | None, typer.Option(help="share of the records that trains, in a chain")
    ] = None
    training_epsilon: Annotated[
        float | None, typer.Option(help="of trainings; without it they have --epsilon")
    ] = None
    architecture: Annotated[
        str | None,
        typer.Option(help='of trainings: "linear", "mlp hidden=64", "cnn image=1,4,4 channels=8"'),
    ] = None
    rounds: Annotated[int | None, typer.Option(help="of trainings")] = None
    local_steps: Annotated[int | None, typer.Option(help="of trainings: steps a round")] = None
    sampling_rate: Annotated[
        float | None, typer.Option(help="of trainings: share of an owner's records in a step")
    ] = None
    batch: Annotated[
        Any,
        typer.Option(
            parser=read_number,
            metavar="FLOAT",
            help="of trainings: the public number sums are divided by; auto: by records and owners",
        ),
    ] = None
    learning_rate: Annotated[
        Any,
        typer.Option(parser=read_number, metavar="FLOAT", help="of trainings; auto: by the noise"),
    ] = None
    clip: Annotated[float | None, typer.Option(help="of trainings: longest gradient")] = None
    momentum: Annotated[
        float | None, typer.Option(help="of trainings: of the averaged weights")
    ] = None
    averaged_rounds: Annotated[
        int | None, typer.Option(help="of trainings: last rounds whose weights are averaged")
    ] = None
    loss_share: Annotated[
        float | None, typer.Option(help="of trainings: share of the budget for noised error rates")
    ] = None

    target_low: Annotated[
        float | None,
        typer.Option(help="of trainings of numbers: the public least target; others are clipped"),
    ] = None
    target_high: Annotated[
        float | None, typer.Option(help="of trainings of numbers: the largest target")
    ] = None

    def config(self) -> dict[str, Any]:
        """Return the settings that were given; a chain trains on 80 % unless it says otherwise."""
        given = {
            name.replace("_", "-"): value
            for name, value in asdict(self).items()
            if name != "chain" and value is not None
        }
        return {"train-share": 0.8} | given if self.chain else given
