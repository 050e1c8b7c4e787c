"""How the owner's machine computes gradients: on which device, and by which engine."""

import re
from dataclasses import dataclass

from confide.protocol.errors import BadInput

AUTO, ALONE, SINGLE = "auto", "alone", "single"
# In the order in which they are tried.
ENGINE_NAMES = ("stack", "ghost", "hooks", "functional", SINGLE)
# Those that compute a function of one record, so that no other record is there to be mixed with.
ENGINES_ALONE = ("functional", SINGLE)
_TRIED = {AUTO: ENGINE_NAMES, ALONE: ENGINES_ALONE}
DEVICE_WORDS = "where networks are trained: auto, cpu, cuda or cuda:N"
ENGINE_WORDS = (
    f"what finds a network's gradients: auto, alone (functional or single), "
    f"{', '.join(ENGINE_NAMES)}; hooks is Opacus"
)


@dataclass(frozen=True)
class Computing:
    """The owner's choice, never a plan's: the gradients are the same up to rounding.

    `engine` is one of `confide.client.training.engines`, `auto` for the first that fits, or `alone`
    for the first that computes a function of one record.
    """

    device: str = AUTO
    engine: str = AUTO

    def __post_init__(self) -> None:
        check_device(self.device)
        check_engine(self.engine)


def check_device(name: str) -> int | None:
    """Accept the name of a device, wherever it is; return its number, if it has one."""
    found = re.fullmatch(r"auto|cpu|cuda(?::(\d{1,3}))?", name)
    if found is None:
        raise BadInput(f"device is {name!r}; accepted are 'auto', 'cpu', 'cuda' and 'cuda:N'")
    return None if found[1] is None else int(found[1])


def check_engine(name: str) -> None:
    """Accept the name of an engine, `auto` or `alone`."""
    if name not in (*_TRIED, *ENGINE_NAMES):
        names = ", ".join(map(repr, (*_TRIED, *ENGINE_NAMES)))
        raise BadInput(f"engine is {name!r}; accepted are {names}")


def engines_of(choice: str) -> tuple[str, ...]:
    """The engines of a choice, in the order in which they are tried."""
    check_engine(choice)
    return _TRIED.get(choice, (choice,))


def one_by_one(choice: str) -> str:
    """The same choice for a network that may not see records together; refuse one that shows it."""
    if choice == AUTO:
        return ALONE
    if set(engines_of(choice)) <= set(ENGINES_ALONE):
        return choice
    raise BadInput(
        f"engine is {choice!r}, which takes records in batches, and this network of another "
        "package is not listed as vetted; accepted are 'auto', 'alone', 'functional' and 'single', "
        "or `confide-client allow architecture --vetted`"
    )


USUAL = Computing()
