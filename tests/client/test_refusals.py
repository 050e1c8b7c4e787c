"""Plans, queries and titles that an owner refuses."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from confide.client.cli.app import app
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.protocol.errors import BadInput, Refused
from confide.protocol.plan import digest, open_plan, sign_plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION
from tests.support.owners.owners import KEY, LABEL_PLAN, NOW, PLAN, POLICY, changed, owner, signed
from tests.support.owners.queries import bit_query, code, label_query


def altered(data: bytes) -> bytes:
    message = wire.SignedPlan.FromString(data)
    plan = wire.Plan.FromString(message.plan)
    terms = wire.BitTerms.FromString(plan.terms)
    terms.epsilon = 3.9
    plan.terms = terms.SerializeToString(deterministic=True)
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
        (replace(POLICY, probabilities_may_leave=False), LABEL_PLAN, "PROBABILITIES_MAY_NOT_LEAVE"),
        (POLICY, changed(LABEL_PLAN, sent_features=3), "FEATURES_MAY_NOT_LEAVE"),
        (replace(POLICY, models=frozenset({b"m" * 32})), PLAN, "MODEL_NOT_ALLOWED"),
        (replace(POLICY, models=frozenset()), PLAN, "MODEL_NOT_ALLOWED"),
        (replace(POLICY, minimum_group=2_001), PLAN, "GROUP_TOO_SMALL"),
    ],
)
def test_the_policy_is_kept(policy: Policy, plan: Any, expected: str, tmp_path: Path) -> None:
    """Every clause, broken alone, refuses with its own code before anything is spent."""
    query = bit_query(0.5, plan=plan)
    if plan.method == "labels":
        query = label_query(plan)
    assert code(owner(tmp_path, policy=policy).answer(signed(plan), query)) == expected
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (0, 0.0)


def test_a_query_of_another_plan_is_refused(tmp_path: Path) -> None:
    """A query must name the plan it comes with, and be one."""
    one = owner(tmp_path)
    assert (
        code(one.answer(signed(), bit_query(0.5, plan=changed(PLAN, campaign="other"))))
        == "WRONG_PLAN"
    )
    assert code(one.answer(signed(), b"\xff")) == "MALFORMED"
    assert code(one.answer(signed(), wire.Query(version=9).SerializeToString())) == "WRONG_VERSION"
    body = wire.BitQuery(start=0.5, stop=0.2, thresholds=[0.1]).SerializeToString()
    bad = wire.Query(version=VERSION, plan=digest(PLAN.to_bytes()), body=body)
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
    assert answer == wire.Answer(version=VERSION, code="INTERNAL").SerializeToString()


@pytest.mark.parametrize("title", ["\x1b[2Jgone", "two\nlines", "bell\a", "", "x" * 201])
def test_a_title_that_would_disturb_a_terminal_makes_no_plan(title: str, tmp_path: Path) -> None:
    """Not here, and not over the wire under a good signature."""
    with pytest.raises(BadInput, match="printable"):
        changed(PLAN, campaign=title)
    message = wire.Plan.FromString(PLAN.to_bytes())
    message.campaign = title
    data = message.SerializeToString(deterministic=True)
    plan = wire.SignedPlan(
        plan=data,
        key=KEY.public_key().public_bytes_raw(),
        signature=KEY.sign(b"confide plan v2\0" + data),
    )
    assert code(owner(tmp_path).answer(plan.SerializeToString(), bit_query(0.5))) == "MALFORMED"


def test_a_title_is_shown_as_it_is(tmp_path: Path) -> None:
    """What looks like markup neither styles nor breaks the owner's table."""
    assert CliRunner().invoke(app, ["init", "--home", str(tmp_path)]).exit_code == 0
    (tmp_path / "secret.key").write_bytes(bytes(32))
    (tmp_path / "ledger.sqlite").unlink()
    plan = changed(PLAN, campaign="[/b] [red]x")
    assert code(owner(tmp_path).answer(signed(plan), bit_query(0.5, plan=plan))) == "OK"
    result = CliRunner().invoke(app, ["status", "--home", str(tmp_path)])
    assert (result.exit_code, "[/b] [red]x" in result.stdout) == (0, True)


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
