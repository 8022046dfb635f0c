import click
import pytest

from weft.cli.print.progress import Progress, confirm, progress


def test_without_a_terminal_confirmation_needs_yes(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(click.exceptions.Exit):
        confirm("really?", yes=False)
    assert "-y" in capsys.readouterr().err
    confirm("really?", yes=True)


def test_without_a_terminal_each_step_is_one_line_printed_once(capsys):
    with progress() as shown:
        for words in ("a", "a", "b"):
            shown.now(words)
    assert capsys.readouterr().err.splitlines() == ["a", "b"]


def test_on_a_terminal_one_line_changes(capsys):
    class Status:
        words = ""

        def update(self, words):
            self.words = words

    status = Status()
    Progress(status).now("a")
    assert status.words == "a"
    assert not capsys.readouterr().err
