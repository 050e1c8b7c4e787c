"""The part of a plan that describes a network, by name and without code."""

from dataclasses import dataclass
from typing import Any

from confide.protocol.architectures.base import (
    Network,
    canonical,
    parameters_digest,
    read_arguments,
)
from confide.protocol.architectures.factories import (
    check_parameters,
    is_factory,
    source_digest,
)
from confide.protocol.architectures.registry import NETWORKS, open_network, read_architecture
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import MOST_WEIGHTS
from confide.protocol.methods.base import Terms


@dataclass(frozen=True, kw_only=True)
class NetworkTerms(Terms):
    """The terms of a method that trains a network.

    `architecture` names a built-in network, or a factory of a package whose files have the digest
    `source`; `arguments` are its own in canonical JSON. `size` is the number of its weights, and
    `parameters` the digest of their names and shapes. It maps `features` numbers to `outputs`
    logits. Features are clipped to [0, 1], the public bounds of the plan, and `centre` is the one
    that the network sees as 0.
    """

    architecture: str
    arguments: str = "{}"
    source: bytes = b""
    parameters: bytes
    size: int
    features: int = 0
    outputs: int
    centre: float = 0.0

    def check_network(self) -> int:
        """Check the description of the network, and return its multiplications a record.

        Nothing is imported here: a plan is read before anybody has agreed to it.
        """
        if not 1 <= self.size <= MOST_WEIGHTS:
            raise BadInput(f"size is {self.size}; accepted are 1 to {MOST_WEIGHTS} weights")
        if self.features < 1 or self.outputs < 1:
            raise BadInput(
                f"the network has {self.features} features and {self.outputs} outputs; accepted is "
                "at least 1 of each"
            )
        if self.code is None:
            network = self.network()
            check_parameters(network, size=self.size, parameters=self.parameters)
            return network.products
        read_arguments(self.arguments)
        if not is_factory(self.architecture) or {len(self.source), len(self.parameters)} != {32}:
            raise BadInput(
                f"architecture is {self.architecture[:200]!r} with digests of {len(self.source)} "
                f"and {len(self.parameters)} bytes; accepted are {', '.join(NETWORKS)}, or a "
                "module:factory with the digests of its package and its parameters"
            )
        return self.size

    @property
    def uses_model(self) -> bool:
        return self.code is None and NETWORKS[self.architecture].on_backbone

    @property
    def code(self) -> tuple[str, str, bytes] | None:
        return (self.architecture, self.arguments, self.source) if self.source else None

    def network(self) -> Network:
        """Return the network; that of a factory is imported from the installed package."""
        found = open_network(
            self.architecture,
            self.arguments,
            source=self.source,
            features=self.features,
            outputs=self.outputs,
        )
        if self.code is not None:
            check_parameters(found, size=self.size, parameters=self.parameters)
        return found


def described(architecture: str, *, features: int, outputs: int) -> dict[str, Any]:
    """Return the fields of terms that describe a network, given as an operator writes it."""
    name, arguments = read_architecture(architecture)
    given: dict[str, Any] = {
        "arguments": canonical(arguments),
        "source": source_digest(name) if is_factory(name) else b"",
        "features": features,
        "outputs": outputs,
    }
    network = open_network(name, **given)
    return {
        "architecture": name,
        "parameters": parameters_digest(network.shapes),
        "size": network.size,
        **given,
    }
