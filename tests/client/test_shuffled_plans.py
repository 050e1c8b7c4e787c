"""What an owner is told of a plan whose reports a shuffler mixes."""

from confide.client.explain import explain
from confide.protocol.privacy.amplification import shuffled_epsilon
from tests.support.owners import PLAN, POLICY, changed
from tests.support.shuffled_plans import SHUFFLED, SHUFFLING


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
