"""`confide federation`: many data owners on this machine, each a node of a Flower simulation."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from confide.aggregator.campaigns.measurements import Measurements
from confide.aggregator.campaigns.planning.plans import check_delta_used
from confide.aggregator.campaigns.planning.run_plans import Plans, trains
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.aggregator.campaigns.summary import as_text, owners_text
from confide.protocol.cards.card import read_card
from confide.protocol.cards.page import as_html
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import headline
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import check_installed, clear_errors, columns
from confide.protocol.files import make_folder, write_whole
from confide.protocol.simulated.records import simulated_data
from confide.protocol.simulated.settings import SIMULATION_PUBLIC
from confide.simulation.defaults import run_defaults
from confide.simulation.evaluate.command import given_options
from confide.simulation.evaluate.table import INTERVAL_LEGEND, LEGEND
from confide.simulation.federation.campaign_options import CampaignOptions
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
        write_whole(path.with_suffix(".html"), as_html(card, findings))
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
