"""Flags take a value as istioctl's do; everything else is click's."""

import click
import pytest
from click.testing import CliRunner

from weft.cli.flags.boolean_values import without_values
from weft.cli.lazy_commands import LazyGroup


def run(*arguments, **settings):
    got = {}

    @click.command("command", context_settings=settings)
    @click.argument("words", nargs=-1)
    @click.option("--name", "names", multiple=True)
    @click.option("--flag/--no-flag")
    @click.option("--plain", is_flag=True)
    def command(**given):
        got.update(given)

    group = LazyGroup("group", commands={"command": command})
    return CliRunner().invoke(group, ["command", *arguments]), got


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (("--flag=true",), True),
        (("--flag=1",), True),
        (("--flag=False",), False),
        (("--flag", "--flag=f"), False),
        (("--flag=false", "--flag"), True),
        (("--no-flag", "--flag=t"), True),
        (("--flag=false", "--name", "x"), False),
    ],
)
def test_a_flag_may_be_given_a_value_as_istioctl_writes_it(arguments, flag):
    result, got = run(*arguments)
    assert result.exit_code == 0, result.output
    assert got["flag"] is flag


def test_a_flag_without_an_opposite_is_left_out_for_false():
    assert run("--plain=true")[1]["plain"] is True
    assert run("--plain=false")[1]["plain"] is False


def test_what_is_no_truth_value_and_what_follows_two_dashes_is_left_alone():
    assert run("--flag=maybe")[0].exit_code == 2
    assert run("--name=true")[1]["names"] == ("true",)
    _, got = run("hello", "--", "--flag=true")
    assert (got["words"], got["flag"]) == (("hello", "--flag=true"), False)


def test_the_arguments_of_another_program_are_its_own():
    result, got = run("--flag=true", "curl", "--flag=false", allow_interspersed_args=False, ignore_unknown_options=True)
    assert result.exit_code == 0
    assert (got["words"], got["flag"]) == (("curl", "--flag=false"), True)


def test_the_arguments_are_not_changed_in_place():
    command = click.Command("command", params=[click.Option(["--flag"], is_flag=True)])
    arguments = ["--flag=true"]
    assert without_values(command, click.Context(command), arguments) == ["--flag"]
    assert arguments == ["--flag=true"]
