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


class Part(Protocol):
    """The gradients of one parameter, a record each."""

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    def masked(self, left_out: Tensor) -> "Part":
        """The same gradients, with those of the records left out set to 0."""
        ...

    def weighted(self, factor: Tensor) -> Tensor:
        """The sum of all gradients, each times its record's factor, as one row."""
        ...


class Engine(Protocol):
    """Finds the gradients of a micro-batch for one model and loss."""

    def trace(self, features: Tensor, targets: Tensor) -> tuple[Tensor, list[Part]]:
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

    def weighted(self, factor: Tensor) -> Tensor:
        return factor @ self.rows


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

    def weighted(self, factor: Tensor) -> Tensor:
        return ((self.signal * factor.unsqueeze(1)).T @ self.given).flatten()


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

    def weighted(self, factor: Tensor) -> Tensor:
        kept = (self.rows * factor.view(-1, 1, 1)).flatten(0, 1)
        total = kept.new_zeros((self.size, kept.shape[1]))
        return total.index_add_(0, self.places.flatten(), kept).flatten()


def checked(losses: Tensor, records: int) -> Tensor:
    """Accept one loss a record."""
    if losses.shape != (records,):
        raise BadInput(
            f"the loss of {records} records has shape {tuple(losses.shape)}; accepted is one "
            "number a record (reduction='none')"
        )
    return losses


def uneven(name: str, *, records: int, found: object) -> BadInput:
    """The refusal of a layer whose rows are not the records."""
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
