import pytest

from confide.protocol.certificate import (
    MARGINAL,
    CentralCertificate,
    Certificate,
    LocalCertificate,
)
from confide.protocol.errors import BadInput
from confide.protocol.methods.base import Terms
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.local import LocalTerms
from tests.support.owners.owners import PLAN


def test_terms_are_given_as_those_of_their_method() -> None:
    """Of its own class, and of those that the class is made from."""
    for kind in (BitTerms, LocalTerms, Terms):
        assert kind.of(PLAN.terms) is PLAN.terms


def test_terms_of_another_method_are_refused() -> None:
    """With a message that says what they are and what is accepted."""
    with pytest.raises(BadInput, match="BitTerms of method 'bits'; accepted are CentralTerms"):
        CentralTerms.of(PLAN.terms)


def test_a_certificate_of_another_kind_is_refused() -> None:
    """A certificate that only says what all say is one of no track."""
    plain = Certificate(
        method="other",
        variant="plain",
        kind=MARGINAL,
        threshold=1.0,
        level=0.9,
        alpha=0.1,
        n=0,
        epsilon=1.0,
    )
    assert Certificate.of(plain) is plain
    for kind in (LocalCertificate, CentralCertificate):
        with pytest.raises(BadInput, match=f"of method 'other'; accepted is a {kind.__name__}"):
            kind.of(plain)
