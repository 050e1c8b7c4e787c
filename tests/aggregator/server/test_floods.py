import re
import subprocess
import sys

from tests.support.repository.places import ROOT

FLOODS = ["none", "connections", "resets", "messages", "unfinished"]


def test_floods_do_not_fill_the_memory() -> None:
    """Idle connections, resets, whole and unfinished messages by the hundred: the server stays
    under 400 MB, and answers an enrolled owner all the while.

    How fast it answers is for the benchmark to say: other tests run beside this one.
    """
    command = [sys.executable, "benchmarks/service/floods.py", "--seconds", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\w+) .* p95 [\d.]+ ms .* memory (\d+) MB$", done.stdout, re.MULTILINE)
    assert [kind for kind, _ in found] == FLOODS
    assert {kind: size for kind, size in found if float(size) >= 400} == {}
