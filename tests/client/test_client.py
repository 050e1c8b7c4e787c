import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import TooFewReports, run_campaign
from confide.aggregator.procedures.bits import replay
from confide.client.cli import app
from confide.client.ledger import Ledger
from confide.client.policy import Policy
from confide.protocol.channels.kinds import Bit
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.queries import BitQuery, LabelQuery
from confide.protocol.plan import digest, open_plan, sign_plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.packing import query_digest, write_query
from tests.support.known import label_coverage
from tests.support.owners import KEY, LABEL_PLAN, NOW, PLAN, POLICY, K, asking, owner, signed
from tests.support.places import ROOT


def bit_query(
    *thresholds: float, start: float = 0.0, stop: float = 1.0, round_: int = 0, plan: Any = PLAN
) -> bytes:
    query = BitQuery(Bit(epsilon=plan.epsilon), start, stop, thresholds)
    return write_query(query, plan=digest(plan.to_bytes()), round_=round_)


def code(answer: bytes) -> str:
    return str(wire.Code.Name(wire.Answer.FromString(answer).code))


@pytest.mark.parametrize(
    "plan",
    [PLAN, replace(PLAN, variant="one-shot"), LABEL_PLAN, replace(LABEL_PLAN, channel="subset")],
)
def test_a_campaign_runs_from_owners_to_certificate(plan: Any, tmp_path: Path) -> None:
    """Three owners behind policy and ledger answer over the wire format; the threshold covers and
    every record is counted."""
    owners = [owner(tmp_path / str(seed), seed=seed) for seed in range(3)]
    outcome = run_campaign(plan, asking(signed(plan), owners))
    certificate = outcome.certificate
    assert certificate.n == 6_000
    assert set(outcome.received) == {"OK"}
    assert certificate.randomness == "seeded (simulation only)"
    assert not certificate.trivial
    assert label_coverage(certificate.threshold, K) >= 0.9
    if plan.method == "bits":
        assert replay(certificate, Bit(epsilon=plan.epsilon)) == certificate.threshold


def test_a_campaign_run_again_gets_the_same_answers_and_spends_nothing(tmp_path: Path) -> None:
    """Fresh processes on the same ledgers, other randomness: the answers are remembered, so the
    threshold is the same."""
    first = run_campaign(
        PLAN, asking(signed(), [owner(tmp_path / str(seed), seed=seed) for seed in range(3)])
    )
    spent = [Ledger(tmp_path / str(seed) / "ledger.sqlite").spent_by_record() for seed in range(3)]
    again = [
        owner(tmp_path / str(seed), seed=seed, entropy=lambda size: b"\xff" * size)
        for seed in range(3)
    ]
    assert run_campaign(PLAN, asking(signed(), again)) == first
    assert (
        [Ledger(tmp_path / str(seed) / "ledger.sqlite").spent_by_record() for seed in range(3)]
        == spent
        == [(2_000, 4.0)] * 3
    )


def test_a_record_answers_a_campaign_once(tmp_path: Path) -> None:
    """Asked the same, the same bytes; asked with another threshold or slice, nothing more is drawn
    for spent records."""
    one = owner(tmp_path)
    first = one.answer(signed(), bit_query(0.5))
    assert code(first) == "OK"
    assert one.answer(signed(), bit_query(0.5)) == first
    for again in (
        bit_query(0.6),
        bit_query(0.5, stop=0.5),
        bit_query(0.5, 0.5),
        bit_query(0.5, round_=1),
    ):
        assert code(one.answer(signed(), again)) == "ALREADY_SPENT"
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (2_000, 4.0)


def test_overlapping_slices_reach_only_fresh_records(tmp_path: Path) -> None:
    """A slice that overlaps an earlier one is answered by the records that had not answered yet."""
    one = owner(tmp_path)
    half = wire.Answer.FromString(one.answer(signed(), bit_query(0.5, stop=0.5)))
    rest = wire.Answer.FromString(one.answer(signed(), bit_query(0.6)))
    ids = [
        batch.ids[i : i + 16]
        for batch in (half.batch, rest.batch)
        for i in range(0, len(batch.ids), 16)
    ]
    assert len(ids) == len(set(ids)) == 2_000


def test_a_hostile_aggregator_stays_within_policy(tmp_path: Path) -> None:
    """New campaign names, other thresholds, higher epsilons: refusals, and no record spends more
    than it may."""
    one = owner(tmp_path)
    outcomes: Counter[str] = Counter()
    for i in range(12):
        plan = replace(PLAN, campaign=f"again {i}", epsilon=(1.0, 3.0, 4.0, 20.0)[i % 4])
        outcomes[code(one.answer(signed(plan), bit_query(0.1 + i / 20, plan=plan)))] += 1
    assert set(outcomes) == {"OK", "ALREADY_SPENT", "EPSILON_PER_CAMPAIGN"}
    records, most = Ledger(tmp_path / "ledger.sqlite").spent_by_record()
    assert (records, most) == (2_000, 8.0)


