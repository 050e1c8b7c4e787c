"""`confide`, also as `python -m confide`: campaigns on this machine."""

from confide.protocol.terminal import run_command


def main() -> None:
    run_command("confide.simulation.cli", name="confide", extra="simulation")


if __name__ == "__main__":
    main()
