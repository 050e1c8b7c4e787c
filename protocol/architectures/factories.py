"""Networks of other packages: `package.module:factory`, installed by the user who runs them.

The factory is called as `factory(features=..., labels=..., **arguments)` and returns a torch module
that maps rows of `features` numbers in [-1, 1] to `labels` logits. A plan names it together with
the digest of its package's files, so that owner and aggregator mean the same code. An owner imports
it only if its policy lists that name with that digest and the installed files have it now.
"""

import hashlib
import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.architectures.base import Network, Shapes, Weights, parameters_digest
from confide.protocol.errors import BadInput

FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", flags=re.ASCII)
_LONGEST = 200
# Bytecode that Python writes itself, from files that are hashed. Only names of this form are left
# out: any other file in such a folder can be imported.
_CACHE, _CACHED = "__pycache__", re.compile(r".+\.[a-z]+-\d+(\.opt-\w+)?\.pyc")


def is_factory(name: str) -> bool:
    """Return whether a name is one of a factory, not of a built-in network."""
    return len(name) <= _LONGEST and FACTORY.fullmatch(name) is not None


def source_digest(name: str) -> bytes:
    """Return the digest of all files of the package that a factory is in, without importing it.

    It is over the path and content of each file, in the order of their paths.
    """
    package = name.partition(":")[0].partition(".")[0]
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None or not found.has_location:
        raise BadInput(
            f"architecture is {name}, and no package {package} is installed here; install the one "
            "that you were given, or leave this campaign out"
        )
    origin = Path(found.origin)
    files = [origin] if found.submodule_search_locations is None else _files(origin.parent)
    digest = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(json.dumps([file.relative_to(origin.parent).as_posix(), content]).encode())
    return digest.digest()


def _files(folder: Path) -> list[Path]:
    """Return all files below a folder, also those behind links to other folders."""
    found: list[Path] = []
    for place, inner, names in os.walk(folder, followlinks=True):
        here = Path(place)
        # A link to a folder that it is in would never end.
        inner[:] = [name for name in inner if (here / name).resolve() not in _above(here)]
        found += [here / name for name in names if not _is_bytecode(here / name)]
    return sorted(file for file in found if file.is_file())


def _above(folder: Path) -> set[Path]:
    whole = folder.resolve()
    return {whole, *whole.parents}


def _is_bytecode(file: Path) -> bool:
    return file.parent.name == _CACHE and _CACHED.fullmatch(file.name) is not None


@contextmanager
def _compiled_anew() -> Iterator[None]:
    """Let imports compile the files that were hashed, and not take bytecode from beside them."""
    before = sys.pycache_prefix
    with TemporaryDirectory(prefix="confide-bytecode-") as empty:
        sys.pycache_prefix = empty
        try:
            yield
        finally:
            sys.pycache_prefix = before


@dataclass(frozen=True)
class FactoryNetwork(Network):
    """A network that a factory of another package makes."""

    features: int
    outputs: int
    factory: Any
    arguments: Mapping[str, Any]

    @property
    def shapes(self) -> Shapes:
        return {
            name: tuple(parameter.shape)
            for name, parameter in self.module().named_parameters()
            if parameter.requires_grad
        }

    @property
    def products(self) -> int:
        return self.size

    def module(self) -> Any:
        """Make the module; its own random draws are the same every time."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made = self.factory(features=self.features, labels=self.outputs, **self.arguments)
        if not isinstance(made, torch.nn.Module):
            raise BadInput(f"the factory returns {type(made).__name__}; accepted is a torch module")
        return made

    def file(self, weights: Mapping[str, NDArray[Any]], *, centre: float) -> bytes:
        from confide.protocol.architectures.torch_export import module_file

        return module_file(self, weights, centre=centre)

    def first_weights(self) -> Weights:
        """Return the weights that the factory's module starts with."""
        parts = [
            parameter.detach().numpy().ravel()
            for parameter in self.module().parameters()
            if parameter.requires_grad
        ]
        return np.concatenate(parts).astype(np.float32)


def import_factory(
    name: str, arguments: Mapping[str, Any], *, source: bytes, features: int, outputs: int
) -> FactoryNetwork:
    """Import a factory whose package has the digest `source` now; refuse any other."""
    found = source_digest(name)
    if found != source:
        raise BadInput(
            f"the files of {name} have digest {found.hex()}; accepted is {source.hex()}, as the "
            "plan says: install that version of the package"
        )
    module, _, attribute = name.partition(":")
    try:
        with _compiled_anew():
            factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"architecture is {name}, which cannot be imported: {error}") from None
    return FactoryNetwork(features, outputs, factory, dict(arguments))


def check_parameters(network: Network, *, size: int, parameters: bytes) -> None:
    """Refuse a network whose parameters are not those that a plan names."""
    if (network.size, parameters_digest(network.shapes)) != (size, parameters):
        raise BadInput(
            f"the network has {network.size} weights, named and shaped by the digest "
            f"{parameters_digest(network.shapes).hex()}; accepted are {size} and "
            f"{parameters.hex()}, as the plan says"
        )
