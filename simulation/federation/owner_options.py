"""Options of `confide federation` about its owners and their records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.protocol.errors import BadInput
from confide.protocol.simulated.attendance import Attendance
from confide.protocol.simulated.records import dealt, simulated_data

# Owners of a simulation whose records name none.
NODES = 50


@dataclass(frozen=True)
class OwnerOptions:
    """How many owners there are, and which records each of them gets."""

    data: Annotated[
        Path | None,
        typer.Option(
            help=(
                "records of your own (.npz, .csv or .parquet): label and p0, p1, ..., or target "
                "and prediction (or lower, upper), or features; without it, the embedded letters"
            )
        ),
    ] = None
    owner_column: Annotated[
        str | None, typer.Option(help="column of --data that names the owner of each record")
    ] = None
    group_column: Annotated[
        str | None,
        typer.Option(help="column of --data that says the public group of each record"),
    ] = None
    model: Annotated[
        Path | None, typer.Option(help="model that scores the features of --data (.onnx)")
    ] = None
    test_share: Annotated[
        float | None, typer.Option(help="share of --data that is dealt to nobody: the test [0.25]")
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(help="data owners, a Flower node each [50, or one for each name]"),
    ] = None
    records: Annotated[
        int,
        typer.Option(
            help="calibration records in all, the rest is the test [10,000 of the embedded 16,000]"
        ),
    ] = 0
    replacement: Annotated[
        bool,
        typer.Option(
            "--replacement",
            help="draw records with replacement: any number, and the test is all of them",
        ),
    ] = False
    sizes: Annotated[
        str,
        typer.Option(
            help=(
                'relative sizes, repeated over the nodes: "1" is even, "1 1 10" makes every third '
                "node larger"
            )
        ),
    ] = "1"
    concentration: Annotated[
        float, typer.Option(help="Dirichlet skew of labels over nodes; 0 deals evenly")
    ] = 0.0
    covariate_shift: Annotated[
        float,
        typer.Option(help="deal records that the model is surer of (above 0) or less sure of"),
    ] = 0.0
    dropout: Annotated[float, typer.Option(help="share of nodes that never answer")] = 0.0
    round_dropout: Annotated[
        float, typer.Option(help="probability that a node does not hear of a round")
    ] = 0.0
    stragglers: Annotated[
        float, typer.Option(help="share of slow nodes, whose answers may come too late to count")
    ] = 0.0
    lateness: Annotated[
        float, typer.Option(help="probability that an answer of a slow node is late")
    ] = 0.5
    seed: Annotated[
        int, typer.Option(help="of dealing and randomisers; -1 draws from the operating system")
    ] = -1

    def owners(self) -> int:
        """Return the number of nodes; refuse owners that cannot be dealt records."""
        config = self.config()
        named = len(simulated_data(config).owners)
        nodes = (named or NODES) if self.nodes is None else self.nodes
        if nodes < 1:
            raise BadInput(f"nodes is {nodes}; accepted is at least 1")
        Attendance.of(config, owners=nodes)
        dealt(config, owners=nodes)
        return nodes

    def config(self) -> dict[str, Any]:
        """Return the settings of the run; files are named by absolute paths."""
        if self.data is None:
            given = {"--model": self.model, "--test-share": self.test_share}
            stray = [name for name, value in given.items() if value is not None]
            if stray:
                raise BadInput(f"{stray[0]} is given without --data; accepted is both, or neither")
        if self.records and self.test_share is not None:
            raise BadInput("--records and --test-share are given; accepted is one of them")
        return {
            "data": _absolute(self.data),
            "owner-column": self.owner_column or "",
            "group-column": self.group_column or "",
            "model-file": _absolute(self.model),
            "test-share": 0.25 if self.test_share is None else self.test_share,
            "records": self.records,
            "replacement": self.replacement,
            "sizes": self.sizes,
            "concentration": self.concentration,
            "covariate-shift": self.covariate_shift,
            "dropout": self.dropout,
            "round-dropout": self.round_dropout,
            "stragglers": self.stragglers,
            "lateness": self.lateness,
            "seed": self.seed,
        }


def _absolute(path: Path | None) -> str:
    return "" if path is None else str(path.resolve())
