import click
import pytest

from weft.cli.reach.connect import reach


def test_a_mesh_of_this_machine_is_not_on_a_cluster(capsys):
    with pytest.raises(click.exceptions.Exit) as refused:
        reach("shop", kubernetes=True)
    assert refused.value.exit_code == 2
    assert "--mesh" in capsys.readouterr().err
