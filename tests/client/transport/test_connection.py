import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from typer.testing import CliRunner

from confide.aggregator.keys import create_keys
from confide.aggregator.storage.stored_campaign import Settings
from confide.client.cli.app import app
from confide.client.transport.grpc_client import Access, Aggregator
from confide.client.transport.retry import Patience, Unreachable
from confide.protocol.plan import sign_plan
from confide.protocol.wire.service import SERVICE
from tests.support.owners.owners import KEY, PUBLIC, records, scored
from tests.support.servers.servers import Place, Running, contribution, eventually, plan_now

PLAN = plan_now(campaign="asked", epsilon=2.0, variant="one-shot", expected_records=2_000)


@dataclass
class Scene:
    """A server, an owner's home and records, and three campaigns: one that is published, one that
    is asking, and a draft."""

    place: Place
    server: Running
    folder: Path
    published: str
    asking: str
    draft: str

    def client(
        self, command: str, campaign: str, *options: Any, home: str = "home"
    ) -> tuple[int, str, str]:
        """A command of the owner's that reaches the server; options given again replace these."""
        given = (
            command,
            "--campaign",
            campaign,
            "--aggregator",
            f"127.0.0.1:{self.server.port}",
            "--ca",
            self.place.keys / "ca.pem",
            "--token-file",
            self.folder / "token",
            *options,
        )
        if command in ("contribute", "card"):
            given += ("--home", self.folder / home)
        if command == "contribute":
            given += ("--records", self.folder / "records.npz", "--once")
        result = CliRunner().invoke(app, [str(one) for one in given])
        return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    place = Place(folder / "aggregator")
    try:
        published = place.campaign(PLAN, owners=1)
        server, token = place.serve(), place.enrol("owner")
        contribution(server.access(token), PLAN, folder / "other", seed=2, n=2_000).watch()
        eventually(lambda: place.store.campaign(published).state == "calibrated")
        asking = place.campaign(plan_now(PLAN, campaign="asking"))
        draft = place.store.create(
            sign_plan(plan_now(PLAN, campaign="draft"), KEY), Settings(), now=time.time()
        ).id
        eventually(lambda: place.store.rounds(asking))
        (folder / "token").write_text(token)
        data = records(2_000, 1)
        np.savez(
            folder / "records.npz", probs=scored(data), labels=data.truth, ids=np.arange(2_000)
        )
        for home, keys in {"home": f'["{PUBLIC.hex()}"]', "distrusting": "[]"}.items():
            assert CliRunner().invoke(app, ["init", "--home", str(folder / home)]).exit_code == 0
            policy = folder / home / "policy.toml"
            text = policy.read_text().replace("aggregators = []", f"aggregators = {keys}")
            policy.write_text(text.replace("\nmodels = []", f'\nmodels = ["{PLAN.model.hex()}"]'))
        yield Scene(place, server, folder, published, asking, draft)
    finally:
        place.close()


