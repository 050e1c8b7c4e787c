"""`confide reproduce`: a figure or table of a paper, beside the paper's own numbers."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from confide.protocol.commands.terminal import check_installed, clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.files import make_folder

OUT = Path("out/reproduce")


def reproduce_command(
    name: Annotated[
        str | None,
        typer.Argument(help="what to reproduce, or quick: all that need no data and no training"),
    ] = None,
    *,
    list_: Annotated[
        bool, typer.Option("--list", help="show all names, what they need and how long they take")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="folder for the table (csv, json), the picture and the trials")
    ] = OUT,
    data: Annotated[
        Path | None, typer.Option(help="folder with the data sets of the papers; read only")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="repetitions; a default for each name")
    ] = None,
) -> None:
    """Compute a figure or table of a paper again, and show it beside the paper's numbers; seeded.

    What trains networks keeps every finished trial in OUT/NAME.trials.json: the same command
    continues after Ctrl-C or a kill. Exit code 2 if a data file is needed and not there.
    """
    with clear_errors():
        from confide.simulation.reproduce.all_targets import QUICK, TARGETS, find

        if list_:
            _list()
            return
        if name is None:
            raise BadInput(f"no name is given; accepted: {', '.join([*TARGETS, QUICK])}")
        chosen = find(name)
        # It draws the picture, at the end of what may take hours.
        check_installed("matplotlib")
        files = {target.name: target.files(data) for target in chosen}
        make_folder(out)
        started = time.monotonic(), time.process_time()
        for target in chosen:
            _reproduce(target.name, files[target.name], out=out, trials=trials)
        if len(chosen) > 1:
            waited, worked = time.monotonic() - started[0], time.process_time() - started[1]
            print(f"{len(chosen)} targets in {waited:.0f} s, {worked:.0f} s of processor time")


def _list() -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from confide.protocol.commands.terminal import columns
    from confide.simulation.reproduce.all_targets import QUICK, TARGETS

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "shows", "needs", "takes"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for target in TARGETS.values():
        needs = ", ".join(one.name for one in target.needs) or "nothing"
        needs += ", training" if target.trained else ""
        kind = "stand-in: " if target.stands_in and "stand-in" not in target.shows else ""
        table.add_row(target.name, f"{target.of}: {kind}{target.shows}", needs, target.takes)
    table.add_row(QUICK, "all of them that need nothing", "nothing", "under 2 min")
    Console(width=columns() or 140).print(table)


def _reproduce(name: str, files: dict[str, Path], *, out: Path, trials: int | None) -> None:
    from confide.simulation.reproduce.all_targets import TARGETS
    from confide.simulation.reproduce.kept_trials import KeptTrials, digest
    from confide.simulation.reproduce.results import Result, show
    from confide.simulation.reproduce.target import RunOptions

    target = TARGETS[name]
    often = target.trials if trials is None else trials
    about = {one: digest(path) for one, path in files.items()} if target.trained else {}
    kept = KeptTrials(out / f"{name}.trials.json" if target.trained else None, about=about)
    started = time.process_time()
    try:
        rows = target.rows(RunOptions(trials=often, files=files, kept=kept))
    except KeyboardInterrupt:
        if kept.path is not None:
            print(
                f"finished trials are in {kept.path}: the same command continues", file=sys.stderr
            )
        raise
    result = Result(
        target=target,
        command=f"confide reproduce {name} --trials {often}"
        + (" --data FOLDER" if target.needs else ""),
        trials=often,
        seconds=time.process_time() - started,
        rows=rows,
    )
    paths = result.write(out)
    show(result)
    print("wrote " + ", ".join(map(str, paths)))
