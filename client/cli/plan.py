"""Plans before anything is answered: `plan` fetches one, `explain` says what it would learn."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from confide.client.cli.connection import connected
from confide.client.cli.options import DEFAULT_HOME, Folder
from confide.client.explain import explain as explain_plan
from confide.client.home import Home
from confide.client.ledger.charges import Cost
from confide.client.transport.grpc_client import Aggregator
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput, Refused
from confide.protocol.files import write_whole
from confide.protocol.plan import digest, open_plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse

_REFUSALS: dict[int, str] = {
    wire.Code.MALFORMED: "it is not a signed plan",
    wire.Code.WRONG_VERSION: "it is of another protocol version",
    wire.Code.UNSIGNED: "it carries no signature",
    wire.Code.BAD_SIGNATURE: "its signature does not fit its content",
    wire.Code.NOT_YET_VALID: "it is not valid yet",
    wire.Code.EXPIRED: "it has expired",
}


def refusal_text(code: int, signed_plan: bytes) -> str:
    """Why a signed plan cannot be opened, in words."""
    if code == wire.Code.UNKNOWN_KEY:
        key = parse(wire.SignedPlan, signed_plan).key
        return f"its key {key.hex()} is not among the policy's `aggregators`"
    return _REFUSALS[code]


@connected
def plan(
    remote: Aggregator,
    out: Annotated[Path, typer.Option(help="file for the signed plan")] = Path("plan.bin"),
) -> None:
    """Fetch the plan of a campaign, to read it with `explain` before taking part."""
    signed = remote.plan()
    write_whole(out, signed)
    print(f"wrote {out}; `confide-client explain {out}` says what it asks")
    name = digest(parse(wire.SignedPlan, signed).plan).hex()
    print(f"To answer this plan and no other, name all of its digest: --campaign {name}")


def explain(
    plan: Annotated[Path, typer.Argument(help="a signed plan, as a file")],
    home: Folder = DEFAULT_HOME,
) -> None:
    """What a plan would learn about a record, in plain words.

    Exit code 1 if your policy does not allow the plan.
    """
    with clear_errors():
        policy = Home(home).policy()
        try:
            data = plan.read_bytes()
        except OSError as error:
            raise BadInput(
                f"{plan}: {error.strerror}; accepted is a file with a signed plan"
            ) from None
        try:
            opened, _ = open_plan(data, trusted=policy.aggregators, now=datetime.now(UTC))
        except Refused as refused:
            print(f"This plan is refused before it is read: {refusal_text(refused.code, data)}")
            raise typer.Exit(1) from None
        print(explain_plan(opened, policy))
        cost = Cost(opened.epsilon, opened.privacy_delta)
        known, spent = Home(home).ledger().cannot_pay(cost, policy.limits)
        if known:
            print(
                f"Your ledger knows {known} records or persons; {spent} of them have too little "
                "budget left for it."
            )
        if policy.refusals(opened):
            raise typer.Exit(1)
