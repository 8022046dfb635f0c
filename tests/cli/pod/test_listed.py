import pytest

from weft.cli.pod.listed import IN_PODS, run


@pytest.mark.parametrize("command", IN_PODS)
def test_each_has_help_with_an_example(command, capsys):
    assert run(command, ["--help"]) == 0
    assert f"Example: weft {command}" in capsys.readouterr().out
