"""`confide-client`: for the data owner."""

import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from confide.client.explain import REASONS, explain
from confide.client.home import Home
from confide.client.ledger.charges import Cost
from confide.client.ledger.ledger import Ledger
from confide.client.owner import open_owner
from confide.client.policy import list_in
from confide.client.records.models import Model
from confide.client.records.reader import read_records
from confide.client.records.scorer import check_model
from confide.client.cli.connection import connected
from confide.client.transport.contribution import Contribution
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.pinned_launcher import bundle_hash, pin, read_allowed
from confide.client.transport.retry import Unreachable
from confide.protocol.cards.card import parse_card
from confide.protocol.cards.page import headline
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.command_line import CommandLine
from confide.protocol.errors import BadInput, Refused
from confide.protocol.files import write_whole
from confide.protocol.plan import open_plan, parse
from confide.protocol.terminal import clear_errors, printable
from confide.protocol.wire import wire_pb2 as wire

app = CommandLine(__doc__)

Folder = Annotated[
    Path, typer.Option("--home", help="folder of policy, secret and ledger", envvar="CONFIDE_HOME")
]
DEFAULT = Path("~/.confide").expanduser()


@app.command()
def init(home: Folder = DEFAULT) -> None:
    """Write a commented policy, a secret with its ledger, and a key for a Flower node; what is
    there already is left alone."""
    with clear_errors():
        place = Home(home)
        written = place.create()
        for path in (*place.settings, place.ledger_file):
            print(f"{'wrote' if path in written else 'kept'}  {path}")
        print(
            "Edit the policy (`confide-client allow` adds aggregators and models), then try "
            "`confide-client explain PLAN`."
        )
        print("Back the folder up with `confide-client backup`: secret and ledger belong together.")
        print(f"A Flower aggregator registers your node by {place.node_public_file.name}.")


