"""The built-in networks by name, and networks as operators write them."""

import json
from typing import Any

from confide.protocol.architectures.base import BuiltIn, Network, read_arguments
from confide.protocol.architectures.convolutions import CNN
from confide.protocol.architectures.factories import import_factory
from confide.protocol.architectures.stacks import MLP, Head, Linear
from confide.protocol.errors import BadInput, check_choice

NETWORKS: dict[str, type[BuiltIn]] = {}


def register(network: type[BuiltIn]) -> type[BuiltIn]:
    """Make a network known to plans under its name; usable as a decorator."""
    if NETWORKS.setdefault(network.name, network) is not network:
        raise BadInput(f"network {network.name!r} is registered already; accepted is another name")
    return network


for _network in (Linear, MLP, CNN, Head):
    register(_network)


def built_in(name: str, arguments: str, *, features: int, outputs: int) -> BuiltIn:
    """Return the network of a plan, by its name and its arguments in canonical JSON."""
    check_choice("architecture", name, NETWORKS)
    return NETWORKS[name].of(read_arguments(arguments), features=features, outputs=outputs)


def open_network(
    name: str, arguments: str, *, source: bytes, features: int, outputs: int
) -> Network:
    """Return a built-in network, or that of a factory whose package has the digest `source`."""
    if not source:
        return built_in(name, arguments, features=features, outputs=outputs)
    return import_factory(
        name, read_arguments(arguments), source=source, features=features, outputs=outputs
    )


def read_architecture(text: str) -> tuple[str, dict[str, Any]]:
    """Read a name and arguments as an operator writes them: `cnn image=1,16,16 channels=16,32`.

    A value is JSON, or JSON values with commas between them.
    """
    words = text.split()
    if not words:
        raise BadInput(f"architecture is empty; accepted: {', '.join(NETWORKS)}, or module:factory")
    arguments: dict[str, Any] = {}
    for pair in words[1:]:
        key, equals, value = pair.partition("=")
        if not (key.isidentifier() and equals and value) or key in arguments:
            raise BadInput(
                f"architecture is {text[:200]!r}; accepted is a name and arguments as key=value, "
                "each once, such as: mlp hidden=64,32"
            )
        arguments[key] = _value(value)
    return words[0], arguments


def _value(text: str) -> Any:
    for candidate in (text, f"[{text}]"):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return text
