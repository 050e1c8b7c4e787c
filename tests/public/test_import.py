"""Importing the package loads nothing but itself; names are loaded when they are asked for."""

import subprocess
import sys

HEAVY = ("numpy", "scipy", "torch", "flwr", "ray", "matplotlib", "onnxruntime", "pyarrow", "grpc")


def loaded(program: str) -> set[str]:
    """The heavy packages that a program has loaded at its end."""
    shown = f"{program}\nimport sys\nprint(*[one for one in {HEAVY!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    """A predictor needs numpy, and neither a plotting nor a training package."""
    assert loaded("import confide") == set()
    assert not loaded("import confide; confide.Predictor") & {"torch", "flwr", "ray", "matplotlib"}
