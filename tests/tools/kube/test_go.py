"""Go is found on PATH, or fetched from the module proxies of Go itself, and always verified."""

import zipfile

import pytest

from tools.kube import go


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A Go on PATH that is too old to build with, but has the settings of the module proxies."""
    monkeypatch.delenv("GOPROXY", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    program(tmp_path, "go1.19.8", proxy="https://one.test/,direct")


def program(directory, version, proxy=""):
    path = directory / "go"
    path.write_text(f'#!/bin/sh\n[ "$2" = GOPROXY ] && echo "{proxy}" || echo {version}\n')
    path.chmod(0o755)
    return path


def test_uses_the_module_proxies_of_the_go_on_the_path(asked):
    assert go.proxies() == ["https://one.test"]


def test_the_environment_wins(asked, monkeypatch):
    monkeypatch.setenv("GOPROXY", "http://two.test|https://three.test,off")
    assert go.proxies() == ["http://two.test", "https://three.test"]


def test_without_any_go_there_are_no_module_proxies(monkeypatch, tmp_path):
    monkeypatch.delenv("GOPROXY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert go.proxies() == []


def test_sums_as_the_checksum_database_does(tmp_path):
    """The sum that go.sum files have for `golang.org/x/text v0.3.0/go.mod`."""
    with zipfile.ZipFile(tmp_path / "module.zip", "w") as archive:
        archive.writestr("go.mod", "module golang.org/x/text\n")
    with zipfile.ZipFile(tmp_path / "module.zip") as archive:
        assert go.sum_of(archive) == "h1:NqM8EUOU14njkJ3fqMW+pc6Ldnwhi/IjpwHt7yyuwOQ="


def test_takes_the_one_on_the_path_if_it_is_new_enough(tmp_path, monkeypatch):
    new = program(tmp_path, "go1.25.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert go.find(tmp_path, pytest.fail) == new


def test_a_missing_go_is_an_error_with_a_hint(tmp_path, monkeypatch):
    program(tmp_path, "go1.19.8")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(go.NoGo, match="install"):
        go.find(tmp_path / "cache", lambda line: None)
