"""`confide federation`: many data owners on this machine, each a node of a Flower simulation."""

import json
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from confide.aggregator.campaigns.measurements import Measurements
from confide.aggregator.campaigns.planning.plans import check_delta_used
from confide.aggregator.campaigns.planning.run_plans import Plans, trains
from confide.aggregator.campaigns.planning.settings import (
    FAILURE,
    belongs,
    check_used,
    promising,
    read_bins,
)
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.aggregator.campaigns.summary import as_text, owners_text
from confide.aggregator.quantiles.registry import certified_names
from confide.protocol.cards.card import read_card
from confide.protocol.cards.in_words import headline
from confide.protocol.cards.page import as_html
from confide.protocol.cards.verify.card import verify
from confide.protocol.certificate import BAND, MARGINAL, PAC
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import check_installed, clear_errors, columns
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import GRID_NAMES, MIXED
from confide.protocol.files import make_folder
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.labels.terms import CLASS_FLOOR
from confide.protocol.methods.owner_terms import AS_ANSWERED, MIXTURES
from confide.protocol.simulated.records import simulated_data
from confide.protocol.simulated.settings import SIMULATION_PUBLIC
from confide.simulation.defaults import run_defaults
from confide.simulation.evaluate.command import given_options
from confide.simulation.evaluate.options import Renamed
from confide.simulation.evaluate.table import INTERVAL_LEGEND, LEGEND
from confide.simulation.federation.chain_options import CHAIN, TrainingOptions
from confide.simulation.federation.findings import reached
from confide.simulation.federation.harness import RunFailed
from confide.simulation.federation.harness import federation as own_federation
from confide.simulation.federation.owner_options import OwnerOptions
from confide.simulation.federation.report import write_report
from confide.simulation.federation.sample_predictions import sample_predictions

# Rows of the table of owners that are printed; the report has all.
MOST_OWNERS = 40
OWNERS = (
    "By owner, on its test records at the published threshold: coverage / {size}. A\n"
    "diagnostic of this simulation: the promise is for all records together, not for each owner."
)
OF_PARTS = (
    "By owner, on its test records at the published threshold, or at its own if it has one:\n"
    "coverage / {size}. A diagnostic of this simulation; cards say whom a promise is for."
)
DEMO_CAMPAIGNS = "labels:published-star labels:certified bits:published-star bits:certified"


