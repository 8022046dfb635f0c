"""The values of an installation, as flags and files give them."""

import click
import pytest

from weft.base.problem import Problem
from weft.cli.install.chosen_values import chosen


def test_files_come_before_set_and_the_revision_has_an_option_of_its_own(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text("control: {replicas: 3}\nnamespace: mesh\n")
    values = chosen([str(file)], ["control.replicas=4"], "a")
    assert (values.control.replicas, values.namespace, values.revision) == (4, "mesh", "a")


def test_a_file_that_is_not_there_ends_the_command(capsys):
    with pytest.raises(click.exceptions.Exit):
        chosen(["/nowhere/values.yaml"], [], "")
    assert "/nowhere/values.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("assignment", ["injection.settings.concurency=2", "injection.settings.concurrency=-1"])
def test_settings_that_the_injector_would_reject_are_rejected_before_the_installation(assignment):
    with pytest.raises(Exception, match="concurrency") as error:
        chosen([], [assignment], "")
    assert isinstance(error.value.problem, Problem)
