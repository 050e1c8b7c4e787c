"""`confide-card search`: from a contract to a configuration that keeps it, and to its campaign."""

import json
import tomllib
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.aggregator.cards.contracts.campaign_file import campaign_settings, campaign_text
from confide.aggregator.cards.contracts.contract import Contract, read_grid
from confide.aggregator.cards.contracts.search import search_and_try
from confide.aggregator.cards.contracts.shortlist import ShortlistTrial
from confide.aggregator.cards.issue import provenance
from confide.aggregator.keys import read_key
from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.sections import evaluated_lines
from confide.protocol.cards.words.in_words import headline, trivial_in_runs
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.files import write_whole
from confide.protocol.prediction.batches import BatchModel, read_model
from confide.protocol.prediction.known_records import read_known_records
from confide.protocol.scores.registry import find_score

EXAMPLE = """An example of a contract:

\b
    name = "triage model, autumn"

\b
    [contract]
    coverage = 0.7              # promised, on average
    beta = 0.001                # part of it: failures of the calibration
    epsilon_train = 4.0         # privacy budgets that may not be exceeded
    epsilon_calibration = 8.0
    delta = 1e-5
    # max_inflation = 0.05      # ranks too high, as a share of records
    # adjacency = "add-remove"  # default: replace-one
    # unit = "client"           # with records_per_client = 1

\b
    [grid]                      # every combination is tried
    mechanism = ["rank-exponential", "laplace-counts"]
    gamma = [0.65, 0.75, 0.85]
    n = [1000, 4000]
    bins = 100
    # grid = ["mixed", "logit"] # how the bins lie; default: mixed
    epsilon_train = 4.0
    delta_train = 1e-5
    epsilon_calibration = [2.0, 8.0]
"""
HELP = f"""Search a contract's grid, and write a card with the selection or with what failed.

Of every budget, the feasible configuration of least certified inflation is short-listed. With
--records the short list is run, and the cheapest one whose sets are about as small as the smallest
is selected; else the one of least inflation. --campaign writes it for `confide-aggregator campaign
create --file`.

{EXAMPLE}"""


@dataclass(frozen=True)
class TrialOptions:
    """Running the short list on records that may be looked at; none of this is private."""

    records: Annotated[
        Path | None,
        typer.Option(
            help="npz, csv or parquet: probabilities (p0, p1, ...) and label, predictions and "
            "target, or features with --model"
        ),
    ] = None
    score: Annotated[
        str, typer.Option(help="hps, aps, 'aps temperature=2', 'cqr bound=10', ...")
    ] = "hps"
    model: Annotated[
        Path | None, typer.Option(help="the model (.onnx), if the records are features")
    ] = None
    runs: Annotated[int, typer.Option(min=1, help="calibrations of each configuration")] = 3
    tolerance: Annotated[
        float,
        typer.Option(min=0, help="how much larger sets may become to save epsilon, as a share"),
    ] = 0.01


def read_contract(path: Path) -> tuple[Contract, Any]:
    """A contract and its grid from TOML."""
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(
            f"{path} cannot be read as TOML: {error}; `confide-card search --help` shows an example"
        ) from None
    unknown = sorted(set(values) - {"name", "contract", "grid"})
    missing = sorted({"name", "contract", "grid"} - set(values))
    names = {field.name for field in fields(Contract)} - {"name"}
    given = values.get("contract", {})
    try:
        if unknown or missing:
            raise BadInput(
                f"unknown: {', '.join(unknown) or 'none'}; missing: {', '.join(missing) or 'none'}"
            )
        strange = sorted(set(given) - names)
        if strange:
            raise BadInput(
                f"[contract] has unknown {', '.join(strange)}; accepted: {', '.join(sorted(names))}"
            )
        return Contract(name=str(values["name"]), **given), read_grid(values["grid"])
    except (TypeError, BadInput) as error:
        raise BadInput(f"{path}: {str(error).removeprefix('Contract.__init__() ')}") from None


@grouped
def search_command(
    contract: Annotated[Path, typer.Argument(help="contract and grid, as TOML")],
    out: Annotated[Path, typer.Option(help="file for the card")] = Path("card.json"),
    key: Annotated[
        Path | None,
        typer.Option(help="private key that signs the card (see confide-aggregator init)"),
    ] = None,
    *,
    campaign: Annotated[
        Path | None, typer.Option(help="file for the settings of the selected campaign (TOML)")
    ] = None,
    tried: TrialOptions,
) -> None:
    with clear_errors():
        terms, grid = read_contract(contract)
        model = None if tried.model is None else read_model(tried.model)
        trial = _read_trial(tried, model)
        formal, measured = search_and_try(terms, grid, trial)
        origin = provenance(plan=None, issued=_now())
        card = Card(formal, measured, origin, view="public")
        if key is not None:
            card = card.sign(read_key(key))
        settings = "" if campaign is None else _settings(formal, tried, trial)
        write_whole(out, card.to_json())
        print(headline(card))
        for line in evaluated_lines(formal, measured):
            print(f"  {line}")
        for suggestion in formal["suggestions"]:
            print(f"  {suggestion['change']}: {json.dumps(suggestion['configuration'])}")
        print(
            f"wrote {out}{'' if key else ', unsigned: nobody vouches for it; sign it with --key'}"
        )
        trivial = trivial_in_runs(formal, measured)
        if trivial:
            print(
                f"no campaign is made of it: on {tried.records} its threshold was 1; accepted is a "
                "contract with more epsilon or records, or another grid or score"
            )
        if trivial or formal["decision"] != "feasible":
            raise typer.Exit(1)
        if campaign is not None:
            write_whole(campaign, settings)
            print(f"wrote {campaign}, for `confide-aggregator campaign create --file {campaign}`")


def _read_trial(tried: TrialOptions, model: BatchModel | None) -> ShortlistTrial | None:
    """The records of a trial and the results for them; None if no records are given."""
    if tried.records is None:
        return None
    score = find_score(tried.score)
    results, truth, _ = read_known_records(tried.records, score, model=model)
    return ShortlistTrial(score, results, truth, runs=tried.runs, tolerance=tried.tolerance)


def _settings(formal: Layer, tried: TrialOptions, trial: ShortlistTrial | None) -> str:
    """The file of the selected campaign; empty if nothing is selected."""
    if formal["selected"] is None:
        return ""
    score = find_score(tried.score)
    known: dict[str, Any] = {"score": score.text}
    if score.task.of_numbers:
        known["labels"] = 0
    elif trial is not None:
        known["labels"] = trial.results.shape[1]
    if tried.model is not None:
        known["model-file"] = str(tried.model)
    return campaign_text(formal, campaign_settings(formal) | known)


def _now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat()
