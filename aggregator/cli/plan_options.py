"""The settings of a campaign that an operator gives, as options or in a file."""

import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.planning.settings import belongs, read_bins
from confide.aggregator.campaigns.planning.shuffler_file import USUAL_CROWD
from confide.aggregator.storage.stored_campaign import Settings
from confide.protocol.certificate import BAND, MARGINAL, PAC
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import GRID_NAMES, MIXED
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.labels.terms import CLASS_FLOOR
from confide.protocol.methods.owner_terms import AS_ANSWERED
from confide.protocol.methods.registry import METHODS
from confide.protocol.scores.registry import SCORES_HELP, find_score

DEFAULTS: dict[str, Any] = {
    "score": "hps",
    "epsilon": 2.0,
    "alpha": 0.1,
    "failure-probability": 0.1,
    "channel": "auto",
    "scoring": "owner",
    "sent-features": 0,
    "model-file": "",
    "provider-data": "",
    "largest-set": 0,
    "joint": False,
    "class-floor": CLASS_FLOOR,
    "owner-floor": 0,
    "group-floor": 0,
    "by": "",
    "group-column": "",
    "groups": "",
    "mixture": AS_ANSWERED,
    "smallest-owner": 0,
    "max-corrupt": 0,
    "shuffler": "",
    "crowd": USUAL_CROWD,
    "minimum-reports": 100,
    "minimum-owners": 1,
    "mechanism": "rank-exponential",
    "bins": AUTOMATIC,
    "grid": MIXED,
    "edges-file": "",
    "beta": 0.0,
    "guarantee": AUTOMATIC,
    "privacy-delta": 1e-6,
    "clip": 1.0,
    "batch": AUTOMATIC,
    "learning-rate": AUTOMATIC,
    "loss-share": 0.0,
    "target-low": 0.0,
    "target-high": 0.0,
    "days": 30.0,
    "title": "",
    "monitors": "",
    "periods": 365,
}
NEEDED = ("campaign", "labels", "model", "records")
# The digest in the plan of a campaign that scores no records.
NO_MODEL = bytes(32).hex()
SETTINGS = {field.name.replace("_", "-"): field.name for field in fields(Settings)}