def test_an_owner_reads_the_plan_before_and_the_card_after(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are fetched into files; a card that is not out yet, a stranger's, another campaign's or
    altered is exit code 1."""
    plan, card = scene.folder / "plan.bin", scene.folder / "card.json"
    assert scene.client("plan", scene.published, "--out", plan)[0] == 0
    assert plan.read_bytes() == sign_plan(PLAN, KEY)
    explained = CliRunner().invoke(
        app, ["explain", str(plan), "--home", str(scene.folder / "home")]
    )
    assert (explained.exit_code, "is allowed" in explained.stdout) == (0, True)

    def fetch(campaign: str = scene.published, home: str = "home") -> tuple[int, str]:
        code, out, err = scene.client("card", campaign, "--out", card, home=home)
        return code, out + err

    code, said = fetch()
    assert (code, "not published yet" in said, card.exists()) == (1, True, False)
    scene.place.store.publish(scene.published, now=time.time())
    eventually(lambda: fetch()[0] == 0)
    said = fetch()[1]
    assert "coverage 0.9" in said
    assert "holds: " in said
    text = card.read_text()
    assert json.loads(text)["formal"]["contract"]["name"] == "asked"
    card.unlink()
    code, said = fetch(home="distrusting")
    assert (code, "not among the policy's `aggregators`" in said, card.exists()) == (1, True, False)
    shown = text
    monkeypatch.setattr(Aggregator, "card", lambda self: shown)
    code, said = fetch(campaign=scene.asking)
    assert (code, "FAILS  campaign" in said) == (1, True)
    shown = text.replace('"name": "asked"', '"name": "altered"')
    code, said = fetch()
    assert (code, "FAILS  signature" in said, "holds" in said) == (1, True, False)
    shown = '{"\\u001b[2J": 1}'
    code, said = fetch()
    assert (code, "is no card" in said, "\x1b" in said) == (1, True, False)


def test_where_nothing_is_asked_nothing_is_said_to_be_spent(scene: Scene) -> None:
    """A draft, or a campaign that is over."""
    for campaign in (scene.draft, scene.published):
        code, said, _ = scene.client("contribute", campaign)
        assert (
            code,
            "asks nothing now: nothing left this machine, and nothing was spent" in said,
        ) == (0, True)
        assert "epsilon" not in said


def test_only_what_is_queued_is_said_to_be_sent_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after a wrong token or an unknown campaign, where nothing was asked; but after an answer
    that did not get through."""
    (scene.folder / "wrong").write_text("wrong")
    later = "sent next time"
    code, _, said = scene.client("contribute", scene.asking, "--token-file", scene.folder / "wrong")
    assert (code, "does not accept this token" in said, later in said) == (1, True, False)
    code, _, said = scene.client("contribute", "f" * 16)
    assert (code, "no campaign of this id" in said, later in said) == (1, True, False)

    def offline(self: Aggregator, answers: Any, *, ask: Any) -> None:
        raise Unreachable("offline")

    with monkeypatch.context() as patched:
        patched.setattr(Aggregator, "submit", offline)
        code, _, said = scene.client("contribute", scene.asking)
    assert (code, said) == (1, f"error: offline; what was not sent is kept and {later}\n")
    code, said, _ = scene.client("contribute", scene.asking)
    assert (code, "2000 reports" in said, "2000 records have spent epsilon 2 each" in said) == (
        0,
        True,
        True,
    )


@pytest.mark.parametrize("campaign", ["", "abcdef", "f" * 15, "F" * 16, "f" * 17, "f" * 65])
def test_a_shortened_id_is_refused_before_any_connection(campaign: str) -> None:
    """The message says what is needed, and nobody is called."""
    given = ["--campaign", campaign, "--aggregator", "192.0.2.1:1", "--token-file", "none"]
    result = CliRunner().invoke(app, ["plan", *given])
    assert (result.exit_code, "full id of 16 hexadecimal digits" in result.stderr) == (2, True)


def test_certificates_that_do_not_fit_are_told_at_once(scene: Scene, tmp_path: Path) -> None:
    """Files that are no PEM or no pair are exit code 2; another authority, or another name than the
    certificate's, is 1."""
    create_keys(tmp_path / "other", address="127.0.0.1", now=datetime.now(UTC))
    other, pair = tmp_path / "other", ("--cert", scene.place.keys / "server.pem", "--key")
    (tmp_path / "garbage").write_text("garbage")
    started = time.monotonic()
    for options in (
        ("--ca", tmp_path / "garbage"),
        (*pair, tmp_path / "garbage"),
        (*pair, other / "server.key"),
        (*pair, tmp_path / "none"),
    ):
        code, _, said = scene.client("plan", scene.asking, *options)
        assert (code, "PEM" in said) == (2, True), said
    code, _, said = scene.client("plan", scene.asking, "--ca", other / "ca.pem")
    assert (code, "--ca must be its authority" in said) == (1, True), said
    code, _, said = scene.client(
        "plan", scene.asking, "--aggregator", f"localhost:{scene.server.port}"
    )
    assert (code, "its certificate must name this host" in said) == (1, True), said
    assert time.monotonic() - started < 60


def test_an_owner_is_told_that_there_is_no_answer(scene: Scene) -> None:
    """Without TLS to a server that has it, or nobody there: a line at once, with the reason, and
    the end with patience."""
    address = f"127.0.0.1:{scene.server.port}"
    for options, reason in (
        (("--insecure-loopback",), "it may expect TLS"),
        (("--aggregator", "127.0.0.1:1"), "Connection refused"),
    ):
        code, _, said = scene.client("plan", scene.asking, "--patience", "1", *options)
        first, last = said.splitlines()
        assert (code, reason in first, reason in last) == (1, True, True)
        assert first.startswith("no answer from 127.0.0.1:")
        assert first.endswith("; trying again for 1 s")
    assert (
        scene.client("plan", scene.asking, "--aggregator", address, "--out", scene.folder / "p")[0]
        == 0
    )


def test_what_an_aggregator_says_cannot_disturb_a_terminal() -> None:
    """Its words are shown without control characters, and not all of them."""

    def call(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "\x1b[2Jgone\n" + "x" * 1_000)
        return b""

    server = grpc.server(ThreadPoolExecutor(1))
    methods = {"FetchPlan": grpc.unary_unary_rpc_method_handler(call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    remote = Aggregator(Access(f"127.0.0.1:{port}", "token"), "f" * 16, patience=Patience(5))
    try:
        with pytest.raises(Unreachable, match="gone") as refused:
            remote.plan()
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 300
    finally:
        remote.close()
        server.stop(0).wait()
