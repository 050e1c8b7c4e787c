"""`confide`, also as `python -m confide`: campaigns on this machine."""

import sys

from confide.protocol.commands.terminal import run_command

# Who runs Flower here runs all of a federation.
OWN = {"flwr": "simulation"}


def main() -> None:
    # Only a federation needs more than who predicts or evaluates, and always draws its pictures.
    if sys.argv[1:2] == ["federation"]:
        extra, own = "simulation", OWN | {"matplotlib": "simulation"}
    else:
        extra, own = "client", OWN
    run_command("confide.simulation.cli", name="confide", extra=extra, own=own)


if __name__ == "__main__":
    main()
