"""Candidates of completion, with a mesh that can be queried and without one. `test_completion.py` tests the shells'
side."""

from types import SimpleNamespace

import pytest

from weft.cli.flags import completions


def typed(*arguments, **parameters):
    return SimpleNamespace(params=parameters, args=list(arguments))


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.mark.parametrize("names", ["pods", "services", "namespaces", "contexts", "clusters", "hosts", "routes"])
def test_completion_prints_no_errors(nobody, names, capfd):
    found = getattr(completions, names)(typed("web"), None, "")
    assert found == (["deploy/"] if names == "pods" else [])
    assert capfd.readouterr() == ("", "")


def test_no_mesh_has_no_name(nobody):
    assert completions.meshes(typed(), None, "") == []


@pytest.mark.root
def test_what_follows_pod_or_svc_is_a_name_of_that_kind(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    assert completions.described(typed(kind="pod", mesh=mesh), None, "talker-1") == ["talker-1.shop"]
    assert completions.described(typed(kind="svc", mesh=mesh), None, "talker") == []


@pytest.mark.root
def test_a_kind_whose_names_are_not_listed_has_none(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    assert completions.pods(typed(mesh=mesh), None, "sts/tal") == ["sts/talker"]
    assert completions.pods(typed(mesh=mesh), None, "svc/") == []