def test_answers_from_the_operating_system_are_not_stamped(tmp_path: Path) -> None:
    """Only a campaign without a single seeded report is certified as private."""
    real, seeded = owner(tmp_path / "a", seed=0, entropy=os_entropy), owner(tmp_path / "b", seed=1)
    assert run_campaign(PLAN, asking(signed(), [real])).certificate.randomness == "operating system"
    assert (
        run_campaign(PLAN, asking(signed(), [real, seeded])).certificate.randomness
        == "seeded (simulation only)"
    )


def test_report_ids_do_not_link_campaigns(tmp_path: Path) -> None:
    """The same records answer two campaigns under different names."""
    one = owner(tmp_path)
    other = replace(PLAN, campaign="other")
    first, second = (
        wire.Answer.FromString(one.answer(signed(p), bit_query(0.5, plan=p))).batch.ids
        for p in (PLAN, other)
    )
    names = [{data[i : i + 16] for i in range(0, len(data), 16)} for data in (first, second)]
    assert len(names[0]) == len(names[1]) == 2_000
    assert not names[0] & names[1]


def test_the_order_of_reports_does_not_link_campaigns(tmp_path: Path) -> None:
    """Reports leave in the order of their ids, which is that of a keyed hash, not in the order of
    the owner's file."""
    one, orders = owner(tmp_path), []
    for plan in (replace(LABEL_PLAN, campaign=name) for name in ("first", "second")):
        query = write_query(
            LabelQuery(plan.label_channel()), plan=digest(plan.to_bytes()), round_=0
        )
        batch = wire.Answer.FromString(one.answer(signed(plan), query)).batch
        ids = [batch.ids[i : i + 16] for i in range(0, len(batch.ids), 16)]
        assert ids == sorted(ids)
        orders.append(batch.probabilities)
    assert len(orders[0]) == len(orders[1])
    assert orders[0] != orders[1]


def altered(data: bytes) -> bytes:
    message = wire.SignedPlan.FromString(data)
    plan = wire.Plan.FromString(message.plan)
    plan.epsilon = 3.9
    message.plan = plan.SerializeToString(deterministic=True)
    return message.SerializeToString()


STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (b"\xff\xff", "MALFORMED"),
        (wire.SignedPlan(plan=PLAN.to_bytes()).SerializeToString(), "UNSIGNED"),
        (sign_plan(PLAN, STRANGER), "UNKNOWN_KEY"),
        (altered(signed()), "BAD_SIGNATURE"),
        (signed(expires=NOW), "EXPIRED"),
        (signed(issued=NOW + timedelta(hours=1)), "NOT_YET_VALID"),
    ],
)
def test_plans_that_are_not_in_order_are_refused(
    plan: bytes, expected: str, tmp_path: Path
) -> None:
    """Garbage, no signature, a stranger's, an altered plan, too late, too early: a code, and
    nothing is spent."""
    assert code(owner(tmp_path).answer(plan, bit_query(0.5))) == expected
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (0, 0.0)


@pytest.mark.parametrize(
    ("policy", "plan", "expected"),
    [
        (replace(POLICY, methods=frozenset({"labels"})), PLAN, "METHOD_NOT_ALLOWED"),
        (replace(POLICY, epsilon_per_campaign=3.9), PLAN, "EPSILON_PER_CAMPAIGN"),
        (replace(POLICY, epsilon_per_record=3.9), PLAN, "EPSILON_PER_RECORD"),
        (replace(POLICY, features_may_leave=False), LABEL_PLAN, "FEATURES_MAY_NOT_LEAVE"),
        (replace(POLICY, models=frozenset({b"m" * 32})), PLAN, "MODEL_NOT_ALLOWED"),
        (replace(POLICY, models=frozenset()), PLAN, "MODEL_NOT_ALLOWED"),
        (replace(POLICY, minimum_group=2_001), PLAN, "GROUP_TOO_SMALL"),
    ],
)
def test_the_policy_is_kept(policy: Policy, plan: Any, expected: str, tmp_path: Path) -> None:
    """Every clause, broken alone, refuses with its own code before anything is spent."""
    query = bit_query(0.5, plan=plan)
    if plan.method == "labels":
        query = write_query(
            LabelQuery(plan.label_channel()), plan=digest(plan.to_bytes()), round_=0
        )
    assert code(owner(tmp_path, policy=policy).answer(signed(plan), query)) == expected
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (0, 0.0)


