"""Plain values are read without pydantic, and the rest as typer reads it."""

import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from weft.cli.flags.boolean_values import PlainCommand, PlainGroup


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


WORD = typer.Argument("nothing")
OTHERS = typer.Argument(None)
NUMBER = typer.Option(7, "--number")
SHARE = typer.Option(0.5, "--share")
COLOUR = typer.Option(Colour.RED, "--colour")
ANY_CASE = typer.Option(Colour.RED, "--any-case", case_sensitive=False)
FILE = typer.Option(None, "--file")
NAMES = typer.Option([], "--name")
SMALL = typer.Option(1, "--small", min=0, max=3)
FLAG = typer.Option(False, "--flag/--no-flag")


def run(*arguments, cls=PlainCommand):
    got = {}
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=cls)
    def command(
        word: str = WORD,
        others: list[Path] = OTHERS,
        number: int = NUMBER,
        share: float = SHARE,
        colour: Colour = COLOUR,
        any_case: Colour = ANY_CASE,
        file: Path | None = FILE,
        names: list[str] = NAMES,
        small: int = SMALL,
        flag: bool = FLAG,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "got"}
        got.update(given)

    return CliRunner().invoke(app, arguments), got


CASES = [
    (),
    ("hello",),
    ("hello", "a", "b/c"),
    ("--number", "12"),
    ("--number", "-12"),
    ("--number", "+1_0"),
    ("--number", "x"),
    ("--number", "1.5"),
    ("--share", "2"),
    ("--share", "1e3"),
    ("--share", "nan?"),
    ("--colour", "blue"),
    ("--colour", "BLUE"),
    ("--colour", "green"),
    ("--any-case", "BLUE"),
    ("--file", "/nowhere/at/all"),
    ("--file", ""),
    ("--name", "a", "--name", "b"),
    ("--small", "2"),
    ("--small", "9"),
    ("--flag",),
    ("--no-flag",),
    ("--number",),
]


@pytest.mark.parametrize("arguments", CASES, ids=" ".join)
def test_every_value_is_the_one_that_typer_reads(arguments):
    mine, plain = run(*arguments)
    typers, usual = run(*arguments, cls=typer.core.TyperCommand)
    assert (mine.exit_code, mine.output, plain) == (typers.exit_code, typers.output, usual)
    assert {name: type(value) for name, value in plain.items()} == {name: type(value) for name, value in usual.items()}


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


def test_what_is_no_truth_value_and_what_follows_two_dashes_is_left_alone():
    assert run("--flag=maybe")[0].exit_code == 2
    assert run("--name=true")[1]["names"] == ["true"]
    _, got = run("hello", "--", "--flag=true")
    assert (got["others"], got["flag"]) == ([Path("--flag=true")], False)


def test_the_arguments_of_another_program_are_its_own():
    got = {}
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=PlainCommand, context_settings={"allow_interspersed_args": False})
    def command(words: list[str] = OTHERS, flag: bool = FLAG) -> None:
        got.update(words=words, flag=flag)

    assert CliRunner().invoke(app, ["--flag=true", "curl", "--flag=false"]).exit_code == 0
    assert got == {"words": ["curl", "--flag=false"], "flag": True}


def test_what_must_be_given_is_still_asked_for():
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=PlainCommand)
    def command(word: str = typer.Argument(...)) -> None: ...

    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "Missing argument" in result.stderr


def test_a_callback_gets_the_value_too():
    seen = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=PlainCommand)
    def command(number: int = typer.Option(0, "--number", callback=lambda value: seen.append(value))) -> None: ...

    assert CliRunner().invoke(app, ["--number", "4"]).exit_code == 0
    assert seen == [4]


@pytest.mark.parametrize("cls", [PlainCommand, PlainGroup])
def test_plain_values_need_no_pydantic(cls):
    where = "@app.callback(invoke_without_command=True)" if cls is PlainGroup else f"@app.command(cls={cls.__name__})"
    made = f"typer.Typer(cls={cls.__name__})" if cls is PlainGroup else "typer.Typer()"
    code = f"""
import sys, typer, pathlib
from weft.cli.flags.boolean_values import {cls.__name__}
app = {made}
{where}
def command(number: int = typer.Option(1), file: pathlib.Path = typer.Option(None), word: str = typer.Option("")): ...
try:
    app(["--number", "4", "--file", "x", "--word", "y"])
except SystemExit as ended:
    assert not ended.code
print("pydantic" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "False"
