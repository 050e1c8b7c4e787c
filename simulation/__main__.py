"""`python -m simulation`."""

from protocol.terminal import run_command


def main() -> None:
    run_command("simulation.cli", name="python -m simulation", extra="simulation")


if __name__ == "__main__":
    main()
