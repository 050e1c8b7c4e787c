"""`confide-aggregator campaign`: the life of a campaign, from its plan to its card."""

import json
import time
import tomllib
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from confide.aggregator.campaigns.plans import check_delta_used, make_plan, valid_from
from confide.aggregator.campaigns.settings import belongs, check_used
from confide.aggregator.keys import read_key
from confide.aggregator.storage import views
from confide.aggregator.storage.database import DEFAULT, connect, upgrade
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import CALIBRATED, PUBLISHED, Settings
from confide.protocol.cards.card import AUDITOR, PUBLIC
from confide.protocol.command_line import CommandLine
from confide.protocol.errors import BadInput
from confide.protocol.option_groups import grouped
from confide.protocol.plan import sign_plan
from confide.protocol.terminal import clear_errors

campaign_app = CommandLine("The life of a campaign, from its plan to its card.")

Database = Annotated[
    str,
    typer.Option("--db", help="SQLite file, or postgresql://USER@HOST/NAME", envvar="CONFIDE_DB"),
]
Id = Annotated[str, typer.Argument(help="id of the campaign, or how it begins")]
DEFAULTS: dict[str, Any] = {
    "score": "hps",
    "epsilon": 2.0,
    "alpha": 0.1,
    "failure-probability": 0.1,
    "channel": "auto",
    "max-corrupt": 0,
    "minimum-reports": 100,
    "minimum-owners": 1,
    "mechanism": "rank-exponential",
    "bins": 1024,
    "beta": 0.002,
    "privacy-delta": 1e-6,
    "days": 30.0,
    "title": "",
}
NEEDED = ("campaign", "labels", "model", "records")
SETTINGS = {field.name.replace("_", "-"): field.name for field in fields(Settings)}


def open_store(url: str) -> Store:
    """The store at this URL, brought up to date."""
    engine = connect(url)
    upgrade(engine)
    return Store(engine)


@dataclass(frozen=True)
class PlanOptions:
    """The terms of a campaign and when its rounds end; those not given have defaults."""

    campaign: Annotated[str | None, typer.Option(help="method:variant, such as bits:certified")] = (
        None
    )
    title: Annotated[
        str | None, typer.Option(help="what owners see; the method and the time if empty")
    ] = None
    labels: Annotated[int | None, typer.Option(help="number of labels")] = None
    model: Annotated[str | None, typer.Option(help="SHA-256 of the model file, hexadecimal")] = None
    records: Annotated[int | None, typer.Option(help="records expected in all")] = None
    score: Annotated[str | None, typer.Option(help="hps, aps, ...")] = None
    channel: Annotated[
        str | None, typer.Option(help="channel of a labels campaign; auto is the best")
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="privacy of a record")] = None
    alpha: Annotated[
        float | None, typer.Option(help="the promise is coverage of at least 1 - alpha")
    ] = None
    failure_probability: Annotated[
        float | None,
        typer.Option(help="labels, bits: probability, over calibration, that the promise fails"),
    ] = None
    delta: Annotated[float | None, typer.Option(hidden=True)] = None
    max_corrupt: Annotated[int | None, typer.Option(help="reports that may lie")] = None
    minimum_reports: Annotated[int | None, typer.Option(help="fewer give no certificate")] = None
    mechanism: Annotated[str | None, typer.Option(help="of central:trusted")] = None
    bins: Annotated[int | None, typer.Option(help="bins of a central campaign")] = None
    beta: Annotated[float | None, typer.Option(help="a central campaign's own share of alpha")] = (
        None
    )
    privacy_delta: Annotated[
        float | None, typer.Option(help="delta of (epsilon, delta)-DP, where noise is Gaussian")
    ] = None
    days: Annotated[float | None, typer.Option(help="how long the plan is valid")] = None
    round_seconds: Annotated[float | None, typer.Option(help="how long a round takes answers")] = (
        None
    )
    minimum_owners: Annotated[
        int | None, typer.Option(help="contributors a round waits for; fewer give no certificate")
    ] = None
    owners: Annotated[
        int | None,
        typer.Option(help="a round ends early when so many have sent or declined; 0: never"),
    ] = None
    enough: Annotated[
        int | None, typer.Option(help="a round ends early with so many reports; 0: never")
    ] = None

    def given(self) -> dict[str, Any]:
        """The settings that were given, by the names of their options."""
        return {
            name.replace("_", "-"): value
            for name, value in asdict(self).items()
            if value is not None
        }


