"""`confide variants`: both local methods beside no privacy."""

from dataclasses import replace
from typing import Annotated

import typer

from confide.protocol.commands.terminal import INTERRUPTED, clear_errors
from confide.simulation.data.population import embedded
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.command import run_all
from confide.simulation.evaluate.table import LEGEND, show


def variants_command(
    epsilon: Annotated[float, typer.Option(help="local privacy loss allowed a record")] = 2.0,
    trials: Annotated[int, typer.Option(help="repetitions, each with a fresh split")] = 10,
    seed: Annotated[int, typer.Option(help="of the splits and the simulated randomisers")] = 1,
) -> None:
    """Both local methods on the embedded data set, in process: no privacy, the published methods,
    and the certified ones."""
    with clear_errors():
        base = Calibrated(n=10_000, epsilon=epsilon, trials=trials, seed=seed)
        rows = [("labels", "non-private"), ("labels", "published-star"), ("labels", "certified")]
        rows += [("bits", "published-star"), ("bits", "certified"), ("bits", "one-shot")]
        results, complete = run_all(
            embedded(), [replace(base, method=method, variant=variant) for method, variant in rows]
        )
        show(results)
        print(LEGEND)
        if not complete:
            raise typer.Exit(INTERRUPTED)