@dataclass(frozen=True)
class CampaignOptions:
    """The terms of the campaigns."""

    campaigns: Annotated[
        str,
        typer.Option(help="method:variant, one after the other (labels, bits, central, full-data)"),
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
        typer.Option(help="labels, bits, PAC: probability, over calibration, that it fails"),
    ] = 0.1
    delta: Renamed = None
    by: Annotated[str, typer.Option(help="central: class or group, for a threshold of each")] = ""
    groups: Annotated[
        str, typer.Option(help="values of --group-column, as A,B,C [those of the file]")
    ] = ""
    group_floor: Annotated[
        int, typer.Option(help="fewer reports leave a group out; 0: by a rule")
    ] = 0
    owner_floor: Annotated[
        int, typer.Option(help="variants of owners: fewer reports leave one out; 0: by a rule")
    ] = 0
    joint: Annotated[
        bool,
        typer.Option("--joint", help="class-conditional, per-owner, -group: promise all at once"),
    ] = False
    class_floor: Annotated[
        int, typer.Option(help="class-conditional: fewer records of a label give it threshold 1")
    ] = CLASS_FLOOR
    mixture: Annotated[
        str, typer.Option(help=f"bits:certified: of owners, {' or '.join(MIXTURES)} (first round)")
    ] = AS_ANSWERED
    smallest_owner: Annotated[
        int, typer.Option(help="bits:certified: rounds that an owner of so many records can answer")
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
        str, typer.Option(help=f"of central campaigns: how those lie: {', '.join(GRID_NAMES)}")
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
            help=f"{MARGINAL} (on average; central), {PAC} (labels, bits) or {BAND} (labels, "
            "one-shot bits); auto: that of the method"
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


@grouped
def federation_command(
    context: typer.Context,
    *,
    owners: OwnerOptions,
    asked: CampaignOptions,
    training: TrainingOptions,
    out: Annotated[Path, typer.Option(help="folder for certificates, plot and report")] = Path(
        "out/federation"
    ),
) -> None:
    """A real Flower simulation of many data owners, on the embedded data set or on a file of your
    own; exit code 1 if the run fails."""
    # Said before a federation runs for minutes; no other command needs these.
    for package in ("flwr", "psutil", "matplotlib", "ray"):
        check_installed(package)
    with clear_errors():
        written = given_options(context)
        if training.chain and "--campaigns" not in written:
            asked = replace(asked, campaigns=CHAIN)
        asked.check(written)
        nodes = owners.owners()
        config = asked.config() | owners.config() | training.config()
        config |= {"output": str(out.resolve())}
        # Refused here, and not by a run that has begun.
        settings, model = simulated_settings(run_defaults() | config, owners=nodes)
        plans = Plans(settings, run=0, owners=nodes)
        given = asked.privacy_delta if "--privacy-delta" in written else None
        check_delta_used(given, plans.drafts)
        chain = bool(config.get("train-share"))
        plain, measured = [], None
        if not chain and not all(map(trains, asked.names)):
            measured = Measurements(settings, owners=nodes, model=model)
            plain = [measured.non_private(alpha=asked.alpha)]
        _clear(out, asked.names)
        try:
            found = run_federation(nodes=nodes, config=config, names=asked.names, out=out)
        except RunFailed as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        about = (
            f"{nodes} nodes, {settings['records']:,} records dealt, "
            f"{simulated_data(settings).name}, score "
            f"{asked.score}, target {1 - asked.alpha:g}, failure probability "
            f"{asked.failure_probability:g}."
        )
        rows = [*plain, *(row for row in found if "threshold" in row)]
        page = write_report(out, [*plain, *found], alpha=asked.alpha, about=about)
        if rows:
            legend = INTERVAL_LEGEND if "mean_width" in rows[0] else LEGEND
            print(f"{about}\n\n{as_text(rows, width=columns())}\n\n{legend}")
        if rows and owners.data is not None:
            _print_owners(rows)
        _print_trained(found)
        _verify_cards(out)
        if measured is not None:
            names = ascii_uppercase if owners.data is None else None
            named = bytes.fromhex(str(settings["model"]))
            print(sample_predictions(out, *measured.few(3), model=named, names=names))
        print(f"report: {page}")


def _clear(out: Path, names: list[str]) -> None:
    """Make the folder, and remove the results of an earlier run of these campaigns from it."""
    make_folder(out)
    for name in names:
        for kind in (".json", ".card.json"):
            (out / f"{name.replace(':', '-')}{kind}").unlink(missing_ok=True)


def _print_owners(rows: list[dict[str, Any]]) -> None:
    """Print what was measured of each owner."""
    shown = owners_text(rows, width=columns(), most=MOST_OWNERS)
    size = "mean width" if "mean_width" in rows[0] else "mean set size"
    said = OF_PARTS if any(row.get("strata") for row in rows) else OWNERS
    print(f"\n{said.format(size=size)}\n\n{shown}\n")


def _print_trained(rows: list[dict[str, Any]]) -> None:
    """Print what each training reached, and its cost."""
    for row in rows:
        if "terms" in row:
            print(
                f"trained: {reached(row)}, epsilon {row['epsilon']:.3f} at delta {row['delta']:g}"
            )


def _verify_cards(out: Path) -> None:
    """Verify every card in the folder, print the finding, and write the card as a page."""
    for path in sorted(out.glob("*.card.json")):
        card = read_card(path)
        findings = verify(card, key=SIMULATION_PUBLIC)
        path.with_suffix(".html").write_text(as_html(card, findings))
        broken = [finding.clause for finding in findings if not finding.holds]
        holds = f"verified, {len(findings)} clauses hold. {headline(card)}"
        print(f"card: {path}: {f'FAILS {broken}' if broken else holds}")


def run_federation(
    *, nodes: int, config: dict[str, Any], names: list[str], out: Path
) -> list[dict[str, Any]]:
    """Run all campaigns over Flower behind a progress bar that counts those that ended."""
    files = [out / f"{name.replace(':', '-')}.json" for name in names]
    console = Console(stderr=True)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
        own_federation() as flower,
    ):
        task = bar.add_task(f"{nodes} Flower nodes", total=len(files))
        flower.run(
            nodes=nodes,
            config=config,
            tick=lambda: bar.update(task, completed=sum(file.exists() for file in files)),
        )
    return [json.loads(file.read_text()) for file in files]
