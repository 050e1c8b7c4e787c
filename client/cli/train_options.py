"""The options of `train`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from confide.client.cli.options import DEFAULT_HOME, Device, Engine
from confide.client.records.records import Records
from confide.client.training.computing import AUTO, Computing
from confide.protocol.errors import BadInput

if TYPE_CHECKING:
    from confide.client.training.own_training import OwnTraining


@dataclass(frozen=True)
class NetworkOptions:
    """The network, its privacy and its training."""

    epsilon: Annotated[float, typer.Option(help="the most that a record may lose (replace-one)")]
    labels: Annotated[int, typer.Option(help="number of labels, which are 0 to N - 1")] = 0
    target_range: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="LOW HIGH",
            help="for numbers in place of labels: public limits, to which targets are clipped",
        ),
    ] = (0.0, 0.0)
    architecture: Annotated[
        str,
        typer.Option(
            metavar="NETWORK",
            help='linear, "mlp hidden=64,32", "cnn image=1,16,16 channels=16,32", or '
            '"package.module:factory argument=value". A factory is code of an installed package, '
            "and runs here with all your rights",
        ),
    ] = "linear"
    delta: Annotated[
        float, typer.Option(help="the probability with which epsilon may be exceeded")
    ] = 1e-6
    epochs: Annotated[float, typer.Option(help="how often a record is expected to be used")] = 20
    batch: Annotated[int, typer.Option(help="expected records in a step")] = 256
    rate: Annotated[float, typer.Option(help="learning rate (Adam)")] = 5e-3
    clip: Annotated[float, typer.Option(help="the length that gradients are clipped to")] = 1.0
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="noise over clip; training then ends before the step that would pass epsilon "
            "[default: the least with which all epochs fit]"
        ),
    ] = None
    feature_range: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="public limits, to which features are clipped"),
    ] = (0.0, 1.0)
    centre: Annotated[
        float,
        typer.Option(
            help="where the network sees 0: 0 is the lower limit of features, 1 the upper; public"
        ),
    ] = 0.5

    def training(self, records: Records) -> "OwnTraining":
        from confide.client.training.own_training import OwnTraining

        if records.features is None or records.features.ndim != 2:
            shape = None if records.features is None else records.features.shape[1:]
            found = "no features" if shape is None else f"features of shape {shape}"
            raise BadInput(f"a record has {found}; accepted are features in a row")
        low, high = self.feature_range
        numbers = self.target_range != (0.0, 0.0)
        if numbers == (self.labels > 0):
            raise BadInput(
                f"labels are {self.labels} and targets run from {self.target_range[0]:g} to "
                f"{self.target_range[1]:g}; accepted is one of --labels and --target-range"
            )
        training = OwnTraining.of(
            self.architecture,
            features=records.features.shape[1],
            outputs=self.labels or 1,
            epsilon=self.epsilon,
            delta=self.delta,
            epochs=self.epochs,
            batch=self.batch,
            rate=self.rate,
            clip=self.clip,
            noise_multiplier=self.noise_multiplier,
            low=low,
            high=high,
            centre=self.centre,
            target_low=self.target_range[0],
            target_high=self.target_range[1],
        )
        training.check(records.truth)
        return training


@dataclass(frozen=True)
class FileOptions:
    """Where records come from and results go to, and how training survives a kill."""

    records: Annotated[Path, typer.Option(help="your records (.npz, .csv or .parquet)")]
    out: Annotated[
        Path, typer.Option(help="file for the weights; model and description go beside it")
    ] = Path("weights.npz")
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="secret file of a training under way [default: OUT.checkpoint]"),
    ] = None
    every: Annotated[int, typer.Option(min=1, help="steps between checkpoints")] = 100
    device: Device = AUTO
    engine: Engine = AUTO
    home: Annotated[
        Path,
        typer.Option(help="folder of policy, secret and ledger", envvar="CONFIDE_HOME"),
    ] = DEFAULT_HOME
    new_records: Annotated[
        bool, typer.Option("--new-records", help="most records of this file are new")
    ] = False

    @property
    def computing(self) -> Computing:
        return Computing(self.device, self.engine)

    @property
    def state(self) -> Path:
        return self.checkpoint or self.out.with_name(f"{self.out.name}.checkpoint")

    @property
    def model(self) -> Path:
        return self.out.with_suffix(".onnx")

    def check(self) -> None:
        if not self.out.parent.is_dir():
            raise BadInput(f"cannot write {self.out}: its folder does not exist")
        if self.out == self.model:
            raise BadInput(
                f"weights go to {self.out}, and the model beside them would have that name; "
                "accepted is a name that does not end in .onnx"
            )

    @property
    def about(self) -> Path:
        return self.out.with_name(f"{self.out.stem}.about.json")
