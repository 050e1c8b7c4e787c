"""`confide evaluate`: what a method would cost on one's own records."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress

from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import INTERRUPTED, clear_errors, printable
from confide.protocol.files import check_writable
from confide.protocol.scores.registry import find_score
from confide.protocol.simulated.settings import SIMULATION_KEY
from confide.simulation.advice.hint import hint
from confide.simulation.data.population import lessons, predicted
from confide.simulation.evaluate.calibration_options import CalibrationOptions
from confide.simulation.evaluate.full_data.options import FullDataOptions, ModelOptions
from confide.simulation.evaluate.options import (
    CuratorOptions,
    SharedOptions,
)
from confide.simulation.evaluate.repeated import Repeated, run_trials, write_json
from confide.simulation.evaluate.table import show


def given_options(context: typer.Context) -> list[str]:
    """The options that stand on the command line, by their long names."""
    written = ParameterSource.COMMANDLINE
    return [
        one.opts[0]
        for one in context.command.params
        if context.get_parameter_source(one.name or "") == written
    ]


def run_all(records: Any, settings: list[Any]) -> tuple[list[dict[str, Any]], bool]:
    """Evaluate each setting behind one progress bar (on a terminal's standard error only)."""
    console = Console(stderr=True)
    results, complete = [], True
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("trials", total=sum(setting.trials for setting in settings))
        for setting in settings:
            bar.update(task, description=f"{setting.method} {setting.variant}")
            result, complete = run_trials(records, setting, progress=lambda: bar.advance(task))
            results.append(result)
            if not complete:
                print(
                    f"interrupted: {len(result['trials'])} of {setting.trials} trials are kept",
                    file=sys.stderr,
                )
                break
    return results, complete


@grouped
def evaluate_command(
    context: typer.Context,
    *,
    shared: SharedOptions,
    calibration: CalibrationOptions,
    curator: CuratorOptions,
    full_data: FullDataOptions,
    model: ModelOptions,
) -> None:
    """What would this cost me? Coverage and set sizes of one method on your records, over repeated
    splits."""
    with clear_errors():
        given = given_options(context)
        shared.check(given, guarantee=calibration.guarantee)
        model.check(shared, given)
        full_data.check(shared, model)
        for file in (full_data.card_file, shared.json_file):
            if file not in (None, "-"):
                check_writable(Path(str(file)))
        records: Any
        setting: Repeated
        if shared.on_training_records:
            records = lessons(
                shared.data,
                shared.asked_task,
                bound=shared.residual_range,
                limits=full_data.limits,
            )
            setting = full_data.setting(shared, curator, model, records=len(records))
        else:
            score = find_score(shared.asked_score)
            records = predicted(
                shared.data,
                score,
                owner_column=calibration.owner_column or "",
                group_column=calibration.group_column or "",
            )
            _say_ignored(records.ignored)
            setting = calibration.setting(shared, curator, len(records))
        (result,), complete = run_all(records, [setting])
        result["advice"] = hint(records, result) if complete else None
        _write(result, shared.json_file)
        if full_data.card_file is not None:
            _write_card(setting, records, result, file=full_data.card_file)
        if not complete:
            raise typer.Exit(INTERRUPTED)


def _say_ignored(columns: Sequence[str]) -> None:
    """Name the columns that nothing was read from, and what they could have been."""
    if columns:
        hint = "one of owners is named by --owner-column, one of groups by --group-column"
        print(printable(f"ignored: {', '.join(columns)} ({hint})"), file=sys.stderr)


def _write(result: dict[str, Any], json_file: str | None) -> None:
    if json_file == "-":
        print(json.dumps(result, indent=2, allow_nan=False))
        return
    if json_file is not None:
        write_json(result, Path(json_file))
    show([result])
    if result["advice"] is not None:
        print(result["advice"])


def _write_card(setting: Any, records: Any, result: dict[str, Any], *, file: Path) -> None:
    card = setting.card(records, result, issued=datetime.now(UTC).replace(microsecond=0))
    write_json(json.loads(card.sign(SIMULATION_KEY).to_json()), file)