def test_a_query_of_another_plan_is_refused(tmp_path: Path) -> None:
    """A query must name the plan it comes with, and be one."""
    one = owner(tmp_path)
    assert (
        code(one.answer(signed(), bit_query(0.5, plan=replace(PLAN, campaign="other"))))
        == "WRONG_PLAN"
    )
    assert code(one.answer(signed(), b"\xff")) == "MALFORMED"
    assert code(one.answer(signed(), wire.Query(version=9).SerializeToString())) == "WRONG_VERSION"
    bad = wire.Query(version=1, plan=digest(PLAN.to_bytes()), start=0.5, stop=0.2, thresholds=[0.1])
    assert code(one.answer(signed(), bad.SerializeToString())) == "MALFORMED"


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(min_size=1),
    kind=st.sampled_from([ValueError, RuntimeError, KeyError, OSError, ArithmeticError]),
)
def test_exceptions_never_reach_the_other_side(
    text: str, kind: type[Exception], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is raised inside, the answer is the one code INTERNAL and not a byte of the text."""

    def failing(size: int) -> bytes:
        raise kind(text)

    answer = owner(tmp_path_factory.mktemp("owner"), n=50, entropy=failing).answer(
        signed(), bit_query(0.5)
    )
    assert answer == wire.Answer(version=1, code="INTERNAL").SerializeToString()


KILLED = """
import os, signal, sys
from pathlib import Path
from confide.client.ledger import Ledger
from confide.client.respond import Respondent
from tests.support.owners import NOW, POLICY, owner, records, signed
from tests.client.test_client import bit_query

folder, moment = Path(sys.argv[1]), sys.argv[2]

def die(at):
    if moment == at:
        os.kill(os.getpid(), signal.SIGKILL)

class Watched(Ledger):
    def answer(self, asked, *, draw, **given):
        die("before")
        def watched(places):
            drawn = draw(places)
            die("drawn")
            return drawn
        answer = super().answer(asked, draw=watched, **given)
        die("committed")
        return answer

def drawn(size):
    with open(folder / "draws", "a") as log:
        log.write(f"{os.getpid()}\\n")
        log.flush()
        os.fsync(log.fileno())
    die("drawing")
    return os.urandom(size)

one = Respondent(
    records=records(200, 0), policy=lambda: POLICY, ledger=Watched(folder / "ledger.sqlite"),
    secret=b"k" * 32, entropy=drawn, now=lambda: NOW,
)
answer = one.answer(signed(), bit_query(0.5))
(folder / f"sent-{os.getpid()}").write_bytes(answer)
die("sent")
"""


@pytest.mark.parametrize("moment", ["before", "drawing", "drawn", "committed", "sent"])
def test_killed_at_any_point_one_answer_leaves(moment: str, tmp_path: Path) -> None:
    """kill -9, restart, ask again, twice: before the commit nothing is spent and nothing left,
    after it none is drawn again."""

    def run(at: str) -> int:
        return subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), at], cwd=ROOT, timeout=60, check=False
        ).returncode

    assert run(moment) == -9
    held = moment in ("committed", "sent")
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (
        (200, 4.0) if held else (0, 0.0)
    )
    assert run("never") == run("never") == 0
    sent = {path.read_bytes() for path in tmp_path.glob("sent-*")}
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert sent == {ledger.remembered(digest(PLAN.to_bytes()), query_digest(bit_query(0.5)))}
    assert [code(answer) for answer in sent] == ["OK"]
    assert len(set((tmp_path / "draws").read_text().split())) == (
        2 if moment in ("drawing", "drawn") else 1
    )
    assert ledger.spent_by_record() == (200, 4.0)
    assert ledger.campaigns()[0].unanswered == 0


def test_two_processes_on_one_ledger_send_one_answer(tmp_path: Path) -> None:
    """Started together on the same ledger both may draw, one is kept, and both send the same
    bytes."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), "never"]
    both = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    sent = [path.read_bytes() for path in tmp_path.glob("sent-*")]
    assert [code(answer) for answer in sent] == ["OK", "OK"]
    assert len(set(sent)) == 1
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (200, 4.0)


def test_a_draw_that_fails_is_paid_for_and_not_repeated(tmp_path: Path) -> None:
    """That it failed is told, and may depend on the records: it is charged like an answer, and
    never tried again."""
    tried = []

    def failing(size: int) -> bytes:
        tried.append(size)
        raise ArithmeticError

    one = owner(tmp_path, entropy=failing)
    assert [
        code(one.answer(signed(), query))
        for query in (bit_query(0.5), bit_query(0.5), bit_query(0.6))
    ] == ["INTERNAL", "ALREADY_SPENT", "ALREADY_SPENT"]
    assert len(tried) == 1
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.spent_by_record() == (2_000, 4.0)
    assert ledger.campaigns()[0].unanswered == 1


def test_the_ledger_refuses_what_is_not_one(tmp_path: Path) -> None:
    """A file of another kind or of a later format is not touched."""
    (tmp_path / "text").write_text("not a database, and long enough to be looked at" * 20)
    with pytest.raises(ValueError, match="cannot be used as a ledger"):
        Ledger(tmp_path / "text")
    with sqlite3.connect(tmp_path / "later") as later:
        later.execute("PRAGMA user_version = 7")
    with pytest.raises(ValueError, match="format 7"):
        Ledger(tmp_path / "later")


def test_too_few_reports_fail_the_campaign_with_the_reasons(tmp_path: Path) -> None:
    """Below the plan's minimum there is no certificate, and the error says what came in instead."""
    refusing = owner(tmp_path, policy=replace(POLICY, methods=frozenset()))
    with pytest.raises(
        TooFewReports, match=r"at least 100; answers received: METHOD_NOT_ALLOWED \d"
    ):
        run_campaign(PLAN, asking(signed(), [refusing]))


def test_garbage_silence_and_repetition_do_not_disturb_a_campaign(tmp_path: Path) -> None:
    """One owner answers garbage, one never, one twice: the campaign completes on the right
    counts."""
    plan = signed()
    good, talkative = owner(tmp_path / "a", seed=0), owner(tmp_path / "b", seed=1)

    def ask(query: bytes) -> list[Sent]:
        said = Sent(b"talkative", talkative.answer(plan, query))
        return [
            Sent(b"good", good.answer(plan, query)),
            Sent(b"other", b"\xff\x00garbage"),
            said,
            said,
        ]

    outcome = run_campaign(PLAN, ask)
    rounds = outcome.received["MALFORMED"]
    assert outcome.received == {"OK": 2 * rounds, "MALFORMED": rounds, "DUPLICATE": rounds}
    quiet = run_campaign(
        PLAN, asking(plan, [owner(tmp_path / "a", seed=0), owner(tmp_path / "b", seed=1)])
    )
    assert quiet.certificate == outcome.certificate
    assert outcome.certificate.n == 4_000


@pytest.mark.parametrize("title", ["\x1b[2Jgone", "two\nlines", "bell\a", "", "x" * 201])
def test_a_title_that_would_disturb_a_terminal_makes_no_plan(title: str, tmp_path: Path) -> None:
    """Not here, and not over the wire under a good signature."""
    with pytest.raises(BadInput, match="printable"):
        replace(PLAN, campaign=title)
    message = wire.Plan.FromString(PLAN.to_bytes())
    message.campaign = title
    data = message.SerializeToString(deterministic=True)
    plan = wire.SignedPlan(
        plan=data,
        key=KEY.public_key().public_bytes_raw(),
        signature=KEY.sign(b"confide plan v1\0" + data),
    )
    assert code(owner(tmp_path).answer(plan.SerializeToString(), bit_query(0.5))) == "MALFORMED"


def test_a_title_is_shown_as_it_is(tmp_path: Path) -> None:
    """What looks like markup neither styles nor breaks the owner's table."""
    assert CliRunner().invoke(app, ["init", "--home", str(tmp_path)]).exit_code == 0
    (tmp_path / "secret.key").write_bytes(bytes(32))
    (tmp_path / "ledger.sqlite").unlink()
    plan = replace(PLAN, campaign="[/b] [red]x")
    assert code(owner(tmp_path).answer(signed(plan), bit_query(0.5, plan=plan))) == "OK"
    result = CliRunner().invoke(app, ["status", "--home", str(tmp_path)])
    assert (result.exit_code, "[/b] [red]x" in result.stdout) == (0, True)


def test_doctor_points_at_a_ledger_that_others_can_read(tmp_path: Path) -> None:
    """One from before ledgers were made for their owner alone."""
    assert CliRunner().invoke(app, ["init", "--home", str(tmp_path)]).exit_code == 0
    assert (
        "readable by others"
        not in CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)]).stdout
    )
    (tmp_path / "ledger.sqlite").chmod(0o644)
    assert (
        "0 campaigns, readable by others"
        in CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)]).stdout
    )


def test_the_signature_is_over_a_plan_and_nothing_else() -> None:
    """A key's signature over the bare bytes, without the protocol's prefix, does not make a
    plan."""
    data = PLAN.to_bytes()
    bare = wire.SignedPlan(
        plan=data, key=KEY.public_key().public_bytes_raw(), signature=KEY.sign(data)
    )
    with pytest.raises(Refused) as refused:
        open_plan(bare.SerializeToString(), trusted=POLICY.aggregators, now=NOW)
    assert refused.value.code == wire.Code.BAD_SIGNATURE
