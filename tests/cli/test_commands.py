import os
import subprocess
import sys

from weft.cli.command import load
from weft.cli.commands import COMMANDS, by_name
from weft.cli.start import IN_PODS


def test_a_command_is_loaded_only_when_it_is_called():
    code = (
        "import sys\nfrom weft.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('weft.cli.')), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    needed = ["command", "commands", "main", "output", "parameters", "root", "start"]
    assert found.stderr.strip() == str([f"weft.cli.{name}" for name in needed])


def test_every_command_can_be_loaded_under_its_name():
    for name, command in by_name().items():
        assert load(command).name == name


def test_what_runs_in_pods_is_there_and_hidden():
    assert {command.name: command.hidden for command in COMMANDS["In pods"]} == dict.fromkeys(IN_PODS, True)
