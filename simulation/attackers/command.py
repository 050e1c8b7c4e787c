"""`confide attack`: what lies do to a certificate, and what can be learned of one record."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.terminal import clear_errors, columns
from confide.protocol.scores.registry import find_score
from confide.simulation.data.population import Predictions, embedded, predicted

attack = CommandLine(__doc__)

Data = Annotated[
    Path | None,
    typer.Option(help="npz, csv or parquet with label and p0, p1, ...; default: the embedded"),
]
Epsilon = Annotated[float, typer.Option(help="the epsilon that is claimed")]


@attack.command("lies")
def lies_command(
    kind: Annotated[
        str, typer.Argument(help="flipped, always-one, poisoned-label or colluding")
    ] = "colluding",
    *,
    method: Annotated[str, typer.Option(help="bits or labels")] = "bits",
    share: Annotated[float, typer.Option(help="share of the records that lies")] = 0.01,
    epsilon: Epsilon = 4.0,
    alpha: Annotated[float, typer.Option(help="the promise is coverage of 1 - alpha")] = 0.1,
    n: Annotated[int, typer.Option(help="records of a campaign, drawn from the data")] = 20_000,
    campaigns: Annotated[int, typer.Option(help="campaigns of each row")] = 20,
    seed: Annotated[int, typer.Option(help="of draws and randomisers")] = 0,
    data: Data = None,
) -> None:
    """True coverage of certified thresholds under lies, with and without max_corrupt."""
    from confide.simulation.advice.curves import curve_of
    from confide.simulation.attackers.poisoning import Attack, Attacked, compared

    with clear_errors():
        setting = Attacked(method=method, epsilon=epsilon, alpha=alpha, n=n)
        asked = Attack(kind, share, setting, campaigns=campaigns, seed=seed)
        rows = compared(asked, curve_of(_population(data), setting.score))
        title = f"{kind}: {asked.count:,} of {n:,} records lie, {campaigns} campaigns each"
        headings = ["liars", "max_corrupt", "below certified", "true coverage", "size", "trivial"]
        lines = [
            [
                f"{row.liars:,}",
                f"{row.max_corrupt:,}",
                f"{row.below} of {row.campaigns}",
                f"{row.coverage:.4f}",
                f"{row.size:.2f}",
                f"{row.trivial:.0%}",
            ]
            for row in rows
        ]
        _show(title, headings, lines)


@attack.command("wire")
def wire_command(
    kind: Annotated[str, typer.Argument(help="replay, invented or poisoned")] = "replay",
    *,
    method: Annotated[str, typer.Option(help="bits or labels, with a variant")] = "bits:one-shot",
    epsilon: Epsilon = 4.0,
    n: Annotated[int, typer.Option(help="records of four owners")] = 4_000,
    times: Annotated[
        float, typer.Option(help="invented: the records of the owner's file, to those it has")
    ] = 8.0,
    max_corrupt: Annotated[int, typer.Option(help="lies that the certificate allows for")] = 0,
    seed: Annotated[int, typer.Option(help="of the records and randomisers")] = 0,
    data: Data = None,
) -> None:
    """One of four owners attacks a campaign through client, wire format and admission."""
    from confide.simulation.attackers.wire import HONEST, Wired

    with clear_errors():
        wired = Wired(_population(data), method, epsilon, n, seed, times, max_corrupt)
        lines = []
        for name in (HONEST, kind):
            outcome = wired.run(name)
            made = outcome.certificate
            codes = ", ".join(f"{code} {count}" for code, count in sorted(outcome.received.items()))
            lines.append(
                [
                    name,
                    codes,
                    f"{made.n:,}",
                    f"{outcome.largest:,}",
                    f"{made.threshold:.6f}",
                    f"{wired.coverage(made.threshold):.4f}",
                ]
            )
        headings = ["campaign", "answers", "reports counted", "of the largest owner", "threshold"]
        headings += ["true coverage"]
        _show(f"{method}: {n:,} records of four owners", headings, lines)


@attack.command("inference")
def inference_command(
    target: Annotated[
        str, typer.Argument(help="bits, labels, counts, noised, weights or cards")
    ] = "bits",
    *,
    epsilon: Epsilon = 1.0,
    runs: Annotated[int, typer.Option(help="releases that are watched")] = 20_000,
    noise: Annotated[
        float, typer.Option(help="part of the noise that is drawn; below 1 plants a bug")
    ] = 1.0,
    false_alarm: Annotated[float, typer.Option(help="chance that a bound is wrong")] = 1e-4,
    seed: Annotated[
        int | None, typer.Option(help="repeatable noise; default: the operating system's")
    ] = None,
) -> None:
    """A lower bound on epsilon by telling neighbours apart; status 1 if it is above the claim."""
    from confide.protocol.exact.sampling import SeededEntropy, os_entropy
    from confide.simulation.attackers.inference import infer

    with clear_errors():
        entropy: Any = os_entropy if seed is None else SeededEntropy("inference", seed)
        found = infer(
            target,
            epsilon=epsilon,
            runs=runs,
            entropy=entropy,
            noise=noise,
            false_alarm=false_alarm,
        )
        bound = f"epsilon is at least {found.lower:.3f}"
        if found.assumed is not None:
            bound += f" ({found.assumed:.3f} if the noise is Gaussian)"
        print(
            f"{target}: {bound} at delta {found.delta:g}, except with probability "
            f"{false_alarm:g}; claimed: {epsilon:g}"
        )
        if found.exceeds:
            print("More is learned than the claim allows.")
            raise typer.Exit(1)


def _population(data: Path | None) -> Predictions:
    return embedded() if data is None else predicted(data, find_score("hps"))


def _show(title: str, headings: list[str], lines: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for line in lines:
        table.add_row(*line)
    Console(width=columns() or 140).print(table)
