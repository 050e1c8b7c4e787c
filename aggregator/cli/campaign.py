"""`confide-aggregator campaign`: the life of a campaign, from its plan to its result."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from confide.aggregator.campaigns.planning.plans import (
    Validity,
    check_delta_used,
    check_groups_used,
    make_plan,
    valid_from,
)
from confide.aggregator.campaigns.planning.provider_files import with_provider_files
from confide.aggregator.campaigns.planning.settings import belongs, check, check_used, promising
from confide.aggregator.campaigns.planning.shuffler_file import with_shuffler
from confide.aggregator.campaigns.planning.watched_card import (
    calibration_card,
    repeated_plan,
    with_watched_card,
)
from confide.aggregator.campaigns.report_scores import check_scoring
from confide.aggregator.campaigns.training_result import weights_file
from confide.aggregator.cli.plan_options import (
    DEFAULTS,
    SETTINGS,
    PlanOptions,
    given_settings,
    read_settings,
    with_defaults,
)
from confide.aggregator.cli.stored import Database, open_store
from confide.aggregator.cli.training_options import TrainingPlanOptions
from confide.aggregator.keys import read_key
from confide.aggregator.storage import views
from confide.aggregator.storage.database import DEFAULT
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import (
    CALIBRATED,
    PUBLISHED,
    TRAINED,
    Campaign,
    Settings,
)
from confide.protocol.cards.card import AUDITOR, PUBLIC
from confide.protocol.commands.command_line import CommandLine
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.files import make_folder, write_new, write_whole
from confide.protocol.plan import Plan, sign_plan
from confide.protocol.wire.columns import F4

campaign_app = CommandLine("The life of a campaign, from its plan to its card.")

# The files that a training is exported into.
WEIGHTS_FILE, ABOUT_FILE = "weights.npz", "training.json"
Id = Annotated[str, typer.Argument(help="id of the campaign, or its first characters")]


@campaign_app.command("create")
@grouped
def create(
    key: Annotated[Path, typer.Option(help="key that signs the plan (aggregator.key of `init`)")],
    file: Annotated[
        Path | None, typer.Option(help="settings as TOML, under the names of the options below")
    ] = None,
    db: Database = DEFAULT,
    *,
    recalibrates: Annotated[
        Path | None,
        typer.Option(help="card (.json) whose plan is signed once more, for today's records"),
    ] = None,
    asked: PlanOptions,
    training: TrainingPlanOptions,
) -> None:
    """Sign a plan and store it as a draft; prints the id of the campaign."""
    with clear_errors():
        own = read_settings(file) | given_settings(asked, training)
        check(own)
        signer = read_key(key)
        own = with_shuffler(own, signer)
        public = signer.public_key().public_bytes_raw()
        if recalibrates is None:
            plan, model = _new_plan(own, key=public)
        else:
            plan = _repeated_plan(own, recalibrates, key=public)
            model = open_store(db).secret_model(plan.model) if plan.terms.sent_features else None
        secret = model if plan.terms.sent_features else None
        check_scoring(plan, secret)
        settings = Settings(**{SETTINGS[name]: own[name] for name in SETTINGS if name in own})
        signed = sign_plan(plan, signer)
        print(open_store(db).create(signed, settings, now=time.time(), secret=secret).id)


def _new_plan(own: dict[str, Any], *, key: bytes) -> tuple[Plan, bytes | None]:
    """The plan of these settings, and the file of its model where one is given."""
    values, model = with_provider_files(with_defaults(with_watched_card(own, key=key)))
    name = values["campaign"]
    plan = make_plan(name, values, title=_title(values, name), valid=_validity(values))
    check_used(own, promising([name], values["guarantee"]), belongs())
    check_delta_used(own.get("privacy-delta"), [plan])
    check_groups_used(own.get("groups") or own.get("group-column"), plan)
    return plan, model


def _repeated_plan(own: dict[str, Any], path: Path, *, key: bytes) -> Plan:
    """The plan of a card once more; only its title, its time and its rounds may be others."""
    accepted = ("title", "days", *SETTINGS)
    others = sorted(set(own) - {*accepted})
    if others:
        raise BadInput(
            f"{', '.join(others)} is given beside recalibrates, which repeats the plan of {path}; "
            f"accepted are {', '.join(accepted)}"
        )
    card, values = calibration_card(path, key=key), DEFAULTS | own
    name = f"{card.formal['contract']['name']}, again"
    return repeated_plan(card, title=_title(values, name), valid=_validity(values))


def _title(values: dict[str, Any], name: str) -> str:
    return str(values["title"] or f"{name} {time.time_ns()}")[:200]


def _validity(values: dict[str, Any]) -> Validity:
    return valid_from(datetime.now(UTC), days=values["days"])


def _stored(campaign: str, db: str) -> tuple[Store, str]:
    """The database, and the whole id of a campaign in it."""
    store = open_store(db)
    return store, store.campaign(campaign).id


@campaign_app.command("open")
def open_command(campaign: Id, db: Database = DEFAULT) -> None:
    """Let owners answer."""
    with clear_errors():
        store, known = _stored(campaign, db)
        store.open(known, now=time.time())


@campaign_app.command("close")
def close(campaign: Id, db: Database = DEFAULT) -> None:
    """Accept no more answers, and calibrate on those that arrived."""
    with clear_errors():
        store, known = _stored(campaign, db)
        store.close(known, now=time.time())


@campaign_app.command("publish")
def publish(campaign: Id, db: Database = DEFAULT) -> None:
    """Let owners fetch the card of a calibrated campaign."""
    with clear_errors():
        store, known = _stored(campaign, db)
        store.publish(known, now=time.time())


@campaign_app.command("purge")
def purge(campaign: Id, db: Database = DEFAULT) -> None:
    """Delete the reports of a campaign that is over; its card and counts stay."""
    with clear_errors():
        store, known = _stored(campaign, db)
        print(f"{store.purge(known, now=time.time())} batches deleted")


@campaign_app.command("status")
def status(
    campaign: Annotated[
        str, typer.Argument(help="id of a campaign, or its first characters; all if left out")
    ] = "",
    db: Database = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="print everything as JSON")] = False,
) -> None:
    """Show the state of campaigns: rounds, reports, what was rejected and why."""
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
            in_all = one["rounds_in_all"]
            if in_all and in_all > 1:
                done = sum(row["because"] is not None for row in one["rounds"])
                print(f"  {done} of {in_all} rounds done")
            for row in one["rounds"]:
                state = f"closed by {row['because']}" if row["because"] else "open"
                came = (
                    f"{row['reports']} reports of {row['contributed']} owners, {row['finished']} "
                    "finished"
                )
                print(f"  round {row['number']}: {came}, {state}")
            for code, count in one["rejected"].items():
                print(f"  rejected {code}: {count}")


@campaign_app.command("weights")
def weights(
    campaign: Id,
    out: Annotated[Path, typer.Argument(help="new file for the weights, .npz")],
    db: Database = DEFAULT,
) -> None:
    """Write the weights of a training, and a JSON file beside them that says what they cost."""
    with clear_errors():
        store = open_store(db)
        one = store.campaign(campaign)
        about = out.with_suffix(".json")
        if out.suffix != ".npz":
            raise BadInput(f"the file is {out}; accepted is a name that ends in .npz")
        there = [path for path in (out, about) if path.exists()]
        if there:
            raise BadInput(f"{there[0]} exists already; accepted is a new file")
        if one.state != TRAINED:
            raise BadInput(
                f"campaign {one.id} is {one.state}; only one that is trained has weights"
            )
        found = _trained_files(store, one)
        for path in write_new({out: found[WEIGHTS_FILE], about: found[ABOUT_FILE]}):
            print(f"wrote {path}")


def _trained_files(store: Store, one: Campaign) -> dict[str, bytes]:
    """The files of a training that has ended, by name."""
    about, data = store.about_training(one.id), store.weights(one.id)
    assert about is not None
    assert data is not None
    found = np.frombuffer(data, dtype=F4)
    return {WEIGHTS_FILE: weights_file(found), ABOUT_FILE: about.encode()}


@campaign_app.command("export")
def export(
    campaign: Id,
    out: Annotated[Path, typer.Argument(help="folder to write into")],
    db: Database = DEFAULT,
) -> None:
    """Write the signed plan, the status and the result, cards or weights, into a folder."""
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
        if one.state == TRAINED:
            files |= _trained_files(store, one)
        if one.state in (CALIBRATED, PUBLISHED):
            for view, name in ((PUBLIC, "card.json"), (AUDITOR, "auditor.json")):
                card = store.card(one.id, view)
                files |= {} if card is None else {name: card.encode()}
        make_folder(out)
        for name, content in files.items():
            write_whole(out / name, content)
            print(f"wrote {out / name}")
