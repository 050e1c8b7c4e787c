"""What an owner is told of a plan whose reports a shuffler mixes."""

from dataclasses import replace
from pathlib import Path

import pytest

from confide.aggregator.campaigns.planning.shuffler_file import shuffler_file, with_shuffler
from confide.client.explain import explain
from confide.client.policy import read_policy
from confide.client.policy_template import TEMPLATE
from confide.protocol.errors import BadInput
from confide.protocol.plan import digest, sign_plan, write_query
from confide.protocol.privacy.amplification import shuffled_epsilon
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.shuffled_plans import NAME, QUERY, SHUFFLED, SHUFFLING
from tests.support.owners.owners import KEY, PLAN, POLICY, PUBLIC, changed, owner
from tests.support.owners.queries import code


def test_an_owner_is_shown_what_mixing_leaves_and_what_is_charged() -> None:
    """Both epsilons, the shuffler's key, and that the ledger does not believe it; lies shrink the
    crowd. A plan without a shuffler says nothing of one."""
    page = " ".join(explain(SHUFFLED, POLICY).split())
    local = SHUFFLED.terms.explain(labels=5, alpha=0.1).epsilon
    amplified = shuffled_epsilon(local_epsilon=local, n=SHUFFLING.crowd, delta=1e-6)
    assert f"at most epsilon {amplified:.4f} of a record, with delta 1e-06" in page
    assert f"your ledger charges epsilon {local:.4f}" in page
    assert SHUFFLING.key.hex() in page
    fewer = " ".join(explain(changed(SHUFFLED, max_corrupt=60), POLICY).split())
    less = shuffled_epsilon(local_epsilon=local, n=SHUFFLING.crowd - 60, delta=1e-6)
    assert f"at most epsilon {less:.4f}" in fewer
    assert less > amplified
    assert "shuffler" not in explain(PLAN, POLICY)


def test_an_owner_may_list_the_shufflers_that_it_accepts(tmp_path: Path) -> None:
    """Without a list any will do; with one, a plan that names another is refused, in words too. A
    policy file may leave the clause out."""
    listed = replace(POLICY, shufflers=frozenset({SHUFFLING.key}))
    other = replace(POLICY, shufflers=frozenset({b"o" * 32}))
    for policy, broken in ((POLICY, []), (listed, []), (other, [wire.Code.SHUFFLER_NOT_ALLOWED])):
        assert policy.refusals(SHUFFLED) == broken
        assert policy.refusals(PLAN) == []
    assert "its shuffler is not among `shufflers`" in explain(SHUFFLED, other)
    signed, query = sign_plan(SHUFFLED, KEY), write_query(QUERY, plan=NAME, round_=0)
    held = owner(tmp_path / "owner", seed=1, n=200, policy=other, route=SHUFFLING.authority)
    assert code(held.answer(signed, query)) == "SHUFFLER_NOT_ALLOWED"
    file = tmp_path / "policy.toml"
    for clause, expected in (
        (f'shufflers = ["{SHUFFLING.key.hex()}"]', {SHUFFLING.key}),
        ("shufflers = []", set()),
        ("", set()),
    ):
        file.write_text(TEMPLATE.replace("shufflers = []", clause))
        assert read_policy(file).shufflers == expected
    file.write_text(TEMPLATE.replace("shufflers = []", 'shufflers = ["abc"]'))
    with pytest.raises(BadInput, match="shufflers"):
        read_policy(file)


def test_a_plan_that_names_its_own_signer_as_the_shuffler_is_refused(tmp_path: Path) -> None:
    """Mixing is for another party; neither owners nor whoever makes plans accept one such."""
    own = replace(SHUFFLED, shuffling=replace(SHUFFLING, key=PUBLIC))
    query = write_query(QUERY, plan=digest(own.to_bytes()), round_=0)
    held = owner(tmp_path / "owner", seed=1, n=200, route=SHUFFLING.authority)
    assert code(held.answer(sign_plan(own, KEY), query)) == "SHUFFLER_NOT_ALLOWED"
    file = tmp_path / "shuffler.json"
    file.write_bytes(shuffler_file(key=PUBLIC, authority=SHUFFLING.authority))
    with pytest.raises(BadInput, match="another party"):
        with_shuffler({"shuffler": str(file), "crowd": 100}, KEY)
