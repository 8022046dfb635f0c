import pytest
from typer.testing import CliRunner

from cli.statuses import mesh as status_of
from cli.statuses import pod, workload
from weft.cli.main import app


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """What would be run in the foreground, without running it."""
    monkeypatch.chdir(tmp_path)
    calls = []
    monkeypatch.setattr(
        "weft.cli.foreground.run_foreground", lambda *arguments, **named: calls.append((arguments, named))
    )
    return calls


def test_copies_the_shop_to_where_it_can_be_edited_and_says_where(ran, tmp_path):
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0
    assert (tmp_path / "weft-demo" / "payments.yaml").exists()
    assert "copied the shop to weft-demo" in result.stderr
    ((directory,), named) = ran[0]
    assert str(directory) == "weft-demo"
    assert named["live"]


def test_an_edited_copy_is_not_overwritten(ran, tmp_path):
    (tmp_path / "mine").mkdir()
    result = CliRunner().invoke(app, ["demo", "mine"])
    assert "using mine as it is" in result.stderr
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error_with_a_hint(ran, tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "file/shop"])
    assert result.exit_code == 1
    assert "cannot be copied to file/shop" in result.stderr
    assert "hint: give another place" in result.stderr
    assert ran == []


def test_the_tips_name_the_process_of_a_pod_that_runs(ran):
    CliRunner().invoke(app, ["demo"])
    tips = ran[0][1]["tips"](status_of(workload("catalog", pod("catalog", pid=815))))
    assert len(tips) == 3
    assert tips[-1][1] == ["kill -9 815"]


def test_checking_exits_with_the_judges_verdict(monkeypatch):
    monkeypatch.setattr("weft.cli.demo_check.run", lambda: 1)
    assert CliRunner().invoke(app, ["demo", "--check"]).exit_code == 1
