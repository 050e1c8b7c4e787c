"""`confide federation`: many data owners on this machine, each a node of a Flower simulation."""

import json
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from confide.aggregator.campaigns.plans import check_delta_used
from confide.aggregator.campaigns.run_plans import Plans
from confide.aggregator.campaigns.settings import FAILURE, belongs, check_used
from confide.aggregator.campaigns.summary import as_text, non_private
from confide.aggregator.quantiles.registry import certified_names
from confide.protocol.cards.card import read_card
from confide.protocol.cards.in_words import headline
from confide.protocol.cards.page import as_html
from confide.protocol.cards.verify.card import verify
from confide.protocol.embedded import deal, predictions
from confide.protocol.errors import BadInput
from confide.protocol.files import make_folder
from confide.protocol.option_groups import grouped
from confide.protocol.simulated import EMBEDDED_MODEL, SIMULATION_PUBLIC
from confide.protocol.terminal import clear_errors, columns
from confide.simulation.chain_options import CHAIN, TrainingOptions
from confide.simulation.evaluate.command import given_options
from confide.simulation.evaluate.options import Renamed
from confide.simulation.evaluate.table import LEGEND
from confide.simulation.federation import RunFailed, run_defaults
from confide.simulation.federation import federation as own_federation
from confide.simulation.report import write_report

DEMO_CAMPAIGNS = "labels:published-star labels:certified bits:published-star bits:certified"


@dataclass(frozen=True)
class OwnerOptions:
    """How many owners there are, and which of the embedded records each of them gets."""

    nodes: Annotated[int, typer.Option(help="data owners, a Flower node each")] = 50
    records: Annotated[
        int,
        typer.Option(
            help="calibration records in all; the rest of the embedded 16,000 is the test"
        ),
    ] = 10_000
    replacement: Annotated[
        bool,
        typer.Option(
            "--replacement",
            help="draw records with replacement: any number, and the test is all 16,000",
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
    dropout: Annotated[float, typer.Option(help="share of nodes that never answer")] = 0.0
    seed: Annotated[
        int, typer.Option(help="of dealing and randomisers; -1 draws from the operating system")
    ] = -1

    def check(self) -> None:
        """Refuse owners that cannot be dealt records."""
        if self.nodes < 1 or not 0 <= self.dropout < 1:
            raise BadInput(
                f"nodes is {self.nodes}, dropout {self.dropout}; accepted are at least 1 node and "
                "a dropout from 0 to below 1"
            )
        deal(
            predictions()[1],
            owners=self.nodes,
            records=self.records,
            sizes=self.sizes,
            concentration=self.concentration,
            replacement=self.replacement,
            seed=max(self.seed, 0),
        )

    def config(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "nodes"}


@dataclass(frozen=True)
class CampaignOptions:
    """The terms of the campaigns."""

    campaigns: Annotated[
        str,
        typer.Option(help="method:variant, one after the other (labels, bits, central, full-data)"),
    ] = DEMO_CAMPAIGNS
    score: Annotated[str, typer.Option(help="hps, aps, aps-randomized, raps, saps or top-k")] = (
        "hps"
    )
    epsilon: Annotated[
        float, typer.Option(help="local privacy loss allowed a record and campaign")
    ] = 2.0
    alpha: Annotated[float, typer.Option(help="the promise is coverage of at least 1 - alpha")] = (
        0.1
    )
    failure_probability: Annotated[
        float,
        typer.Option(help="labels, bits: probability, over calibration, that the promise fails"),
    ] = 0.1
    delta: Renamed = None
    mechanism: Annotated[
        str, typer.Option(help=f"of central:trusted: {', '.join(certified_names())}")
    ] = "rank-exponential"
    bins: Annotated[int, typer.Option(help="of central campaigns: thresholds to choose from")] = (
        1024
    )
    beta: Annotated[
        float,
        typer.Option(help="of central campaigns: the part of alpha that is the mechanism's own"),
    ] = 0.002
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
        check_used(given, self.names, {f"--{name}": owners for name, owners in belongs().items()})

    def config(self) -> dict[str, Any]:
        names = [field.name for field in fields(self) if field.name != "delta"]
        return {name.replace("_", "-"): getattr(self, name) for name in names}


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
    """A real Flower simulation of many data owners on the embedded data set; exit code 1 if the run
    fails."""
    with clear_errors():
        written = given_options(context)
        if training.chain and "--campaigns" not in written:
            asked = replace(asked, campaigns=CHAIN)
        asked.check(written)
        owners.check()
        config = asked.config() | owners.config() | training.config()
        config |= {"model": EMBEDDED_MODEL.hex(), "output": str(out.resolve())}
        plans = Plans(run_defaults() | config, run=0)
        given = asked.privacy_delta if "--privacy-delta" in written else None
        check_delta_used(given, plans.drafts)
        plain = non_private(
            score=asked.score,
            alpha=asked.alpha,
            records=owners.records,
            replacement=owners.replacement,
            seed=owners.seed,
        )
        _clear(out, asked.names)
        try:
            found = run_federation(nodes=owners.nodes, config=config, names=asked.names, out=out)
        except RunFailed as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        about = (
            f"{owners.nodes} nodes, {owners.records:,} records dealt, embedded letters, score "
            f"{asked.score}, target {1 - asked.alpha:g}, failure probability "
            f"{asked.failure_probability:g}."
        )
        rows = [row for row in found if "threshold" in row]
        if not config.get("train-share"):
            rows = [plain, *rows]
        page = write_report(out, rows, alpha=asked.alpha, about=about)
        print(f"{about}\n\n{as_text(rows, width=columns())}\n\n{LEGEND}")
        _print_trained(found)
        _verify_cards(out)
        print(f"report: {page}")


def _clear(out: Path, names: list[str]) -> None:
    """Make the folder, and remove the results of an earlier run of these campaigns from it."""
    make_folder(out)
    for name in names:
        for kind in (".json", ".card.json"):
            (out / f"{name.replace(':', '-')}{kind}").unlink(missing_ok=True)


def _print_trained(rows: list[dict[str, Any]]) -> None:
    """Print what each training reached, and its cost."""
    for row in rows:
        if "terms" in row:
            print(
                f"trained: accuracy {row['accuracy']:.3f}, epsilon {row['epsilon']:.3f} at delta "
                f"{row['delta']:g}"
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
