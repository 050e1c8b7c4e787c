"""`contribute`: take part in a campaign."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from confide.client.cli.connection import connected, say
from confide.client.cli.options import DEFAULT_HOME, Device, Engine, Folder, NewRecords, fail
from confide.client.cli.plan import refusal_text
from confide.client.explain import REASONS
from confide.client.home import Home
from confide.client.ledger.ledger import Ledger
from confide.client.owner import open_owner
from confide.client.policy import Policy
from confide.client.training.computing import AUTO, Computing
from confide.client.training.shown_log import show_training
from confide.client.transport.contribution import Contribution, Left
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Unreachable
from confide.protocol.errors import BadInput, Refused
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import check_model
from confide.protocol.plan import Plan, open_plan
from confide.protocol.wire import wire_pb2 as wire


@connected
def contribute(
    remote: Aggregator,
    *,
    records: Annotated[Path, typer.Option(help="your records (.npz, .csv or .parquet)")],
    model: Annotated[
        Path | None,
        typer.Option(
            help="model that scores them (.onnx) [default: the one that the aggregator keeps]"
        ),
    ] = None,
    home: Folder = DEFAULT_HOME,
    new_records: NewRecords = False,
    device: Device = AUTO,
    engine: Engine = AUTO,
    watch: Annotated[
        bool,
        typer.Option("--watch/--once", help="until the campaign is over, or only what is open now"),
    ] = True,
) -> None:
    """Take part in a campaign: answer its queries within your policy.

    Your machine fetches the queries and receives no code. Exit code 0: all that was asked was
    answered and is held; 1: refused or not delivered; 2: something here is not in order.
    """
    place = Home(home)
    policy, ledger = place.policy(), place.ledger()
    show_training()
    respondent = open_owner(
        place,
        records,
        model,
        new_records=new_records,
        computing=Computing(device, engine),
        route=remote.route,
    )
    if model is not None and (found := Model.read(model)).digest in policy.models:
        # A fault of the model is explained here; the aggregator would get a code only.
        check_model(found, str(model))
    signed = remote.plan()
    try:
        plan, digest = open_plan(signed, trusted=policy.aggregators, now=datetime.now(UTC))
    except Refused as refused:
        fail(f"this plan is refused before it is read: {refusal_text(refused.code, signed)}")
    if (lacking := respondent.misfit(plan)) is not None:
        raise BadInput(f"{records}: {lacking}")
    if plan.terms.features is not None and device != AUTO:
        # One that is not here is this machine's mistake; the aggregator would get a refusal.
        from confide.client.training.descent import pick_device

        pick_device(device)
    if respondent.lacks_model(plan) and not policy.refusals(plan):
        respondent.score_with(_sent_model(remote, plan, records, policy=policy))
    taking_part = Contribution(remote, respondent, ledger, plan, digest, signed, tell=say)
    try:
        left = taking_part.watch() if watch else taking_part.once()
    except Unreachable as error:
        fail(f"{error}{_queue_note(ledger, digest)}")
    _report(left, plan, digest, ledger=ledger)


def _sent_model(remote: Aggregator, plan: Plan, records: Path, *, policy: Policy) -> Model:
    """Fetch the plan's model from the aggregator; nobody else has to hand it over.

    Its digest is the plan's, and it runs like any other model that the policy allows. One that the
    policy does not list is not opened before it is known to come of a training.
    """
    sent = remote.model()
    if sent is None:
        raise BadInput(
            f"this plan runs model {plan.model.hex()} on the features in {records}, and the "
            "aggregator keeps no such file; accepted is also --model, its file"
        )
    found = Model.of(sent)
    if found.digest != plan.model:
        fail(f"the aggregator sent a model {found.digest.hex()}; the plan says {plan.model.hex()}")
    if found.digest in policy.models:
        check_model(found, "the model that the aggregator sent")
    return found


def _report(left: Left, plan: Plan, digest: bytes, *, ledger: Ledger) -> None:
    """Say what left this machine; exit code 1 if something that was asked did not."""
    if left.withheld:
        fail(
            f"{left.withheld} answers drawn earlier stay here: your policy does not allow this "
            "plan any more"
        )
    if not left.rounds:
        print(
            f"Campaign {plan.campaign!r} asks nothing now: nothing left this machine, and nothing "
            "was spent."
        )
        return
    print(
        f"Campaign {plan.campaign!r}: {left.reports} reports, {left.bytes} bytes left this machine "
        "and are held."
    )
    for code, count in sorted(left.rounds.items()):
        print(f"  {count} of the rounds: {REASONS.get(wire.Code.Value(code), code)}")
    spent = sum(row.records for row in ledger.campaigns() if row.plan == digest)
    print(
        f"{spent} records have spent epsilon {plan.epsilon:g} each on it; `confide-client status` "
        "shows the whole ledger."
    )
    if not left.well:
        fail(f"not every query was answered and is held{_queue_note(ledger, digest)}")


def _queue_note(ledger: Ledger, plan: bytes) -> str:
    return "; what was not sent is kept and sent next time" if ledger.unacknowledged(plan) else ""
