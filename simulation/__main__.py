"""`python -m simulation`: campaigns on this machine."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from aggregator.plans import make_plan
from aggregator.summary import as_text, non_private
from protocol.campaign import RELEASES
from protocol.card import read_card
from protocol.card_page import as_html
from protocol.embedded import deal, predictions
from protocol.errors import BadInput
from protocol.simulated import SIMULATION_PUBLIC
from protocol.terminal import INTERRUPTED, clear_errors
from protocol.verify import verify
from simulation.evaluate import Setting, evaluate, write_json
from simulation.federation import RunFailed, run_defaults
from simulation.federation import federation as own_federation
from simulation.population import Population, embedded, from_npz
from simulation.report import write_report

DEMO_CAMPAIGNS = "labels:published-star labels:certified bits:published-star bits:certified"
LEGEND = (
    "promised: guaranteed coverage (PAC: with probability 1 - delta over calibration; marginal: on average).\n"
    "trivial: campaigns that could certify no threshold and so predict every label. Smaller sets are better."
)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, help=__doc__
)


def _load(data: Path | None) -> Population:
    return embedded() if data is None else from_npz(data)


def _run(population: Population, settings: list[Setting]) -> tuple[list[dict[str, Any]], bool]:
    """Evaluate each setting behind one progress bar (on a terminal's standard error only)."""
    console = Console(stderr=True)
    results, complete = [], True
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("campaigns", total=sum(setting.trials for setting in settings))
        for setting in settings:
            bar.update(task, description=f"{setting.method} {setting.variant}")
            result, complete = evaluate(population, setting, progress=lambda: bar.advance(task))
            results.append(result)
            if not complete:
                print(f"interrupted: {len(result['trials'])} of {setting.trials} trials are kept", file=sys.stderr)
                break
    return results, complete


def _console() -> Console:
    """Standard output; wide enough for the table where it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def _table(results: list[dict[str, Any]]) -> Table:
    table = Table(title=_title(results[0]["arguments"]), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("method", "channel", "exact epsilon", "promised", "test coverage", "mean set size", "trivial"):
        table.add_column(heading, justify="left" if heading in ("method", "channel") else "right", no_wrap=True)
    for result in results:
        given, mean, std = result["arguments"], result["mean"], result["std"]
        private = given["channel"] is not None
        table.add_row(
            f"{given['method']} {given['variant']}" if private else "non-private",
            given["channel"] or "-",
            f"{given['exact_epsilon']:.4f}" if private else "-",
            f"{mean['certified_level']:.3f} {given['kind']}",
            f"{mean['coverage']:.3f} ± {std['coverage']:.3f}",
            f"{mean['mean_size']:.2f} ± {std['mean_size']:.2f}",
            f"{100 * mean['trivial']:.0f} %",
        )
    return table


def _title(given: dict[str, Any]) -> str:
    return (
        f"{given['data']}, {given['labels']} labels, score {given['score']}: n = {given['n']}, "
        f"alpha = {given['alpha']}, delta = {given['delta']}, {given['trials']} trials, randomness: {given['randomness']}"
    )


@app.command("evaluate")
def evaluate_command(
    data: Annotated[
        Path | None, typer.Option(help="npz with probs (n, K) and labels (n,); default: the embedded data set")
    ] = None,
    method: Annotated[str, typer.Option(help="labels: private labels, features in clear; bits: both private")] = "labels",
    variant: Annotated[
        str, typer.Option(help="certified, published, published-star, one-shot (bits only) or non-private")
    ] = "certified",
    channel: Annotated[str, typer.Option(help="auto, k-rr, subset or unary (method labels)")] = "auto",
    score: Annotated[str, typer.Option(help="hps, aps, aps-randomized, raps, saps or top-k")] = "hps",
    epsilon: Annotated[float, typer.Option(help="local privacy loss allowed a record")] = 1.0,
    alpha: Annotated[float, typer.Option(help="the promise is coverage of at least 1 - alpha")] = 0.1,
    delta: Annotated[float, typer.Option(help="probability, over calibration, that the promise may fail")] = 0.1,
    n: Annotated[int | None, typer.Option(help="calibration records; the rest is the test [default: half]")] = None,
    trials: Annotated[int, typer.Option(help="repetitions, each with a fresh split")] = 20,
    seed: Annotated[
        int | None, typer.Option(help="repeatable randomness, stamped as such; default: the operating system's")
    ] = None,
    max_corrupt: Annotated[
        int, typer.Option(help="reports that may be lies; the certificate is widened by their worst effect")
    ] = 0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="write the result as JSON; - prints only JSON")
    ] = None,
) -> None:
    """What would this cost me? Coverage and set sizes of one method on your records, over repeated splits."""
    with clear_errors():
        if json_file not in (None, "-") and not Path(str(json_file)).parent.is_dir():
            raise BadInput(f"cannot write {json_file}: its folder does not exist")
        population = _load(data)
        setting = Setting(
            method=method, variant=variant, channel=channel, score=score, epsilon=epsilon, alpha=alpha, delta=delta,
            n=len(population) // 2 if n is None else n, trials=trials, seed=seed, max_corrupt=max_corrupt,
        )  # fmt: skip
        (result,), complete = _run(population, [setting])
        if json_file == "-":
            print(json.dumps(result, indent=2, allow_nan=False))
        else:
            if json_file is not None:
                write_json(result, Path(json_file))
            _console().print(_table([result]))
        if not complete:
            raise typer.Exit(INTERRUPTED)


@app.command()
def compare(
    epsilon: Annotated[float, typer.Option(help="local privacy loss allowed a record")] = 2.0,
    trials: Annotated[int, typer.Option(help="repetitions, each with a fresh split")] = 10,
    seed: Annotated[int, typer.Option(help="of the splits and the simulated randomisers")] = 1,
) -> None:
    """Both local methods on the embedded data set, in process: no privacy, the published methods, and the certified ones."""
    with clear_errors():
        base = Setting(epsilon=epsilon, trials=trials, seed=seed)
        rows = [("labels", "non-private"), ("labels", "published-star"), ("labels", "certified")]
        rows += [("bits", "published-star"), ("bits", "certified"), ("bits", "one-shot")]
        results, complete = _run(embedded(), [replace(base, method=method, variant=variant) for method, variant in rows])
        console = _console()
        console.print(_table(results))
        console.print(LEGEND)
        if not complete:
            raise typer.Exit(INTERRUPTED)


@app.command()
def federation(
    nodes: Annotated[int, typer.Option(help="data owners, a Flower node each")] = 50,
    records: Annotated[
        int, typer.Option(help="calibration records in all; the rest of the embedded 16,000 is the test")
    ] = 10_000,
    campaigns: Annotated[
        str, typer.Option(help="method:variant, one after the other (labels, bits, central)")
    ] = DEMO_CAMPAIGNS,
    score: Annotated[str, typer.Option(help="hps, aps, aps-randomized, raps, saps or top-k")] = "hps",
    epsilon: Annotated[float, typer.Option(help="local privacy loss allowed a record and campaign")] = 2.0,
    alpha: Annotated[float, typer.Option(help="the promise is coverage of at least 1 - alpha")] = 0.1,
    delta: Annotated[float, typer.Option(help="probability, over calibration, that the promise may fail")] = 0.1,
    mechanism: Annotated[str, typer.Option(help=f"of central:trusted: {', '.join(RELEASES['trusted'])}")] = "rank-exponential",
    bins: Annotated[int, typer.Option(help="of central campaigns: thresholds to choose from")] = 1024,
    beta: Annotated[float, typer.Option(help="of central campaigns: the part of alpha that is the mechanism's own")] = 0.002,
    privacy_delta: Annotated[float, typer.Option(help="of central campaigns with Gaussian noise: delta")] = 1e-6,
    replacement: Annotated[
        bool, typer.Option("--replacement", help="draw records with replacement: any number, and the test is all 16,000")
    ] = False,
    sizes: Annotated[
        str, typer.Option(help='relative sizes, repeated over the nodes: "1" is even, "1 1 10" makes every third node larger')
    ] = "1",
    concentration: Annotated[float, typer.Option(help="Dirichlet skew of labels over nodes; 0 deals evenly")] = 0.0,
    dropout: Annotated[float, typer.Option(help="share of nodes that never answer")] = 0.0,
    seed: Annotated[int, typer.Option(help="of dealing and randomisers; -1 draws from the operating system")] = -1,
    out: Annotated[Path, typer.Option(help="folder for certificates, plot and report")] = Path("out/federation"),
) -> None:
    """A real Flower simulation of many data owners on the embedded data set; exit code 1 if the run fails."""
    with clear_errors():
        if nodes < 1 or not 0 <= dropout < 1:
            raise BadInput(f"nodes is {nodes}, dropout {dropout}; accepted are at least 1 node and a dropout from 0 to below 1")
        deal(
            predictions()[1], owners=nodes, records=records, sizes=sizes, concentration=concentration, replacement=replacement,
            seed=max(seed, 0),
        )  # fmt: skip
        names = campaigns.split()
        given = {
            "campaigns": campaigns, "score": score, "epsilon": epsilon, "alpha": alpha, "delta": delta, "mechanism": mechanism,
            "bins": bins, "beta": beta, "privacy-delta": privacy_delta, "records": records, "replacement": replacement,
            "sizes": sizes, "concentration": concentration, "dropout": dropout, "seed": seed, "output": str(out.resolve()),
        }  # fmt: skip
        for name in names:
            make_plan(name, run_defaults() | given, title=name)
        plain = non_private(score=score, alpha=alpha, records=records, replacement=replacement, seed=seed)
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write into {out}: {error.strerror}; accepted is a folder of your own") from None
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
            f"{nodes} nodes, {records:,} records dealt, embedded letters, score {score}, target {1 - alpha:g}, delta {delta:g}."
        )
        page = write_report(out, rows, alpha=alpha, about=about)
        print(f"{about}\n\n{as_text(rows)}\n\n{LEGEND}")
        for row in found:
            if "terms" in row:
                print(f"trained: accuracy {row['accuracy']:.3f}, epsilon {row['epsilon']:.3f} at delta {row['delta']:g}")
        for path in sorted(out.glob("*.card.json")):
            card = read_card(path)
            findings = verify(card, key=SIMULATION_PUBLIC)
            path.with_suffix(".html").write_text(as_html(card, findings))
            broken = [finding.clause for finding in findings if not finding.holds]
            print(f"card: {path}: {f'FAILS {broken}' if broken else f'verified, {len(findings)} clauses hold'}")
        print(f"report: {page}")


def run_federation(*, nodes: int, config: dict[str, Any], names: list[str], out: Path) -> list[dict[str, Any]]:
    """Run all campaigns over Flower behind a progress bar that counts those that ended."""
    files = [out / f"{name.replace(':', '-')}.json" for name in names]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar, own_federation() as flower:
        task = bar.add_task(f"{nodes} Flower nodes", total=len(files))
        flower.run(nodes=nodes, config=config, tick=lambda: bar.update(task, completed=sum(file.exists() for file in files)))
    return [json.loads(file.read_text()) for file in files]


if __name__ == "__main__":
    app(prog_name="python -m simulation")
