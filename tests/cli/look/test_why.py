import json

import pytest


@pytest.mark.root
def test_a_resource_of_a_running_mesh_is_explained_part_by_part(weft, mesh):
    done = weft("why", "talker", "virtualInbound", "--mesh", mesh)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("listener virtualInbound of talker-0.shop, version ")
    (said,) = json.loads(weft("why", "talker", "BlackHoleCluster", "--mesh", mesh, "-o", "json").stdout)
    (part,) = said["parts"]
    assert (part["path"], part["sources"], part["rules"][0]["name"]) == ("", [], "black-hole")
    assert "default black-hole: " in weft("why", "talker", "BlackHoleCluster", "--mesh", mesh).stdout


@pytest.mark.root
@pytest.mark.parametrize("resource", [["virtualInbound:filter_chains"], ["listener", "virtualInbound.filter_chains"]])
def test_a_part_is_named_by_its_path(weft, mesh, resource):
    done = weft("why", "talker", *resource, "--mesh", mesh, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert all(part["path"].startswith("filter_chains") for part in json.loads(done.stdout)[0]["parts"])


@pytest.mark.root
def test_what_is_not_there_is_an_error_with_a_hint(weft, mesh):
    done = weft("why", "talker", "virtualInbond", "--mesh", mesh)
    assert done.returncode == 1
    assert "did you mean `virtualInbound`?" in done.stderr
    done = weft("why", "talker", "a", "b", "c", "--mesh", mesh)
    assert done.returncode == 2 and "hint: name a kind and a resource" in done.stderr
