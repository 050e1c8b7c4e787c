"""The options of `confide evaluate` for labels, bits and central: the settings of campaigns."""

from dataclasses import dataclass
from typing import Annotated

import typer

from confide.aggregator.quantiles.registry import MECHANISMS, certified_names
from confide.protocol.certificate import BAND, MARGINAL, PAC
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.grids import GRID_NAMES, MIXED
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.options import CuratorOptions, SharedOptions, given_fields
from confide.simulation.evaluate.repeated import Repeated
from confide.simulation.evaluate.uncertified import Uncertified


@dataclass(frozen=True)
class CalibrationOptions:
    """Of labels, bits and central: settings of campaigns, whose defaults are those of campaigns."""

    channel: Annotated[
        str | None, typer.Option(help="labels: auto, k-rr, subset or unary [default: auto]")
    ] = None
    failure_probability: Annotated[
        float | None,
        typer.Option(help="labels, bits, PAC: probability that the promise fails [default: 0.1]"),
    ] = None
    max_corrupt: Annotated[
        int | None,
        typer.Option(
            help="labels, bits: reports that may be lies; the certificate is widened by their "
            "worst effect [default: 0]"
        ),
    ] = None
    largest_set: Annotated[
        int | None,
        typer.Option(
            help="labels certified, owners, groups: the largest set that counts [default: any, "
            "or 50 from 500 labels on]"
        ),
    ] = None
    joint: Annotated[
        bool | None,
        typer.Option("--joint", help="class-conditional, per-owner, -group: promise all at once"),
    ] = None
    class_floor: Annotated[
        int | None,
        typer.Option(
            help="class-conditional: records of a label, estimated, below which its "
            "threshold is 1 [default: 100]"
        ),
    ] = None
    guarantee: Annotated[
        str | None,
        typer.Option(
            help=f"{MARGINAL} (on average; default of central), {PAC} (of this calibration; "
            f"default of labels and bits) or {BAND} (so at many levels; labels, bits one-shot)"
        ),
    ] = None
    mechanism: Annotated[
        str | None, typer.Option(help=f"central trusted: {', '.join(MECHANISMS)}")
    ] = None
    grid: Annotated[
        str | None,
        typer.Option(
            help=f"central: how bins are spaced: {', '.join(GRID_NAMES)} [default: {MIXED}]"
        ),
    ] = None
    provider_data: Annotated[
        str | None,
        typer.Option(help="own records: thresholds even in size on them (labels, grid even)"),
    ] = None
    edges_file: Annotated[
        str | None, typer.Option(help="central, grid given: file with the thresholds")
    ] = None
    by: Annotated[str | None, typer.Option(help="central: class or group, a threshold of each")] = (
        None
    )
    group_column: Annotated[
        str | None,
        typer.Option(help="by group, per-group, for-every-group: column of --data, PUBLIC"),
    ] = None
    group_floor: Annotated[
        int | None,
        typer.Option(
            help="per-group, for-every-group: fewer reports leave a group out [by a rule]"
        ),
    ] = None
    owner_floor: Annotated[
        int | None,
        typer.Option(help="variants of owners: fewer reports leave one out [default: by the rule]"),
    ] = None
    smallest_owner: Annotated[
        int | None,
        typer.Option(help="bits certified: an owner of so many records can answer every round"),
    ] = None
    owner_column: Annotated[
        str | None,
        typer.Option(
            help="column of --data that names the owner of each record: for-every-owner and "
            "per-owner need it; coverage is shown owner by owner"
        ),
    ] = None
    owners: Annotated[
        int | None, typer.Option(help="central owner-noised: owners that share the records")
    ] = None

    def setting(self, shared: SharedOptions, curator: CuratorOptions, records: int) -> Repeated:
        """Campaigns have only mechanisms that certify; others are here to compare with."""
        given = given_fields(self) | curator.given
        given.pop("owner_column", None)
        if self.mechanism is not None:
            check_choice("mechanism", self.mechanism, MECHANISMS)
        if self.mechanism not in (None, *certified_names()):
            del given["mechanism"]
            strange = sorted(given.keys() - {"beta", "bins", "grid", "privacy_delta"})
            if strange:
                raise BadInput(
                    f"{self.mechanism} certifies nothing, and {', '.join(strange)} is given; "
                    f"accepted is a mechanism that does: {', '.join(certified_names())}"
                )
            return Uncertified(variant=str(self.mechanism), **given, **shared.repeated(records))
        return Calibrated(
            method=shared.method,
            variant=shared.asked_variant,
            settings=given,
            **shared.repeated(records),
        )
