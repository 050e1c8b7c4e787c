"""Gradients of a micro-batch by trained parameter and record, in the forms that engines find them.

A part holds the gradients of one parameter for all records of a micro-batch, as tensors whose first
dimension is the records. A record's squared norm in a part is the product of its squared norms in
the part's tensors; so no form needs more memory than its tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from confide.protocol.errors import BadInput

Loss = Callable[[Tensor, Tensor], Tensor]


class NotApplicable(BadInput):
    """This engine cannot take the model apart; another one may."""


class GradientPart(Protocol):
    """The gradients of one parameter, a record each."""

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    def masked(self, left_out: Tensor) -> "GradientPart":
        """The same gradients, with those of the records left out set to 0."""
        ...

    @property
    def weights(self) -> int:
        """How many numbers the parameter has."""
        ...

    def write_sum(self, factor: Tensor, total: Tensor) -> None:
        """Write the sum of all gradients, each times its record's factor, into a row of numbers."""
        ...


class Engine(Protocol):
    """Finds the gradients of a micro-batch for one model and loss."""

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[GradientPart]]:
        """The losses, one a record, and a part for every trained parameter in their order."""
        ...


@dataclass(frozen=True)
class Rows:
    """A parameter's gradients as they are, a row a record."""

    rows: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.rows,)

    def masked(self, left_out: Tensor) -> "Rows":
        return Rows(_masked(self.rows, left_out))

    @property
    def weights(self) -> int:
        return self.rows.shape[1]

    def write_sum(self, factor: Tensor, total: Tensor) -> None:
        torch.mv(self.rows.T, factor, out=total)


@dataclass(frozen=True)
class Outer:
    """Gradients of a matrix that are the outer products of a record's signal and input."""

    signal: Tensor
    given: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.signal, self.given)

    def masked(self, left_out: Tensor) -> "Outer":
        return Outer(_masked(self.signal, left_out), _masked(self.given, left_out))

    @property
    def weights(self) -> int:
        return self.signal.shape[1] * self.given.shape[1]

    def write_sum(self, factor: Tensor, total: Tensor) -> None:
        kept = self.signal * factor.unsqueeze(1)
        torch.mm(kept.T, self.given, out=total.view(kept.shape[1], self.given.shape[1]))


@dataclass(frozen=True)
class Scattered:
    """Gradients of a table: rows of numbers, and the place in the table of each.

    A record names no place twice, but for rows of 0.
    """

    rows: Tensor
    places: Tensor
    size: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.rows,)

    def masked(self, left_out: Tensor) -> "Scattered":
        return Scattered(_masked(self.rows, left_out), self.places, self.size)

    @property
    def weights(self) -> int:
        return self.size * self.rows.shape[2]

    def write_sum(self, factor: Tensor, total: Tensor) -> None:
        kept = (self.rows * factor.view(-1, 1, 1)).flatten(0, 1)
        table = total.zero_().view(self.size, kept.shape[1])
        table.index_add_(0, self.places.flatten(), kept)


def checked(losses: Tensor, records: int) -> Tensor:
    """Accept one loss a record."""
    if losses.shape != (records,):
        raise BadInput(
            f"the loss of {records} records has shape {tuple(losses.shape)}; accepted is one "
            "number a record (reduction='none')"
        )
    return losses


def uneven(name: str, *, records: int, found: object) -> BadInput:
    """Return the error about a layer that has not exactly one gradient a record."""
    return BadInput(
        f"the model cannot be trained record by record: of {records} records, {name} has {found} "
        "gradients; accepted are models whose every layer takes part and has the records in its "
        "first dimension, one each"
    )


def _masked(rows: Tensor, left_out: Tensor) -> Tensor:
    return rows.masked_fill(left_out.view(-1, *[1] * (rows.dim() - 1)), 0.0)


def norms(rows: Tensor) -> Tensor:
    """The L2 norm of each record's numbers."""
    return torch.linalg.vector_norm(rows.flatten(1), dim=1)