@app.command()
def backup(
    folder: Annotated[
        Path, typer.Argument(help="a new folder for the backup; keep it as safe as the original")
    ],
    home: Folder = DEFAULT,
) -> None:
    """Copy policy, keys and ledger into a new folder, all of one moment.

    Make one after every campaign: what is answered after a backup is forgotten by whoever restores
    it.
    """
    with clear_errors():
        place = Home(home)
        place.backup(folder)
        records, _ = place.ledger().spent_by_record()
        print(f"wrote {folder}: the ledger knows {records} records that have answered")


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="a folder that `backup` wrote")],
    home: Folder = DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Bring a backup back: into an empty folder, or into the one it was made of."""
    with clear_errors():
        print(
            "The ledger in place, if there is one, keeps what it knows and learns what the backup "
            "knows."
        )
        print(
            "What your records answered after the backup, in a ledger that is lost, stays "
            "forgotten: they could lose more"
        )
        print(
            "than your policy allows. Restore it once: two folders made of one would each spend "
            "the whole budget."
        )
        _confirm("Restore it?", yes)
        place = Home(home)
        for path in place.restore(folder):
            print(f"wrote {path}")
        campaigns = place.ledger().campaigns()
        last = (
            f"{campaigns[-1].campaign!r} at {campaigns[-1].last[:19]} (UTC)"
            if campaigns
            else "none"
        )
        print(f"The last campaign that the ledger knows now: {printable(last)}.")


allow = CommandLine("Add an aggregator or a model to the policy.")
app.add_typer(allow, name="allow")
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


@allow.command("aggregator")
def allow_aggregator(
    key: Annotated[
        str,
        typer.Argument(help="its public key: 64 hexadecimal digits, as the aggregator shows it"),
    ],
    home: Folder = DEFAULT,
    yes: Yes = False,
) -> None:
    """Answer the plans that this key signs, within the rest of the policy."""
    with clear_errors():
        value = _digits("key", key)
        print(f"Plans signed by {value.hex()} will be answered, within the rest of your policy.")
        print(
            "Compare the key with the one that the aggregator gave you on another way than this "
            "one."
        )
        _list(Home(home), {"aggregators": value}, yes)


@allow.command("model")
def allow_model(
    model: Annotated[
        str,
        typer.Argument(help="the model's file (.onnx), or its SHA-256 as 64 hexadecimal digits"),
    ],
    home: Folder = DEFAULT,
    vetted: Annotated[
        bool,
        typer.Option("--vetted", help="let it see many records at once: you have looked into it"),
    ] = False,
    yes: Yes = False,
) -> None:
    """Let this model score your records, one at a time (or in batches, if you have vetted it)."""
    with clear_errors():
        if Path(model).exists():
            found = Model.read(Path(model))
            check_model(found, model)
            print(f"{model}: {len(found.data)} bytes, no external data, no custom operators.")
            value = found.digest
        else:
            value = _digits("model", model)
            print(
                "There is no such file, so this is taken as the digest of a model, which is "
                "checked when it is used."
            )
        print(f"The model with SHA-256 {value.hex()} may score your records.")
        if vetted:
            print(
                "It will see many at once. If it was made to, it can let one record speak through "
                "all the others."
            )
        _list(Home(home), {"models": value} | ({"vetted_models": value} if vetted else {}), yes)


def _list(place: Home, values: dict[str, bytes], yes: bool) -> None:
    """Add values to lists of the policy, after the owner has said so."""
    place.policy()
    path = place.policy_file.resolve()
    text = path.read_text(encoding="utf-8-sig")
    for name, value in values.items():
        text = list_in(text, name, value)
    _confirm(f"Write this into {place.policy_file}?", yes)
    write_whole(path, text, mode=0o600)
    print(f"wrote {place.policy_file}: {', '.join(values)}")


def _digits(what: str, text: str) -> bytes:
    if re.fullmatch("[0-9a-fA-F]{64}", text) is None:
        raise BadInput(
            f"{what} is {text!r}; accepted are 64 hexadecimal digits"
            + (", or a file" if what == "model" else "")
        )
    return bytes.fromhex(text)


def _confirm(question: str, yes: bool) -> None:
    if not yes and not typer.confirm(question):
        print("nothing was changed")
        raise typer.Exit(1)


@app.command()
def status(home: Folder = DEFAULT) -> None:
    """What was spent, on what, for whom."""
    with clear_errors():
        place = Home(home)
        policy, ledger = place.policy(), place.ledger()
        table = Table(title="campaigns answered", title_justify="left")
        for heading in (
            "campaign",
            "plan",
            "records",
            "epsilon a record",
            "queries",
            "spent but not sent",
            "last (UTC)",
        ):
            table.add_column(heading, overflow="fold")
        for row in ledger.campaigns():
            amounts = (str(row.records), f"{row.epsilon:g}", str(row.queries), str(row.unanswered))
            table.add_row(Text(row.campaign), row.plan.hex()[:16], *amounts, row.last[:19])
        records, most = ledger.spent_by_record()
        console = Console() if sys.stdout.isatty() else Console(width=120)
        console.print(table)
        print(
            f"{records} records have answered; the most any has spent is {most:g} of "
            f"{policy.epsilon_per_record:g} allowed."
        )


@app.command("explain")
def explain_command(
    plan: Annotated[Path, typer.Argument(help="a signed plan, as a file")], home: Folder = DEFAULT
) -> None:
    """What this plan would learn about a record, in plain words, and whether the policy allows it
    (else exit code 1)."""
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
            print(f"This plan is refused before it is read: {_why(refused.code, data)}")
            raise typer.Exit(1) from None
        print(explain(opened, policy))
        known, spent = (
            Home(home)
            .ledger()
            .cannot_pay(Cost(opened.epsilon, opened.privacy_delta), policy.limits)
        )
        if known:
            print(
                f"Your ledger knows {known} records or persons; {spent} of them have too little "
                "budget left for it."
            )
        if policy.refusals(opened):
            raise typer.Exit(1)


def _why(code: int, data: bytes) -> str:
    reasons: dict[int, str] = {
        wire.Code.MALFORMED: "it is not a signed plan",
        wire.Code.WRONG_VERSION: "it is of another protocol version",
        wire.Code.UNSIGNED: "it carries no signature",
        wire.Code.BAD_SIGNATURE: "its signature does not fit its content",
        wire.Code.NOT_YET_VALID: "it is not valid yet",
        wire.Code.EXPIRED: "it has expired",
    }
    if code == wire.Code.UNKNOWN_KEY:
        return (
            f"its key {parse(wire.SignedPlan, data).key.hex()} is not among the policy's "
            "`aggregators`"
        )
    return reasons[code]


@app.command()
def doctor(
    home: Folder = DEFAULT,
    records: Annotated[Path | None, typer.Option(help="records to try reading")] = None,
    model: Annotated[Path | None, typer.Option(help="model that scores them (.onnx)")] = None,
) -> None:
    """Check that everything is in place: files, permissions, ledger, and model and records if
    given.

    Nothing is scored and nothing is spent. Exit code 1 if something is not in order.
    """
    place = Home(home)
    checks: dict[str, Callable[[], str]] = {
        "policy": lambda: f"{len(place.policy().aggregators)} trusted aggregators",
        "secret": lambda: f"{len(place.secret())} bytes{_exposed(place.secret_file)}",
        "ledger": lambda: (
            f"{len(place.ledger().campaigns())} campaigns{_exposed(place.ledger_file)}"
        ),
    }
    if model is not None:
        checks["model"] = lambda: _described(model, place)
    if records is not None:
        checks["records"] = lambda: f"{len(read_records(records))} records"
    failed = False
    for name, check in checks.items():
        try:
            print(f"ok      {name}: {check()}")
        except BadInput as error:
            failed = True
            print(f"WRONG   {name}: {error}")
    if failed:
        raise typer.Exit(1)


def _described(path: Path, place: Home) -> str:
    model = Model.read(path)
    check_model(model, str(path))
    policy = place.policy()
    listed = (
        "vetted"
        if model.digest in policy.vetted_models
        else "allowed"
        if model.digest in policy.models
        else "not allowed yet"
    )
    return f"digest {model.digest.hex()}, {listed} by your policy"


@app.command("plan")
@connected
def plan_command(
    remote: Aggregator,
    out: Annotated[Path, typer.Option(help="file for the signed plan")] = Path("plan.bin"),
) -> None:
    """Fetch the plan of a campaign, to read it with `explain` before taking part."""
    write_whole(out, remote.plan())
    print(f"wrote {out}; `confide-client explain {out}` says what it asks")


@app.command("card")
@connected
def card_command(
    remote: Aggregator,
    out: Annotated[Path, typer.Option(help="file for the card")] = Path("card.json"),
    home: Folder = DEFAULT,
) -> None:
    """Fetch the published card of a campaign and decide it again here.

    Exit code 0: all of it holds; 1: it is not published yet, not from an aggregator of your policy,
    or does not hold.
    """
    # The verifier needs scipy, which takes longer to load than the other commands to run.
    from confide.protocol.cards.verify.card import verify

    trusted = Home(home).policy().aggregators
    text = remote.card()
    if text is None:
        _fail("the card of this campaign is not published yet")
    try:
        card = parse_card(text)
    except BadInput as error:
        _fail(f"what the aggregator sends is no card: {printable(str(error))}")
    if card.key not in trusted:
        _fail(
            f"the card's key {card.key.hex() or '(none)'} is not among the policy's `aggregators`"
        )
    about = Finding(
        "campaign",
        (card.provenance["plan"] or "").startswith(remote.campaign),
        "it is the card of another one",
    )
    findings = [about, *verify(card)]
    write_whole(out, text)
    print(f"wrote {out}")
    print(printable(headline(card)))
    broken = [finding for finding in findings if not finding.holds]
    for finding in broken:
        print(printable(f"FAILS  {finding.clause}: {finding.detail}"))
    if broken:
        raise typer.Exit(1)
    print(f"holds: {len(findings)} clauses recomputed, signed by {card.key.hex()}")


@app.command()
@connected
def contribute(
    remote: Aggregator,
    records: Annotated[Path, typer.Option(help="your records (.npz, .csv or .parquet)")],
    model: Annotated[Path | None, typer.Option(help="model that scores them (.onnx)")] = None,
    home: Folder = DEFAULT,
    new_records: Annotated[
        bool,
        typer.Option(
            "--new-records",
            help="most records of this file are new, and not old ones under other ids",
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch/--once", help="until the campaign is over, or only what is open now"),
    ] = True,
) -> None:
    """Take part in a campaign: your machine asks what is asked, answers within your policy, and
    receives no code.

    Exit code 0: all that was asked was answered and is held; 1: refused or not delivered; 2:
    something here is not in order.
    """
    place = Home(home)
    policy, ledger = place.policy(), place.ledger()
    respondent = open_owner(place, records, model, new_records=new_records)
    if model is not None and (found := Model.read(model)).digest in policy.models:
        # What is wrong with it is better said here than in a code to the aggregator.
        check_model(found, str(model))
    signed = remote.plan()
    try:
        plan, digest = open_plan(signed, trusted=policy.aggregators, now=datetime.now(UTC))
    except Refused as refused:
        _fail(f"this plan is refused before it is read: {_why(refused.code, signed)}")
    if plan.training is None and model is None and not respondent.scored:
        raise BadInput(
            f"{records} holds features and no probabilities; accepted is also --model, the file "
            "that scores them"
        )
    taking_part = Contribution(remote, respondent, ledger, plan, digest, signed)
    try:
        left = taking_part.watch() if watch else taking_part.once()
    except Unreachable as error:
        _fail(f"{error}{_queued(ledger, digest)}")
    if left.withheld:
        _fail(
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
        _fail(f"not every query was answered and is held{_queued(ledger, digest)}")


def _fail(why: str) -> NoReturn:
    print(f"error: {why}", file=sys.stderr)
    raise typer.Exit(1)


def _queued(ledger: Ledger, plan: bytes) -> str:
    return "; what was not sent is kept and sent next time" if ledger.unacknowledged(plan) else ""


@app.command()
def register(
    records: Annotated[Path, typer.Argument(help="your records (.npz, .csv or .parquet)")],
    home: Folder = DEFAULT,
    new_records: Annotated[
        bool,
        typer.Option(
            "--new-records", help="most of them are new, and not old ones under other ids"
        ),
    ] = False,
) -> None:
    """Tell the ledger of a file's records before a Flower node uses it; `contribute` does so by
    itself."""
    with clear_errors():
        known = open_owner(Home(home), records, None, new_records=new_records).admit(new=False)
        print(f"{records}: the ledger knows all {known} records (or persons) of it")


@app.command("bundle-hash")
def bundle_hash_command(
    project: Annotated[Path, typer.Argument(help="checkout of the Flower app")] = Path("."),
) -> None:
    """The hash of the bundle that Flower ships from a checkout: read its code, then allow it with
    `pin`."""
    with clear_errors():
        print(bundle_hash(project))


@app.command("pin")
def pin_command(
    folder: Annotated[
        Path,
        typer.Argument(
            help="folder for the launchers; put it first on the PATH of flower-supernode"
        ),
    ],
    allow: Annotated[
        list[str], typer.Option(help="hash of a bundle whose runs are answered; may be repeated")
    ] = [],  # noqa: B006
) -> None:
    """Write launchers for a SuperNode that runs the client installed here and never the code it is
    sent."""
    with clear_errors():
        pin(folder, allow)
        print(
            f"wrote launchers into {folder}; start the node with PATH={folder.resolve()}:$PATH "
            "flower-supernode ..."
        )
        print(f"{len(read_allowed(folder))} bundles are allowed")


def _exposed(path: Path) -> str:
    return ", readable by others: `chmod 600` it" if os.stat(path).st_mode & 0o077 else ""
