import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from weft.cli.reach.local_versions import here, is_somebody_there, lines


@pytest.fixture
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_without_a_mesh_or_a_kubeconfig_there_is_nothing_to_query(alone, monkeypatch):
    assert not is_somebody_there()
    (alone / "run" / "stale").mkdir(parents=True)
    assert not is_somebody_there()
    monkeypatch.setenv("KUBECONFIG", "/some/file")
    assert is_somebody_there()


def test_a_kubeconfig_at_home_is_a_cluster(alone):
    (alone / ".kube").mkdir()
    (alone / ".kube" / "config").touch()
    assert is_somebody_there()


@pytest.mark.root
def test_a_running_mesh_can_be_queried(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    assert is_somebody_there()


def test_with_several_meshes_none_is_queried_and_a_message_is_printed(alone, monkeypatch, capsys):
    (alone / "run" / "some").mkdir(parents=True)
    records = [SimpleNamespace(name=name, running=name != "killed") for name in ("b", "killed", "shop")]
    monkeypatch.setattr("weft.local.run_directory.meshes", lambda: records)
    assert not is_somebody_there()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "several meshes are running: b, shop; choose one: --mesh b\n")


def test_without_a_mesh_the_command_line_is_not_even_loaded(alone):
    code = (
        "import sys\nfrom weft.cli import start\nsys.argv = ['weft', 'version']\nstart.main()\n"
        "print({'click', 'msgspec', 'weft.cli.main'} & sys.modules.keys(), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == lines(here())
    assert done.stderr == "set()\n"
