"""Modules with one planted mistake, for tests that must detect it."""

import sys
from pathlib import Path
from types import ModuleType


def mutant(module: ModuleType, old: str, new: str) -> ModuleType:
    """Return the module with one place of its source changed."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, f"{old!r} is in the source {source.count(old)} times"
    changed = ModuleType(f"mutant_of_{module.__name__}")
    sys.modules[changed.__name__] = changed
    exec(compile(source.replace(old, new), "mutant", "exec"), changed.__dict__)
    return changed
