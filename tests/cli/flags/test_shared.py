import re
from pathlib import Path

import click
from click.testing import CliRunner

import weft.cli
from weft.cli.flags import shared

ONCE = re.compile(
    r'option\((?:\s*"-\w",)?\s*"(--mesh|--kubernetes|--kubeconfig|--context|--istio-namespace|--trust-domain|--set)"'
)


def test_a_command_gets_the_flags_in_the_order_in_which_they_are_shown():
    @click.command()
    @shared.which_mesh
    @shared.system
    def command(**given):
        click.echo(given)

    assert [each.name for each in command.params] == ["mesh", "kubernetes", "kubeconfig", "context", "system"]
    said = CliRunner().invoke(command, ["--kubeconfig", "file", "-i", "mesh"]).stdout
    assert "PosixPath('file')" in said and "'system': 'mesh'" in said


def test_no_command_declares_them_again():
    again = [
        f"{file.name}: {flag}"
        for file in Path(weft.cli.__file__).parent.rglob("*.py")
        if file.name != "shared.py"
        for flag in ONCE.findall(file.read_text())
    ]
    assert again == []
    assert "--mesh" in ONCE.findall(Path(shared.__file__).read_text())
