"""Profiles of mechanisms for tests, at one delta."""

from confide.protocol.privacy.losses import AccountedMechanism
from confide.protocol.privacy.profiles import Profile

DELTA = 1e-5


def profile(*mechanisms: AccountedMechanism) -> Profile:
    return Profile().then(*mechanisms)
