"""`confide`: campaigns on this machine."""

from confide.protocol.commands.command_line import CommandLine

ROOM = "confide.simulation"
# In the order of the help.
COMMANDS = {
    "evaluate": f"{ROOM}.evaluate.command:evaluate_command",
    "variants": f"{ROOM}.evaluate.variants:variants_command",
    "advise": f"{ROOM}.advice.command:advise_command",
    "attack": f"{ROOM}.attackers.command:attack",
    "federation": f"{ROOM}.federation.command:federation_command",
    "predict": f"{ROOM}.predict_command:predict_command",
    "run": f"{ROOM}.experiments.command:run_command",
    "report": f"{ROOM}.experiments.command:report_command",
    "diff": f"{ROOM}.experiments.command:diff_command",
    "scale": f"{ROOM}.scale.command:scale_command",
    "reproduce": f"{ROOM}.reproduce.command:reproduce_command",
}

app = CommandLine(__doc__, COMMANDS)
