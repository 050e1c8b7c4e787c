"""`confide-client`: for the data owner."""

from confide.protocol.commands.command_line import CommandLine

ROOM = "confide.client.cli"
# In the order of the help.
COMMANDS = {
    "init": f"{ROOM}.folder:init",
    "backup": f"{ROOM}.folder:backup",
    "restore": f"{ROOM}.folder:restore",
    "status": f"{ROOM}.status:status",
    "explain": f"{ROOM}.plan:explain",
    "doctor": f"{ROOM}.status:doctor",
    "plan": f"{ROOM}.plan:plan",
    "card": f"{ROOM}.card:card",
    "contribute": f"{ROOM}.contribute:contribute",
    "train": f"{ROOM}.train:train",
    "register": f"{ROOM}.flower:register",
    "bundle-hash": f"{ROOM}.flower:bundle_hash",
    "pin": f"{ROOM}.flower:pin",
    "allow": f"{ROOM}.allow:allow_app",
}

app = CommandLine(__doc__, COMMANDS)
