import sys

import pytest

from weft.base.own_command import with_this_weft


@pytest.fixture
def weft(tmp_path, monkeypatch):
    program = tmp_path / "my venv" / "weft"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return program


def test_a_weft_that_sudo_would_not_find_is_named_by_its_path_with_what_was_typed(weft, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["weft", "demo", "my shop"])
    assert with_this_weft("sudo weft up") == f"sudo '{weft}' demo 'my shop'"
    assert with_this_weft("run as root: sudo weft …") == f"run as root: sudo '{weft}' …"


def test_a_module_is_run_as_a_module(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/src/weft/cli/__main__.py", "up"])
    assert with_this_weft("sudo weft up") == f"sudo {sys.executable} -P -m weft.cli up"


def test_other_hints_stay_as_they_are(weft):
    assert with_this_weft("apt-get install iptables") == "apt-get install iptables"
