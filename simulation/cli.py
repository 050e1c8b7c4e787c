"""`confide`: campaigns on this machine."""

from dataclasses import replace
from typing import Annotated

import typer

from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.terminal import INTERRUPTED, clear_errors
from confide.simulation.advice.command import advise_command
from confide.simulation.attackers.command import attack
from confide.simulation.data.population import embedded
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.command import evaluate_command, run_all
from confide.simulation.evaluate.table import LEGEND, show
from confide.simulation.experiments.command import diff_command, report_command, run_command
from confide.simulation.federation.command import federation_command
from confide.simulation.predict_command import predict_command
from confide.simulation.reproduce.command import reproduce_command
from confide.simulation.scale.command import scale_command

app = CommandLine(__doc__)
app.command("evaluate")(evaluate_command)


@app.command("variants")
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


app.command("advise")(advise_command)
app.add_typer(attack, name="attack")
app.command("federation")(federation_command)
app.command("predict")(predict_command)
app.command("run")(run_command)
app.command("report")(report_command)
app.command("diff")(diff_command)
app.command("scale")(scale_command)
app.command("reproduce")(reproduce_command)
