"""`confide advise`: which method to take, and what it costs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import clear_errors, columns
from confide.protocol.errors import BadInput
from confide.protocol.files import check_writable, write_whole
from confide.protocol.scores.registry import find_score
from confide.simulation.advice.advise import Advice, Option, advise
from confide.simulation.advice.curves import assumed
from confide.simulation.advice.question import BEST, ROUNDS, AdviceQuestion
from confide.simulation.advice.simulated import simulate
from confide.simulation.data.population import Predictions, predicted


@dataclass(frozen=True)
class AskedOptions:
    """The question."""

    records: Annotated[int, typer.Option(help="calibration records of all owners together")]
    alpha: Annotated[float, typer.Option(help="the promise is coverage of at least 1 - alpha")] = (
        0.1
    )
    failure_probability: Annotated[
        float, typer.Option(help="probability that the promise fails")
    ] = 0.1
    epsilon: Annotated[float | None, typer.Option(help="privacy loss allowed a record")] = None
    size: Annotated[
        float | None,
        typer.Option(
            help="mean set size wanted; without --epsilon, the least epsilon for it is taken"
        ),
    ] = None
    score: Annotated[str, typer.Option(help="best: the one with the smallest sets; or a name")] = (
        BEST
    )
    rounds: Annotated[int, typer.Option(help="rounds in which owners can be reached")] = ROUNDS
    owner_has_model: Annotated[
        bool, typer.Option("--owner-has-model", help="owners can score their records")
    ] = False
    features_may_leave: Annotated[
        bool,
        typer.Option(
            "--features-may-leave",
            help="features, or the model's probabilities for them, may leave in clear",
        ),
    ] = False
    trusted_aggregator: Annotated[
        bool,
        typer.Option("--trusted-aggregator", help="the aggregator may see exact counts"),
    ] = False

    @property
    def question(self) -> AdviceQuestion:
        return AdviceQuestion(**asdict(self))


@dataclass(frozen=True)
class CurveOptions:
    """The records that sizes are taken from."""

    classes: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1000,
            help="labels of a made-up model; without it and --data the embedded letters, 26 labels",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(help="your own npz, csv or parquet with label and probabilities p0, p1, ..."),
    ] = None

    @property
    def population(self) -> Predictions:
        if self.data is None:
            return assumed(self.classes)
        found = predicted(self.data, find_score("hps"))
        k = found.results.shape[1]
        if self.classes not in (None, k):
            raise BadInput(f"classes is {self.classes}; {self.data} has {k}, so accepted is {k}")
        return found


@dataclass(frozen=True)
class OutputOptions:
    """What is done besides the table."""

    simulated: Annotated[
        bool, typer.Option("--simulate", help="run campaigns on these records as well")
    ] = False
    trials: Annotated[int, typer.Option(min=1, help="campaigns a method with --simulate")] = 20
    seed: Annotated[int | None, typer.Option(help="repeatable campaigns")] = None
    picture: Annotated[
        Path | None, typer.Option(help="file for size against epsilon: .svg, .png or .pdf")
    ] = None
    json_file: Annotated[
        Path | None, typer.Option("--json", help="file for the advice as JSON")
    ] = None


@grouped
def advise_command(*, asked: AskedOptions, curve: CurveOptions, output: OutputOptions) -> None:
    """Which method should I take, and what does it cost? Expected set sizes of every method that
    your owners allow, from the laws of the procedures."""
    with clear_errors():
        question = asked.question
        if output.picture is not None:
            from confide.simulation.advice.picture import check_picture

            check_picture(output.picture)
        if output.json_file is not None:
            check_writable(output.json_file)
        population = curve.population
        if output.simulated and question.records >= len(population):
            raise BadInput(
                f"records is {question.records}; --simulate draws them from {population.name}, "
                f"which has {len(population)}, so accepted are fewer"
            )
        # Shown on a terminal only.
        with Console(stderr=True).status("computing what to expect"):
            advice = advise(population, question)
        if output.simulated:
            advice = _simulated(advice, population, output)
        show_advice(advice, made_up=curve.data is None)
        if output.picture is not None:
            from confide.simulation.advice.picture import write_picture

            write_picture(advice, population, output.picture)
        if output.json_file is not None:
            import json

            write_whole(output.json_file, json.dumps(asdict(advice), indent=2) + "\n")


def _simulated(advice: Advice, population: Predictions, output: OutputOptions) -> Advice:
    """Run campaigns behind a progress bar (on a terminal's standard error only)."""
    console = Console(stderr=True)
    count = output.trials * sum(option.refusal is None for option in advice.options)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("campaigns", total=count)
        return simulate(
            advice,
            population,
            trials=output.trials,
            seed=output.seed,
            progress=lambda: bar.advance(task),
        )


def show_advice(advice: Advice, *, made_up: bool) -> None:
    """Print the table, and below it why each method stands where it does."""
    asked, console = advice.asked, Console(width=columns() or 140)
    title = (
        f"{asked.records:,} records, {advice.labels} labels, coverage {1 - asked.alpha:g} (PAC), "
        f"epsilon {advice.epsilon:g}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    headings: dict[str, Callable[[Option], str]] = {
        "method": lambda one: one.method if one.refusal is None else f"({one.method})",
        "channel": lambda one: one.channel,
        "score": lambda one: one.score,
        "size": lambda one: f"{one.expected.size:.2f}",
        "coverage": lambda one: f"{one.expected.coverage:.3f}",
        "trivial": lambda one: f"{one.expected.trivial:.0%}",
        f"users for {advice.wanted:.2f}": lambda one: _number(one, one.records_needed),
        f"epsilon for {advice.wanted:.2f}": lambda one: _number(one, one.least_epsilon),
    }
    if any(one.simulated is not None for one in advice.options):
        headings["simulated"] = lambda one: "-" if one.simulated is None else f"{one.simulated:.2f}"
    for name in headings:
        table.add_column(
            name, justify="left" if name in ("method", "channel", "score") else "right"
        )
    for option in advice.options:
        table.add_row(*(cell(option) for cell in headings.values()))
    console.print(table)
    for line in _words(advice, made_up=made_up):
        console.print(line, highlight=False)


def _number(one: Option, value: Any) -> str:
    """A number that was sought; one that is not within reach; none for what is not allowed."""
    if one.refusal is not None:
        return "-"
    return "none" if value is None else f"{value:,g}" if value < 1 else f"{value:,}"


def _words(advice: Advice, *, made_up: bool) -> list[str]:
    lines = [f"{one.method}: {one.why}." for one in advice.options]
    best = advice.best
    if best is None:
        lines.insert(0, "No method is allowed.")
    else:
        lines.insert(0, f"Take {best.method} with score {best.score}.")
    source = f"Sizes are those of {advice.data}"
    lines.append(
        f"{source}: an assumption; --data FILE takes your own probabilities."
        if made_up
        else f"{source}."
    )
    lines.append(f"Without privacy sets hold {advice.plain:.2f} labels.")
    return lines
