import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.statuses import mesh as status_of
from cli.statuses import pod, workload
from weft.base.problem import Problem, Where
from weft.cli.main import app
from weft.demo import shop
from weft.demo.check import CheckReport, DemoStep
from weft.local.run_directory import MeshRecord


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Record the call that would run the mesh in the foreground, without running it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr("weft.cli.run.foreground.missing_privileges", list)
    calls = []
    monkeypatch.setattr(
        "weft.cli.run.foreground.run_foreground", lambda *arguments, **named: calls.append((arguments, named))
    )
    return calls


def test_copies_the_shop_to_an_editable_directory_and_prints_its_path(ran, tmp_path):
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0
    assert (tmp_path / "weft-demo" / "payments.yaml").exists()
    assert "copied the shop to weft-demo" in result.stderr
    ((directory,), named) = ran[0]
    assert str(directory) == "weft-demo"
    assert named["live"]
    assert named["trust"].certificate_ttl == shop.CERTIFICATE_TTL


def test_a_second_demo_is_refused_before_it_is_copied_and_may_have_another_name(ran, tmp_path, monkeypatch):
    running = MeshRecord("demo", "/run/weft/demo", running=True, directory="/shops/first")
    monkeypatch.setattr("weft.local.run_directory.find", lambda name: running if name == "demo" else None)
    result = CliRunner().invoke(app, ["demo", "second"])
    assert result.exit_code == 1
    assert "a mesh named `demo` is running already (/shops/first)" in result.stderr
    assert "hint: or run another beside it: weft demo second --name demo-2" in result.stderr
    assert ran == [] and not (tmp_path / "second").exists()
    assert CliRunner().invoke(app, ["demo", "second", "--name", "demo-2"]).exit_code == 0
    assert ran[0][1]["name"] == "demo-2" and (tmp_path / "second").is_dir()


def test_missing_root_privileges_are_an_error_before_the_copy(ran, tmp_path, monkeypatch):
    lacking = Problem(Where(), "this process (UID 1000) lacks CAP_NET_ADMIN", "sudo weft up")
    monkeypatch.setattr("weft.cli.run.foreground.missing_privileges", lambda: [lacking])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    program = tmp_path / "weft"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program), "demo"])
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 1
    assert "error: root is needed: this process (UID 1000) lacks CAP_NET_ADMIN\n" in result.stderr
    assert f"hint: sudo {program} demo\n" in result.stderr
    assert not (tmp_path / "weft-demo").exists()


def test_the_help_names_the_number_of_workloads():
    counted = sum(path.read_text().count("kind: Workload\n") for path in shop.source().glob("*.yaml"))
    assert counted == 9
    assert "Nine small workloads" in CliRunner().invoke(app, ["demo", "--help"]).stdout


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
    assert "hint: give another directory" in result.stderr
    assert ran == []


def test_the_tips_name_the_process_of_a_pod_that_runs(ran):
    CliRunner().invoke(app, ["demo"])
    tips = ran[0][1]["tips"](status_of(workload("catalog", pod("catalog", pid=815))))
    assert len(tips) == 4
    assert tips[-1][1] == ["kill -9 815"]


def test_checking_exits_with_the_judges_verdict(monkeypatch):
    cold = CheckReport(
        (DemoStep("the sun shines", ok=False, saw="it was cold", seconds=1.0),), Path("weft.log"), ("bye",)
    )
    monkeypatch.setattr("weft.cli.run.foreground.refuse_without_privileges", lambda: None)
    monkeypatch.setattr("weft.demo.check.run", lambda name, say: cold)
    result = CliRunner().invoke(app, ["demo", "--check"])
    assert "1 of 1 steps failed; the end of weft's own log (weft.log):\nbye\n" in result.stderr
    assert CliRunner().invoke(app, ["demo", "--check"]).exit_code == 1


def test_the_check_uses_the_given_name_and_no_running_meshs_name(ran, monkeypatch):
    names = []
    monkeypatch.setattr("weft.demo.check.run", lambda name, say: names.append(name) or CheckReport((), Path()))
    assert CliRunner().invoke(app, ["demo", "--check", "--name", "mine"]).exit_code == 0
    assert CliRunner().invoke(app, ["demo", "--check"]).exit_code == 0
    assert names == ["mine", f"check-{os.getpid()}"]
    running = MeshRecord("mine", "/run/weft/mine", running=True, directory="/shops/first")
    monkeypatch.setattr("weft.local.run_directory.find", lambda name: running)
    result = CliRunner().invoke(app, ["demo", "--check", "--name", "mine"])
    assert result.exit_code == 1 and "weft demo --check --name mine-2" in result.stderr
    assert len(names) == 2
