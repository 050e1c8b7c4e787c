"""Verify what a card says of shuffling: who shuffled, which crowds, and the epsilon there."""

from collections.abc import Iterator

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.counts.recompute import shuffle_divergence
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.plan import Plan, digest
from confide.protocol.wire import wire_pb2 as wire

DELTA = 1e-6
# What a shuffler's signature over a round begins with.
SIGNED = b"confide handover v1\0"
ONE_SHOT = "one-shot"
# A shuffler closes a round with so many reports; a few more may have come by then.
MOST_MIXED = 10_000_000


def shuffled(formal: Layer, *, hidden: bool) -> Iterator[Finding]:
    """Check the amplification by shuffling.

    `hidden` tells whether reports of the method carry nothing that identifies them. There must be a
    shuffler in the plan, which signed every round; each round must be as large as the plan asks
    for; together they must be the reports of the certificate; and the epsilons must be those that
    the smallest of them, and the plan's crowd, give at the delta that cards state. Of both, the
    reports that may be false count for nothing; nor do as many of the crowd as are seen to be no
    reports in a round, of which the card warns where they are more.
    """
    shuffle, found = formal["shuffle"], formal["certificate"]
    plan = Plan.from_bytes(bytes.fromhex(formal["plan"]))
    if "epsilon" not in shuffle:
        features = "features" in shuffle["amplification"]
        yield Finding("shuffle", features != hidden, "the words for reports of this method")
        return
    named = plan.shuffling
    possible = hidden and named is not None and shuffle["delta"] == DELTA
    yield Finding(
        "shuffle", possible, f"reports without features, a plan with a shuffler, at delta {DELTA}"
    )
    if not possible or named is None:
        return
    yield same("shuffle/shuffler", shuffle["shuffler"], named.key.hex())
    yield same("shuffle/crowd", shuffle["crowd"], named.crowd)
    rounds = shuffle["rounds"]
    for number, one in enumerate(rounds):
        yield from _round(one, number, named.key, plan=digest(bytes.fromhex(formal["plan"])))
        large = named.crowd <= one["reports"] and one["opened"] <= one["reports"]
        yield Finding(
            f"shuffle/rounds/{number}/reports", large, f"at least {named.crowd}, all opened at most"
        )
    yield same("certificate/n", found["n"], sum(one["opened"] for one in rounds))
    if found["variant"] == ONE_SHOT:
        yield same("shuffle/rounds", len(rounds), 1)
    false = formal["contract"]["max_corrupt"]
    least = min(MOST_MIXED, min(one["opened"] for one in rounds)) - false
    seen = max(one["reports"] - one["opened"] for one in rounds)
    yield Finding(
        "shuffle/warning",
        ("warning" in shuffle) == (seen > false),
        f"{seen} of a round did not open, max_corrupt {false}",
    )
    yield same("shuffle/n", shuffle["n"], max(1, least))
    if shuffle["n"] != max(1, least):
        # The epsilon of another crowd may take long to decide, and says nothing.
        return
    crowd = max(1, named.crowd - max(false, seen))
    for name, n in (("epsilon", shuffle["n"]), ("crowd_epsilon", crowd)):
        divergence = shuffle_divergence(shuffle[name], local=found["epsilon"], n=n)
        yield Finding(
            f"shuffle/{name}",
            divergence <= shuffle["delta"] * (1 + 1e-3) or shuffle[name] >= found["epsilon"],
            f"delta at {shuffle[name]} is {divergence:.3g} of {shuffle['delta']:.3g}",
        )


def _round(one: Layer, number: int, key: bytes, *, plan: bytes) -> Iterator[Finding]:
    """Check the shuffler's signature over what the card says of a round."""
    message = wire.Handover(
        plan=plan,
        round=number,
        reports=one["reports"],
        digest=bytes.fromhex(one["digest"]),
        owners=one["owners"],
        largest=one["largest"],
    )
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(
            bytes.fromhex(one["signature"]), SIGNED + message.SerializeToString(deterministic=True)
        )
    except (InvalidSignature, ValueError):
        yield Finding(f"shuffle/rounds/{number}/signature", False, f"not signed by {key.hex()}")
    else:
        yield Finding(f"shuffle/rounds/{number}/signature", True, f"signed by {key.hex()}")
