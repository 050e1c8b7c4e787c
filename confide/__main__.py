"""`confide`, also as `python -m confide`: campaigns on this machine."""

import sys

from confide.protocol.commands.terminal import run_command


def main() -> None:
    # Only a federation needs more than who predicts or evaluates.
    extra = "simulation" if sys.argv[1:2] == ["federation"] else "client"
    run_command("confide.simulation.cli", name="confide", extra=extra)


if __name__ == "__main__":
    main()
