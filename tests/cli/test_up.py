from pathlib import Path

from typer.testing import CliRunner

from weft.base.problem import Problem, Where
from weft.cli.main import app
from weft.cli.up import name_of


def test_the_mesh_is_named_after_its_directory(tmp_path, monkeypatch):
    assert name_of(Path("examples/shop")) == "shop"
    assert name_of(Path("/meshes/My Shop_2!")) == "my-shop-2"
    assert name_of(Path("/")) == "mesh"
    assert len(name_of(Path("x" * 80))) == 32
    (tmp_path / "bank").mkdir()
    monkeypatch.chdir(tmp_path / "bank")
    assert name_of(Path()) == "bank"


def test_a_directory_that_is_not_there_is_said_before_anything_is_made(tmp_path):
    result = CliRunner().invoke(app, ["up", str(tmp_path / "no")])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path / 'no'} does not exist\nhint: ")


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "file.yaml").write_text("")
    assert "is not a directory" in CliRunner().invoke(app, ["up", str(tmp_path / "file.yaml")]).stderr


def test_without_root_it_says_what_is_missing_and_what_to_do(tmp_path, monkeypatch):
    missing = [
        Problem(Where(), "this process lacks CAP_NET_ADMIN", "sudo weft up"),
        Problem(Where(file="/run"), "cannot be written to", "sudo weft up"),
    ]
    monkeypatch.setattr("weft.cli.foreground.missing_privileges", lambda: missing)
    monkeypatch.setattr("sys.argv", ["weft", "up", "DIR"])
    monkeypatch.setenv("PATH", "")
    for how in ([], ["--detach"]):
        result = CliRunner().invoke(app, ["up", str(tmp_path), *how])
        assert result.exit_code == 1
        first, second, hint = result.stderr.splitlines()
        assert first == "error: this process lacks CAP_NET_ADMIN"
        assert second.strip() == "/run: cannot be written to"
        assert hint == "hint: sudo weft up DIR"
