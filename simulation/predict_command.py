"""`confide predict`: prediction sets or intervals of one's own records, by a published card."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from confide.metrics import coverage, false_negative_rate
from confide.protocol.commands.terminal import clear_errors, printable
from confide.protocol.errors import BadInput
from confide.protocol.prediction.new_records import NewRecords, read_new_records
from confide.protocol.prediction.predictor import CardWarning, Predictor
from confide.protocol.prediction.written import Predicted, check_place, write_predicted


def predict_command(
    *,
    card: Annotated[Path, typer.Option(help="the card, as JSON")],
    key: Annotated[
        str, typer.Option(help="public key (hexadecimal) that must have signed the card")
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="npz, csv or parquet with probabilities (p0, p1, ...), predictions, or features; "
            "with ids if you like, and with truth to measure coverage"
        ),
    ],
    out: Annotated[Path, typer.Option(help="file to write: .parquet, .csv, .npz or .jsonl")],
    model: Annotated[
        Path | None, typer.Option(help="the card's model (.onnx), if the records are features")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(help="the owner or group whose threshold is used [the largest of all]"),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="of a card with a band: the coverage whose threshold is used"),
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(help="column of --data with the group of each record, for its own threshold"),
    ] = None,
    explain: Annotated[
        int, typer.Option(min=0, help="print why, for so many of the first records")
    ] = 0,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="accept the card of a simulation")
    ] = False,
) -> None:
    """Predict your own records with a card: verify it, run its model, write sets or intervals.

    Exit code 2, and nothing written, if the card is not signed by the key or does not verify, the
    model is not the card's, or the records cannot be used.
    """
    with clear_errors():
        check_place(out, inputs=(card, data, model))
        with warnings.catch_warnings():
            # They are printed below.
            warnings.simplefilter("ignore", CardWarning)
            predictor = Predictor.from_card(
                card, key=key, model=model, simulation=simulation, part=part, coverage=coverage
            )
        if predictor.certified is not None:
            print(f"threshold {predictor.threshold:.6g}, certified for {predictor.certified:g}")
        for remark in predictor.remarks:
            print(f"WARNING: {remark}", file=sys.stderr)
        records = read_new_records(
            data, predictor.score, features=model is not None, group_column=group_column
        )
        results = _results(predictor, records, name=str(data))
        if records.ignored:
            print(printable(f"ignored: {', '.join(records.ignored)}"), file=sys.stderr)
        # The sets that are written are those that are explained.
        u = np.random.default_rng().random(len(records)) if predictor.score.randomized else None
        plain = replace(predictor, model=None)
        rows = (
            plain.predict_set(results, u=u, groups=records.groups)
            if plain.of_labels
            else plain.predict_interval(results, groups=records.groups)
        )
        said = _summary(rows, records)
        write_predicted(out, Predicted(rows, records.ids))
        if explain:
            some = None if records.groups is None else records.groups[:explain]
            drawn = None if u is None else u[:explain]
            first = plain.explain(results[:explain], u=drawn, groups=some)
            print("\n".join(map(str, first)))
        print(f"wrote {out}: {said}")


def _results(predictor: Predictor, records: NewRecords, *, name: str) -> Any:
    """The model's results, behind a progress bar on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("predicting", total=len(records))
        try:
            return predictor.results(
                records.given, progress=lambda done, _: bar.update(task, completed=done)
            )
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None


def _summary(rows: Any, records: NewRecords) -> str:
    if rows.dtype == np.bool_:
        sizes = rows.sum(axis=1)
        found = f"{len(rows):,} sets of {sizes.mean():.2f} labels in the mean"
        found += f", {int((sizes == 0).sum()):,} of them empty" if (sizes == 0).any() else ""
    else:
        width = np.maximum(rows[:, 1] - rows[:, 0], 0.0).mean()
        found = f"{len(rows):,} intervals, {width:.6g} wide in the mean"
    if records.truth is None:
        return found
    if records.truth.ndim == 2:
        missed = false_negative_rate(rows, records.truth)
        return f"{found}; they miss {missed:.4f} of a record's true labels in the mean"
    return f"{found}; they cover {coverage(rows, records.truth):.4f} of the truth in the file"
