"""Options of `confide federation`: the campaigns, and what they promise."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.planning.settings import (
    FAILURE,
    belongs,
    check_used,
    promising,
    read_bins,
)
from confide.aggregator.quantiles.registry import certified_names
from confide.protocol.certificate import BAND, MARGINAL, PAC
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import GRID_NAMES, MIXED
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.labels.terms import CLASS_FLOOR
from confide.protocol.methods.owner_terms import AS_ANSWERED, MIXTURES
from confide.simulation.evaluate.options import Renamed

DEMO_CAMPAIGNS = "labels:published-star labels:certified bits:published-star bits:certified"


@dataclass(frozen=True)
class CampaignOptions:
    """The terms of the campaigns."""

    campaigns: Annotated[
        str,
        typer.Option(
            help="method:variant, one after the other (labels, bits, pairs, central, training, ...)"
        ),
    ] = DEMO_CAMPAIGNS
    score: Annotated[
        str,
        typer.Option(
            help=(
                "hps, aps, aps-randomized, raps, saps or top-k; of numbers: 'absolute-residual "
                "bound=B', 'normalised-residual bound=B' or 'cqr bound=B'"
            )
        ),
    ] = "hps"
    epsilon: Annotated[
        float, typer.Option(help="local privacy loss allowed a record and campaign")
    ] = 2.0
    alpha: Annotated[float, typer.Option(help="the promise is coverage of at least 1 - alpha")] = (
        0.1
    )
    failure_probability: Annotated[
        float,
        typer.Option(help="labels, bits, PAC: probability that the promise fails"),
    ] = 0.1
    delta: Renamed = None
    by: Annotated[str, typer.Option(help="central: class or group, for a threshold of each")] = ""
    groups: Annotated[
        str, typer.Option(help="values of --group-column, as A,B,C [those of the file]")
    ] = ""
    group_floor: Annotated[
        int, typer.Option(help="a group with fewer reports is left out; 0: by a rule")
    ] = 0
    owner_floor: Annotated[
        int,
        typer.Option(help="variants of owners: one with fewer reports is left out; 0: by a rule"),
    ] = 0
    joint: Annotated[
        bool,
        typer.Option("--joint", help="class-conditional, per-owner, -group: promise all at once"),
    ] = False
    class_floor: Annotated[
        int, typer.Option(help="class-conditional: a label with fewer records gets threshold 1")
    ] = CLASS_FLOOR
    mixture: Annotated[
        str, typer.Option(help=f"bits:certified: of owners, {', '.join(MIXTURES)} (first round)")
    ] = AS_ANSWERED
    smallest_owner: Annotated[
        int, typer.Option(help="bits:certified: an owner of so many records can answer every round")
    ] = 0
    scoring: Annotated[
        str,
        typer.Option(
            help="labels: owner (sends probabilities) or aggregator (gets FEATURES IN CLEAR)"
        ),
    ] = "owner"
    provider_data: Annotated[
        Path | None,
        typer.Option(
            help="the provider's records, on which the ladder or grid (labels, central) is even"
        ),
    ] = None
    mechanism: Annotated[
        str, typer.Option(help=f"of central:trusted: {', '.join(certified_names())}")
    ] = "rank-exponential"
    bins: Annotated[
        Any,
        typer.Option(
            parser=read_bins,
            metavar="INTEGER",
            help="of central campaigns: thresholds to choose from; auto: as suits the mechanism",
        ),
    ] = AUTOMATIC
    grid: Annotated[
        str,
        typer.Option(help=f"of central campaigns: how they are spaced: {', '.join(GRID_NAMES)}"),
    ] = MIXED
    edges_file: Annotated[
        Path | None, typer.Option(help="of grid given: the thresholds, numbers that ascend to 1")
    ] = None
    beta: Annotated[
        float,
        typer.Option(
            help="of central campaigns: the part of alpha that is the mechanism's own; 0: none, or "
            "what it needs"
        ),
    ] = 0.0
    guarantee: Annotated[
        str,
        typer.Option(
            help=f"{MARGINAL} (on average; default of central), {PAC} (of this calibration; "
            f"default of labels, bits) or {BAND} (at many levels; labels, one-shot bits)"
        ),
    ] = AUTOMATIC
    privacy_delta: Annotated[
        float,
        typer.Option(
            help=(
                "of central campaigns with Gaussian noise, and of training: delta of (epsilon, "
                "delta)-DP"
            )
        ),
    ] = 1e-6

    @property
    def names(self) -> list[str]:
        return self.campaigns.split()

    def check(self, given: list[str]) -> None:
        """Refuse options that none of the campaigns has."""
        if self.delta is not None:
            raise BadInput(FAILURE)
        only = {f"--{name}": owners for name, owners in belongs().items()}
        check_used(given, promising(self.names, self.guarantee), only)

    def config(self) -> dict[str, Any]:
        names = [field.name for field in fields(self) if field.name != "delta"]
        given = {name.replace("_", "-"): getattr(self, name) for name in names}
        files = {"provider-data": self.provider_data, "edges-file": self.edges_file}
        named = {name: str(path.resolve()) if path else "" for name, path in files.items()}
        return given | named
