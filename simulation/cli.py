"""`confide`: campaigns on this machine."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from confide.aggregator.campaigns.plans import make_plan
from confide.aggregator.campaigns.settings import BELONGS, FAILURE, check_used
from confide.aggregator.campaigns.summary import as_text, non_private
from confide.protocol.cards.card import read_card
from confide.protocol.cards.page import as_html, headline
from confide.protocol.cards.verify.card import verify
from confide.protocol.command_line import CommandLine
from confide.protocol.embedded import deal, predictions
from confide.protocol.errors import BadInput
from confide.protocol.methods.central import RELEASES
from confide.protocol.scores.registry import SCORES
from confide.protocol.simulated import ALWAYS, EMBEDDED_MODEL, SIMULATION_PUBLIC
from confide.protocol.terminal import INTERRUPTED, clear_errors, columns
from confide.simulation.data.population import embedded
from confide.simulation.evaluate.command import (
    Renamed,
    evaluate_command,
    given_options,
    run_all,
    show,
)
from confide.simulation.evaluate.local import Setting
from confide.simulation.federation import RunFailed, run_defaults
from confide.simulation.federation import federation as own_federation
from confide.simulation.report import write_report

DEMO_CAMPAIGNS = "labels:published-star labels:certified bits:published-star bits:certified"
LEGEND = (
    "promised: guaranteed coverage (PAC: but for the failure probability, over\n"
    "calibration; marginal: on average). trivial: campaigns that could certify no\n"
    "threshold and so predict every label. Smaller sets are better."
)

app = CommandLine(__doc__)


app.command("evaluate")(evaluate_command)


@app.command()
def compare(
    epsilon: Annotated[float, typer.Option(help="local privacy loss allowed a record")] = 2.0,
    trials: Annotated[int, typer.Option(help="repetitions, each with a fresh split")] = 10,
    seed: Annotated[int, typer.Option(help="of the splits and the simulated randomisers")] = 1,
) -> None:
    """Both local methods on the embedded data set, in process: no privacy, the published methods,
    and the certified ones."""
    with clear_errors():
        base = Setting(epsilon=epsilon, trials=trials, seed=seed)
        rows = [("labels", "non-private"), ("labels", "published-star"), ("labels", "certified")]
        rows += [("bits", "published-star"), ("bits", "certified"), ("bits", "one-shot")]
        results, complete = run_all(
            embedded(), [replace(base, method=method, variant=variant) for method, variant in rows]
        )
        show(results)
        print(LEGEND)
        if not complete:
            raise typer.Exit(INTERRUPTED)


@app.command()
def federation(
    context: typer.Context,
    nodes: Annotated[int, typer.Option(help="data owners, a Flower node each")] = 50,
    records: Annotated[
        int,
        typer.Option(
            help="calibration records in all; the rest of the embedded 16,000 is the test"
        ),
    ] = 10_000,
    campaigns: Annotated[
        str, typer.Option(help="method:variant, one after the other (labels, bits, central)")
    ] = DEMO_CAMPAIGNS,
    score: Annotated[str, typer.Option(help=", ".join(SCORES))] = "hps",
    epsilon: Annotated[
        float, typer.Option(help="local privacy loss allowed a record and campaign")
    ] = 2.0,
    alpha: Annotated[
        float, typer.Option(help="the promise is coverage of at least 1 - alpha")
    ] = 0.1,
    failure_probability: Annotated[
        float,
        typer.Option(help="labels, bits: probability, over calibration, that the promise fails"),
    ] = 0.1,
    delta: Renamed = None,
    mechanism: Annotated[
        str, typer.Option(help=f"of central:trusted: {', '.join(RELEASES['trusted'])}")
    ] = "rank-exponential",
    bins: Annotated[
        int, typer.Option(help="of central campaigns: thresholds to choose from")
    ] = 1024,
    beta: Annotated[
        float,
        typer.Option(help="of central campaigns: the part of alpha that is the mechanism's own"),
    ] = 0.002,
    privacy_delta: Annotated[
        float,
        typer.Option(
            help=(
                "of central campaigns with Gaussian noise, and of training: delta of (epsilon, "
                "delta)-DP"
            )
        ),
    ] = 1e-6,
    replacement: Annotated[
        bool,
        typer.Option(
            "--replacement",
            help="draw records with replacement: any number, and the test is all 16,000",
        ),
    ] = False,
    sizes: Annotated[
        str,
        typer.Option(
            help=(
                'relative sizes, repeated over the nodes: "1" is even, "1 1 10" makes every third '
                "node larger"
            )
        ),
    ] = "1",
    concentration: Annotated[
        float, typer.Option(help="Dirichlet skew of labels over nodes; 0 deals evenly")
    ] = 0.0,
    dropout: Annotated[float, typer.Option(help="share of nodes that never answer")] = 0.0,
    seed: Annotated[
        int, typer.Option(help="of dealing and randomisers; -1 draws from the operating system")
    ] = -1,
    out: Annotated[Path, typer.Option(help="folder for certificates, plot and report")] = Path(
        "out/federation"
    ),
) -> None:
    """A real Flower simulation of many data owners on the embedded data set; exit code 1 if the run
    fails."""
    with clear_errors():
        if delta is not None:
            raise BadInput(FAILURE)
        names = campaigns.split()
        check_used(
            given_options(context), names, {f"--{name}": owners for name, owners in BELONGS.items()}
        )
        if nodes < 1 or not 0 <= dropout < 1:
            raise BadInput(
                f"nodes is {nodes}, dropout {dropout}; accepted are at least 1 node and a dropout "
                "from 0 to below 1"
            )
        deal(
            predictions()[1],
            owners=nodes,
            records=records,
            sizes=sizes,
            concentration=concentration,
            replacement=replacement,
            seed=max(seed, 0),
        )
        given = {
            "campaigns": campaigns,
            "score": score,
            "model": EMBEDDED_MODEL.hex(),
            "epsilon": epsilon,
            "alpha": alpha,
            "failure-probability": failure_probability,
            "mechanism": mechanism,
            "bins": bins,
            "beta": beta,
            "privacy-delta": privacy_delta,
            "records": records,
            "replacement": replacement,
            "sizes": sizes,
            "concentration": concentration,
            "dropout": dropout,
            "seed": seed,
            "output": str(out.resolve()),
        }
        for name in names:
            make_plan(name, run_defaults() | given, title=name, valid=ALWAYS)
        plain = non_private(
            score=score, alpha=alpha, records=records, replacement=replacement, seed=seed
        )
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"cannot write into {out}: {error.strerror}; accepted is a folder of your own"
            ) from None
        for name in names:
            for kind in (".json", ".card.json"):
                (out / f"{name.replace(':', '-')}{kind}").unlink(missing_ok=True)
        try:
            found = run_federation(nodes=nodes, config=given, names=names, out=out)
        except RunFailed as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        rows = [plain, *(row for row in found if "threshold" in row)]
        about = (
            f"{nodes} nodes, {records:,} records dealt, embedded letters, score {score}, target "
            f"{1 - alpha:g}, failure "
            f"probability {failure_probability:g}."
        )
        page = write_report(out, rows, alpha=alpha, about=about)
        print(f"{about}\n\n{as_text(rows, width=columns())}\n\n{LEGEND}")
        for row in found:
            if "terms" in row:
                print(
                    f"trained: accuracy {row['accuracy']:.3f}, epsilon {row['epsilon']:.3f} at "
                    f"delta {row['delta']:g}"
                )
        for path in sorted(out.glob("*.card.json")):
            card = read_card(path)
            findings = verify(card, key=SIMULATION_PUBLIC)
            path.with_suffix(".html").write_text(as_html(card, findings))
            broken = [finding.clause for finding in findings if not finding.holds]
            holds = f"verified, {len(findings)} clauses hold. {headline(card)}"
            print(f"card: {path}: {f'FAILS {broken}' if broken else holds}")
        print(f"report: {page}")


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
