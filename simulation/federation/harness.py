"""A Flower federation on this machine, with its own SuperLink, for one run.

It reports the true outcome of the run and leaves no process or file behind.

`flwr run` alone leaves a SuperLink running, shares its port with every other one and exits with 0
when the ServerApp raised. Here the SuperLink belongs to this process and ends with it, its state
lives in a temporary folder, no dependency is synced, nothing is reported to anybody, and the run's
own status decides.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confide
from confide.protocol.errors import ConfideError
from confide.protocol.simulated.settings import RUN_FOLDER
from confide.simulation.defaults import APP
from confide.simulation.federation.interrupts import interrupts

if TYPE_CHECKING:
    import psutil

# The folder that the package is imported from, be it a checkout or where a wheel was installed.
PACKAGES = Path(confide.__file__).parent.parent
# Where Flower keeps its state; a separate folder tells the processes of this federation from
# others.
HOME = "FLWR_HOME"
# How often Flower is asked for the status of a run whose end its log has not told.
ASK_SECONDS = 15.0
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Flower starts a Ray of its own: it would join any cluster that it finds on this machine, and
    # wait for one that has ended.
    "RAY_ADDRESS": "local",
}


class RunFailed(ConfideError):
    """The run did not complete; the message says why, as Flower tells it."""


class Federation:
    """A SuperLink in simulation mode with its own folder and port."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        own = {HOME: str(folder), RUN_FOLDER: str(folder)}
        own |= {
            "PATH": _first(Path(sys.executable).parent, "PATH"),
            "PYTHONPATH": _first(PACKAGES, "PYTHONPATH"),
        }
        self._env = os.environ | QUIET | own

    @property
    def log_file(self) -> Path:
        return self._folder / "superlink.log"

    def start(self) -> subprocess.Popen[bytes]:
        """Start the SuperLink, which answers some seconds later."""
        address = f"127.0.0.1:{self._port}"
        (self._folder / "config.toml").write_text(
            f'[superlink]\ndefault = "own"\n\n[superlink.own]\naddress = "{address}"\ninsecure = '
            "true\n"
        )
        command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
        command += [
            "--control-api-address",
            address,
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
        ]
        command += ["--database", str(self._folder / "state.db")]
        with self.log_file.open("wb") as log:
            return subprocess.Popen(
                command, env=self._env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the SuperLink answers; raises if it does not within a minute."""
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.2)
        raise RunFailed(f"the SuperLink did not start: {_tail(self.log_file)}")

    def run(
        self,
        *,
        nodes: int,
        config: dict[str, Any],
        tick: Callable[[], None],
        app: Path | None = None,
    ) -> None:
        """Start one run and wait for its end, calling `tick` now and then.

        Raises unless the run completed.

        The app is its description alone: all processes are on this machine and import the code that
        is installed here. `app` is the folder of another one.
        """
        started = self._flwr(
            "run",
            str(self._described() if app is None else app),
            "own",
            "--federation-config",
            f"num-supernodes={nodes} client-resources-num-cpus=1",
            "--run-config",
            " ".join(f"{name}={json.dumps(value)}" for name, value in config.items()),
        )
        self._wait(str(started["run-id"]), tick)

    def _described(self) -> Path:
        """Write the description of the app into a new folder, and return the folder."""
        app = self._folder / "app"
        app.mkdir(exist_ok=True)
        # Flower refuses patterns of files to leave out where there are none.
        described = [
            line
            for line in APP.read_text().splitlines(keepends=True)
            if not line.startswith("fab-exclude")
        ]
        (app / "pyproject.toml").write_text("".join(described))
        return app

    def _wait(self, run: str, tick: Callable[[], None]) -> None:
        """Wait until a run has ended; raise unless it completed."""
        while True:
            self._wait_for_end(run, tick)
            status = next(
                row for row in self._flwr("list", "own")["runs"] if str(row["run-id"]) == run
            )
            if status["status"] == "finished:completed":
                return
            if status["status"].startswith("finished"):
                raise RunFailed(
                    f"the run ended as {status['status']}: "
                    f"{status['status-details']}\n{_tail(self.log_file)}"
                )

    def _wait_for_end(self, run: str, tick: Callable[[], None]) -> None:
        """Wait until the log shows the end of a run, but at most ASK_SECONDS.

        Asking, with `flwr list`, takes a second of processor time, which the run itself can use.
        """
        ended = re.compile(rf"Finished task \d+ of run {run}\b")
        deadline = time.monotonic() + ASK_SECONDS
        while time.monotonic() < deadline and not ended.search(
            self.log_file.read_text(errors="replace")
        ):
            tick()
            time.sleep(0.2)

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            ["flwr", *arguments, "--format", "json"],
            env=self._env,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            raise RunFailed(
                f"flwr {arguments[0]} said: {(done.stdout + done.stderr).strip()}"
            ) from None
        if not answer.get("success"):
            raise RunFailed(f"flwr {arguments[0]} said: {answer.get('error-message', answer)}")
        return answer


def _first(folder: Path, variable: str) -> str:
    """The folders of a variable of the environment, with one more before them."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get(variable)])])


@contextmanager
def federation() -> Iterator[Federation]:
    """A federation that ends with the block, also on Ctrl-C and on SIGTERM."""
    if find_spec("ray") is None:
        # Flower would say so in the log of a run that has begun.
        raise ModuleNotFoundError("Flower simulates nodes with ray", name="ray")
    # Outside of the allowed block signals wait, so what was started is always stopped.
    with interrupts() as told, _passing_folder() as folder:
        made = Federation(folder, free_port())
        process = made.start()
        try:
            with told.allowed():
                made.wait(process)
                yield made
        finally:
            stop(process, folder)


@contextmanager
def _passing_folder() -> Iterator[Path]:
    """A folder that is removed after the block.

    A process that was just ended may still write into it.
    """
    folder = Path(tempfile.mkdtemp(prefix="confide-flwr-"))
    try:
        yield folder
    finally:
        deadline, quiet = time.monotonic() + 20, 0
        while quiet < 4 and time.monotonic() < deadline:
            quiet = 0 if folder.exists() else quiet + 1
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.5)


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def stop(process: subprocess.Popen[Any], home: Path, *, grace: float = 20.0) -> None:
    """End a process, and every process that uses this folder of Flower's.

    They are asked to end first, and killed if they do not.
    """
    import psutil

    for end in (psutil.Process.terminate, psutil.Process.kill):
        members = [one for one in psutil.process_iter() if _lives_in(home, one)]
        for one in members:
            with suppress(psutil.NoSuchProcess):
                end(one)
        psutil.wait_procs(members, timeout=grace)
    process.wait()


def _lives_in(home: Path, process: "psutil.Process") -> bool:
    import psutil

    try:
        return bool(process.environ().get(HOME) == str(home))
    except psutil.Error:
        return False


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "no log"