@dataclass(frozen=True)
class PlanOptions:
    """The terms of a campaign and when its rounds end; those not given have defaults."""

    campaign: Annotated[str | None, typer.Option(help="method:variant, such as bits:certified")] = (
        None
    )
    title: Annotated[
        str | None, typer.Option(help="what owners see; the method and the time if empty")
    ] = None
    labels: Annotated[int | None, typer.Option(help="number of labels [0 for numbers]")] = None
    model: Annotated[str | None, typer.Option(help="SHA-256 of the model file, hexadecimal")] = None
    model_file: Annotated[
        str | None,
        typer.Option(
            help="the model itself (.onnx), for its SHA-256; kept only if the aggregator scores"
        ),
    ] = None
    records: Annotated[int | None, typer.Option(help="records expected in all")] = None
    score: Annotated[str | None, typer.Option(help=SCORES_HELP)] = None
    channel: Annotated[
        str | None, typer.Option(help="channel of a labels campaign; auto is the best")
    ] = None
    scoring: Annotated[
        str | None,
        typer.Option(
            help="labels: owner (sends probabilities) or aggregator (gets FEATURES IN CLEAR)"
        ),
    ] = None
    sent_features: Annotated[
        int | None, typer.Option(help="scoring aggregator: numbers of a record; by the model file")
    ] = None
    provider_data: Annotated[
        str | None,
        typer.Option(help="own records; the ladder or grid (labels, central) is even on them"),
    ] = None
    largest_set: Annotated[
        int | None,
        typer.Option(
            help="labels: larger sets count as if they had so many labels; 0: by the rule"
        ),
    ] = None
    joint: Annotated[
        bool | None,
        typer.Option(
            help="class-conditional, per-owner, -group: the promise holds for all at once"
        ),
    ] = None
    class_floor: Annotated[
        int | None,
        typer.Option(help="labels:class-conditional: a label with fewer records gets threshold 1"),
    ] = None
    owner_floor: Annotated[
        int | None,
        typer.Option(help="variants of owners: one with fewer reports is left out; 0: by the rule"),
    ] = None
    group_floor: Annotated[
        int | None,
        typer.Option(help="variants of groups: one with fewer reports is left out; 0: by the rule"),
    ] = None
    by: Annotated[
        str | None, typer.Option(help="central: class or group, for a threshold of each")
    ] = None
    group_column: Annotated[
        str | None, typer.Option(help="column of owners' records that LEAVES IN CLEAR, as group")
    ] = None
    groups: Annotated[
        str | None, typer.Option(help="values of that column, as A,B,C; other records take no part")
    ] = None
    mixture: Annotated[
        str | None,
        typer.Option(
            help="bits:certified: of owners, as-answered, planned (the first round's reports) or "
            "equal-owners (each owner of the first round the same); one round has one mixture only"
        ),
    ] = None
    smallest_owner: Annotated[
        int | None,
        typer.Option(help="bits:certified: an owner of so many records can answer every round"),
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="privacy loss allowed per record")] = None
    alpha: Annotated[
        float | None, typer.Option(help="the promise is coverage of at least 1 - alpha")
    ] = None
    failure_probability: Annotated[
        float | None,
        typer.Option(help="labels, bits, PAC: probability that the promise fails"),
    ] = None
    delta: Annotated[float | None, typer.Option(hidden=True)] = None
    max_corrupt: Annotated[int | None, typer.Option(help="reports that may be lies")] = None
    shuffler: Annotated[
        str | None, typer.Option(help="bits: shuffler.json of the shuffler that mixes the reports")
    ] = None
    crowd: Annotated[
        int | None, typer.Option(help="the fewest reports in a round that a shuffler hands over")
    ] = None
    minimum_reports: Annotated[int | None, typer.Option(help="fewer give no certificate")] = None
    mechanism: Annotated[str | None, typer.Option(help="of central:trusted")] = None
    bins: Annotated[
        Any,
        typer.Option(
            parser=read_bins,
            metavar="INTEGER",
            help="bins of a central campaign; auto: by mechanism",
        ),
    ] = None
    grid: Annotated[
        str | None,
        typer.Option(help=f"how the bins of a central campaign lie: {', '.join(GRID_NAMES)}"),
    ] = None
    edges_file: Annotated[
        str | None, typer.Option(help="of grid given: the thresholds, numbers that ascend to 1")
    ] = None
    beta: Annotated[
        float | None,
        typer.Option(help="central: the mechanism's share of alpha; 0: none, or what it needs"),
    ] = None
    guarantee: Annotated[
        str | None,
        typer.Option(
            help=f"central, labels, bits: {PAC}, {MARGINAL} or {BAND}; auto: by the method"
        ),
    ] = None
    privacy_delta: Annotated[
        float | None, typer.Option(help="delta of (epsilon, delta)-DP, where noise is Gaussian")
    ] = None
    monitors: Annotated[
        str | None,
        typer.Option(help="card (.json) whose threshold is checked on fresh records, without end"),
    ] = None
    periods: Annotated[int | None, typer.Option(help="of a monitor: the most rounds")] = None
    days: Annotated[float | None, typer.Option(help="how long the plan is valid")] = None
    round_seconds: Annotated[
        float | None, typer.Option(help="how long a round accepts answers")
    ] = None
    minimum_owners: Annotated[
        int | None,
        typer.Option(help="contributors a round waits for; with fewer there is no certificate"),
    ] = None
    owners: Annotated[
        int | None,
        typer.Option(help="end a round early when so many have sent or declined; 0: never"),
    ] = None
    enough: Annotated[
        int | None, typer.Option(help="end a round early after so many reports; 0: never")
    ] = None


def given_settings(*options: Any) -> dict[str, Any]:
    """The settings that were given, by the names of their options."""
    return {
        name.replace("_", "-"): value
        for group in options
        for name, value in asdict(group).items()
        if value is not None
    }


def with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with defaults filled in; refuse them if one without a default is missing.

    `model` may be left out of a training, which has no model file yet (that of a head is checked
    later), and beside `model-file`, whose digest it is.
    """
    values = DEFAULTS | given
    if not find_score(str(values["score"])).task.of_labels:
        values.setdefault("labels", 0)
    if values["model-file"]:
        values.setdefault("model", "")
    method = str(values.get("campaign", "")).partition(":")[0]
    terms = METHODS.get(method)
    if terms is not None and terms.trains:
        values.setdefault("model", NO_MODEL)
    own = () if terms is None else terms.settings
    missing = [name for name in (*NEEDED, *own) if name not in values]
    if missing:
        raise BadInput(f"missing: {', '.join(missing)}; give them as options or in --file")
    return values


def read_settings(path: Path | None) -> dict[str, Any]:
    """The settings in a TOML file; none if there is no file."""
    if path is None:
        return {}
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as TOML: {error}") from None
    known = {*DEFAULTS, *NEEDED, *SETTINGS, *belongs()}
    unknown = sorted(set(values) - {*known, "delta"})
    if unknown:
        raise BadInput(
            f"{path} has unknown {', '.join(unknown)}; accepted: {', '.join(sorted(known))}"
        )
    return values