@campaign_app.command("create")
@grouped
def create(
    key: Annotated[Path, typer.Option(help="key that signs the plan (aggregator.key of `init`)")],
    file: Annotated[
        Path | None, typer.Option(help="settings as TOML, named as the options below")
    ] = None,
    db: Database = DEFAULT,
    *,
    asked: PlanOptions,
) -> None:
    """Sign a plan and store it as a draft; prints the id of the campaign."""
    with clear_errors():
        own = _read(file) | asked.given()
        values = DEFAULTS | own
        missing = [name for name in NEEDED if name not in values]
        if missing:
            raise BadInput(f"missing: {', '.join(missing)}; give them as options or in --file")
        name = values["campaign"]
        if str(name).startswith("training"):
            raise BadInput(f"campaign is {name}; training runs over Flower, see docs/deployment.md")
        settings = Settings(
            **{field: values[option] for option, field in SETTINGS.items() if option in values}
        )
        titled = values["title"] or f"{name} {time.time_ns()}"
        plan = make_plan(
            name, values, title=titled, valid=valid_from(datetime.now(UTC), days=values["days"])
        )
        check_used(own, [name], belongs())
        check_delta_used(own.get("privacy-delta"), [plan])
        print(open_store(db).create(sign_plan(plan, read_key(key)), settings, now=time.time()).id)


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as TOML: {error}") from None
    unknown = sorted(set(values) - {*DEFAULTS, *NEEDED, *SETTINGS, "delta"})
    if unknown:
        raise BadInput(
            f"{path} has unknown {', '.join(unknown)}; accepted: "
            f"{', '.join(sorted({*DEFAULTS, *NEEDED, *SETTINGS}))}"
        )
    return values


@campaign_app.command("open")
def open_command(campaign: Id, db: Database = DEFAULT) -> None:
    """Let owners answer."""
    with clear_errors():
        store = open_store(db)
        store.open(store.campaign(campaign).id, now=time.time())


@campaign_app.command("close")
def close(campaign: Id, db: Database = DEFAULT) -> None:
    """Take no more answers, and calibrate on what is there."""
    with clear_errors():
        store = open_store(db)
        store.close(store.campaign(campaign).id, now=time.time())


@campaign_app.command("publish")
def publish(campaign: Id, db: Database = DEFAULT) -> None:
    """Let owners fetch the card of a calibrated campaign."""
    with clear_errors():
        store = open_store(db)
        store.publish(store.campaign(campaign).id, now=time.time())


@campaign_app.command("purge")
def purge(campaign: Id, db: Database = DEFAULT) -> None:
    """Delete the reports of a campaign that is over; its card and counts stay."""
    with clear_errors():
        store = open_store(db)
        print(f"{store.purge(store.campaign(campaign).id, now=time.time())} batches deleted")


@campaign_app.command("status")
def status(
    campaign: Annotated[
        str, typer.Argument(help="id of a campaign, or how it begins; all if left out")
    ] = "",
    db: Database = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="print everything as JSON")] = False,
) -> None:
    """Where campaigns stand: state, rounds, reports, what was rejected and why."""
    with clear_errors():
        store = open_store(db)
        chosen = store.campaign(campaign).id if campaign else None
        known, others = views.overviews(store.engine)
        if chosen in others:
            raise BadInput(
                f"campaign {chosen} is of another version of this program, which can say how it "
                "stands"
            )
        found = [views.status(store.engine, row) for row in known if chosen in (None, row.id)]
        if as_json:
            print(json.dumps(found, indent=2))
            return
        for name in others:
            print(f"{name}  of another version of this program")
        for one in found:
            print(
                f"{one['id']}  {one['state']:<10}  "
                f"{one['title']}{'  (' + one['reason'] + ')' if one['reason'] else ''}"
            )
            for row in one["rounds"]:
                state = f"closed by {row['because']}" if row["because"] else "open"
                came = (
                    f"{row['reports']} reports of {row['contributed']} owners, {row['finished']} "
                    "finished"
                )
                print(f"  round {row['number']}: {came}, {state}")
            for code, count in one["rejected"].items():
                print(f"  rejected {code}: {count}")


@campaign_app.command("export")
def export(
    campaign: Id,
    out: Annotated[Path, typer.Argument(help="folder to write into")],
    db: Database = DEFAULT,
) -> None:
    """Write the signed plan, the status and, once calibrated, the cards into a folder."""
    with clear_errors():
        store = open_store(db)
        one = store.campaign(campaign)
        row = views.overview(store.engine, one.id)
        if row is None:
            raise BadInput(
                f"campaign {one.id} is of another version of this program, which must export it"
            )
        files = {
            "plan.bin": one.signed_plan,
            "status.json": json.dumps(views.status(store.engine, row), indent=2).encode(),
        }
        if one.state in (CALIBRATED, PUBLISHED):
            for view, name in ((PUBLIC, "card.json"), (AUDITOR, "auditor.json")):
                card = store.card(one.id, view)
                files |= {} if card is None else {name: card.encode()}
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (out / name).write_bytes(content)
                print(f"wrote {out / name}")
        except OSError as error:
            raise BadInput(f"cannot write into {out}: {error.strerror}") from None
