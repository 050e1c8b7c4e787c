"""How the owner's machine computes gradients: on which device, and by which engine."""

from dataclasses import dataclass

from confide.protocol.errors import BadInput

AUTO, SINGLE = "auto", "single"
# In the order in which they are tried.
ENGINE_NAMES = ("stack", "ghost", "hooks", "functional", SINGLE)
DEVICE_WORDS = "where networks are trained: auto, cpu, cuda or cuda:N"
ENGINE_WORDS = f"what finds a network's gradients: auto, {', '.join(ENGINE_NAMES)}; hooks is Opacus"


@dataclass(frozen=True)
class Computing:
    """The owner's choice, never a plan's: the gradients are the same up to rounding.

    `engine` is one of `confide.client.training.engines`, or `auto` for the first that fits.
    """

    device: str = AUTO
    engine: str = AUTO

    def __post_init__(self) -> None:
        check_engine(self.engine)


def check_engine(name: str) -> None:
    """Accept the name of an engine, or `auto`."""
    if name not in (AUTO, *ENGINE_NAMES):
        names = ", ".join(map(repr, ENGINE_NAMES))
        raise BadInput(f"engine is {name!r}; accepted are {AUTO!r}, {names}")


USUAL = Computing()
