"""`confide run`, `confide report` and `confide diff`: experiments as files, and their results."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from confide.protocol.commands.terminal import INTERRUPTED, check_installed, clear_errors
from confide.simulation.federation.interrupts import interrupts


def run_command(
    file: Annotated[Path, typer.Argument(help="the experiment, a TOML file: docs/experiments.md")],
    out: Annotated[
        Path | None,
        typer.Option(help="folder of the results [default: out/experiments/ and the file's name]"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="processes; 1 is this one, without Ray [default: one for each core]"),
    ] = None,
    *,
    ray_address: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a Ray cluster to run on [default: this machine]"),
    ] = None,
) -> None:
    """Run the trials of an experiment that have not run yet; started again, it continues."""
    with clear_errors():
        from confide.simulation.experiments.experiment import read_experiment
        from confide.simulation.experiments.results import RESULTS
        from confide.simulation.experiments.runner import Workers, packages, run_experiment

        check_installed("pyarrow")
        experiment = read_experiment(file)
        chosen = Workers(workers, ray_address)
        for package in packages(experiment, chosen):
            check_installed(package)
        folder = Path("out/experiments") / file.stem if out is None else out
        console = Console(stderr=True)
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        counted = [0, 0]
        with bar, interrupts() as told:
            task = bar.add_task("trials")

            def progress(done: int, asked: int) -> None:
                counted[:] = done, asked
                bar.update(task, completed=done, total=asked)

            try:
                with told.allowed():
                    ran = run_experiment(experiment, folder, workers=chosen, progress=progress)
            except KeyboardInterrupt:
                print(
                    f"interrupted: {counted[0]} of {counted[1]} trials are kept in {folder}; the "
                    "same command goes on",
                    file=sys.stderr,
                )
                raise typer.Exit(INTERRUPTED) from None
        print(f"{ran.finished} of {ran.asked} trials: {folder / RESULTS}")


def report_command(
    results: Annotated[Path, typer.Argument(help="folder of a `confide run`, or its Parquet file")],
    out: Annotated[
        Path | None, typer.Option(help="folder for the report [default: that of the results]")
    ] = None,
) -> None:
    """Show results as one HTML page, with pictures as PNG and PDF beside it."""
    with clear_errors():
        from confide.simulation.experiments.reports.report import write_report
        from confide.simulation.experiments.results import read_results

        check_installed("matplotlib")
        found = read_results(results)
        beside = results if results.is_dir() else results.parent
        print(f"report: {write_report(found, beside if out is None else out)}")


def diff_command(
    first: Annotated[Path, typer.Argument(metavar="A", help="results of a `confide run`")],
    second: Annotated[Path, typer.Argument(metavar="B", help="other results")],
) -> None:
    """Tell what differs between two results; exit code 1 if anything does."""
    with clear_errors():
        from confide.simulation.experiments.comparison import compared
        from confide.simulation.experiments.results import read_results

        found = compared(read_results(first), read_results(second))
        for line in found.lines:
            print(line)
        if not found.same:
            raise typer.Exit(1)
