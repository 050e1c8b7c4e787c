"""Run command lines as their console scripts do, without starting another interpreter."""

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch


def run_main(main: Callable[[], None], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the `main` of a console script in this process, with these arguments."""
    given = ["command", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", given), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return subprocess.CompletedProcess(given, code, out.getvalue(), err.getvalue())
