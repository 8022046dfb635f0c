import io
import sys

import click
import pytest
from rich.table import Table

from weft.base.problem import Problem, Where
from weft.cli.print.output import (
    fail,
    from_here,
    print_json,
    print_line,
    print_table,
    remember_mesh,
    say,
    trouble_is_no_answer,
    with_same_mesh,
)


def test_messages_go_to_standard_error_and_data_to_standard_output(capsys):
    say("ending …")
    print_json({"a": 1})
    captured = capsys.readouterr()
    assert captured.err == "ending …\n"
    assert captured.out == '{\n  "a": 1\n}\n'


def test_failing_prints_the_error_then_each_hint_and_ends_with_its_code(capsys):
    with pytest.raises(click.exceptions.Exit) as ended:
        fail("no mesh is running", "weft up DIR\nweft demo", code=2)
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == "error: no mesh is running\nhint: weft up DIR\nhint: weft demo\n"


def test_a_pipe_gets_whole_rows_without_colours(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    table = Table("[red]A[/red]", "B", box=None)
    table.add_row("x " * 400, "y")
    table.add_row("x", "y")
    print_table(table)
    first, second, third = sys.stdout.getvalue().splitlines()
    assert (first.split(), len(second.split()), third.split()) == (["A", "B"], 401, ["x", "y"])
    assert third == third.rstrip()


def test_a_very_long_word_is_cut_in_an_error(capsys):
    with pytest.raises(click.exceptions.Exit):
        fail(f"no mesh named `{'x' * 5_000}` is running", "")
    assert capsys.readouterr().err == f"error: no mesh named `{'x' * 199}… is running\n"


def test_failures_have_another_exit_code_than_negative_results(capsys):
    with pytest.raises(click.exceptions.Exit) as ended, trouble_is_no_answer():
        fail("no", "")
    assert ended.value.exit_code == 2
    error = ValueError()
    error.problem = Problem(Where("a.yaml", 3), "no", "try another")
    with pytest.raises(click.exceptions.Exit) as ended, trouble_is_no_answer():
        raise error
    assert ended.value.exit_code == 2 and "error: a.yaml:3: no\nhint: try another\n" in capsys.readouterr().err


def test_paths_are_relative_to_the_working_directory(monkeypatch, tmp_path, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path)
    assert (
        from_here(f"VirtualService shop/web ({tmp_path}/mesh/web.yaml:3)")
        == "VirtualService shop/web (mesh/web.yaml:3)"
    )
    assert from_here(f"{tmp_path}-other/web.yaml") == f"{tmp_path}-other/web.yaml"
    print_line(f"  by {tmp_path}/web.yaml:3")
    assert capsys.readouterr().out == "  by web.yaml:3\n"
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert from_here(f"{tmp_path}/web.yaml") == f"{tmp_path}/web.yaml"
    monkeypatch.chdir("/")
    assert from_here("/etc/web.yaml") == "/etc/web.yaml"


@pytest.mark.parametrize("width", (80, 100))
def test_a_terminal_gets_long_lines_wrapped_between_words(monkeypatch, capsys, width):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    line = (
        "web-0.shop: route: the route (unnamed) matches  [VirtualService shop/a-long-name (mesh/a-long-name.yaml:34)] "
        * 3
    )
    print_line(f"  {line}")
    printed = capsys.readouterr().out
    assert printed.split() == line.split() and max(map(len, printed.splitlines())) <= width
    assert printed.startswith("  web-0") and all(each.startswith("      ") for each in printed.splitlines()[1:])
    print_line("")
    assert capsys.readouterr().out == "\n"


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (
            "list them with: weft proxy-config all web-0.shop",
            "list them with: weft proxy-config all web-0.shop --mesh 'a b'",
        ),
        ("weft proxy-status web-0.shop", "weft proxy-status web-0.shop --mesh 'a b'"),
        ("first\nsee: weft status", "first\nsee: weft status --mesh 'a b'"),
        ("see: weft status --mesh b", "see: weft status --mesh b"),
        ("weft up DIR", "weft up DIR"),
        ("see: weft ps, weft logs", "see: weft ps, weft logs"),
    ],
)
def test_a_suggested_command_is_for_the_mesh_of_this_command(hint, expected):
    with click.Context(click.Command("why")):
        assert with_same_mesh(hint) == hint
        remember_mesh("--mesh", "a b")
        assert with_same_mesh(hint) == expected
