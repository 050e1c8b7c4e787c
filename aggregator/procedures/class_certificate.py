"""The certificate of a threshold for every label, for reports of any kind."""

from collections.abc import Sequence
from typing import Any

from confide.protocol.certificate import (
    BY_CLASS,
    DROPOUTS,
    IID,
    MIXTURE,
    PAC,
    LocalCertificate,
    Stratum,
)
from confide.protocol.channels.base import LabelChannel


def class_certificate(
    strata: Sequence[Stratum], channel: LabelChannel, *, alpha: float, liars: str, **stated: Any
) -> LocalCertificate:
    """Make the certificate of these labels; its threshold is the largest of their thresholds.

    `liars` is what is assumed of false reports, if the certificate allows for some.
    """
    trivial = all(one.threshold >= 1 for one in strata)
    return LocalCertificate(
        kind=PAC,
        threshold=max(one.threshold for one in strata),
        level=1 - alpha,
        alpha=alpha,
        channel=channel.name,
        epsilon=channel.epsilon,
        by=BY_CLASS,
        strata=tuple(strata),
        reason="no label has a threshold below 1" if trivial else None,
        assumptions=(IID, MIXTURE, DROPOUTS, *((liars,) if stated["max_corrupt"] else ())),
        **stated,
    )
