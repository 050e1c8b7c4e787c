"""`confide-client`: for the data owner."""

from confide.client.cli.allow import allow_app
from confide.client.cli.card import card
from confide.client.cli.contribute import contribute
from confide.client.cli.flower import bundle_hash, pin, register
from confide.client.cli.folder import backup, init, restore
from confide.client.cli.plan import explain, plan
from confide.client.cli.status import doctor, status
from confide.client.cli.train import train
from confide.protocol.commands.command_line import CommandLine

app = CommandLine(__doc__)
# In the order of the help.
COMMANDS = {
    "init": init,
    "backup": backup,
    "restore": restore,
    "status": status,
    "explain": explain,
    "doctor": doctor,
    "plan": plan,
    "card": card,
    "contribute": contribute,
    "train": train,
    "register": register,
    "bundle-hash": bundle_hash,
    "pin": pin,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(allow_app, name="allow")
