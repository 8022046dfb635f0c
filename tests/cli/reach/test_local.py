import json

import pytest

from weft.cli.reach.connect import reach
from weft.cli.reach.local import LocalReach


@pytest.mark.root
def test_finds_pods_of_a_mesh_and_queries_their_envoys(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    monkeypatch.delenv("KUBECONFIG", raising=False)
    found = reach()
    assert isinstance(found, LocalReach) and found.mesh == mesh
    for word in ("talker-0", "talker-0.shop", "shop/talker-0", "pod/talker-0"):
        assert str(found.find(word)) == "talker-0.shop"
    assert [str(each) for each in found.find_all("deploy/talker")] == ["talker-0.shop", "talker-1.shop"]
    assert str(found.find("talker", "shop")) in ("talker-0.shop", "talker-1.shop")
    assert b'"state": "LIVE"' in found.admin(found.find("talker-1"), "/server_info").replace(b'":"', b'": "')


@pytest.mark.root
def test_lists_names_for_completion(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    found = reach(mesh)
    assert found.names() == ["talker", "talker-0.shop", "talker-1.shop"]
    assert found.names("pod", "shop") == ["talker", "talker-0", "talker-1"]
    assert found.names("pod", "elsewhere") == []
    assert found.names("deploy") == ["talker"]
    assert found.names("namespace") == ["shop"]
    assert found.names("service") == []


@pytest.mark.root
def test_queries_the_control_plane_of_a_mesh(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    found = reach(mesh)
    assert {each["proxy"] for each in json.loads(found.ask("syncz"))} == {"talker-0.shop", "talker-1.shop"}
    assert list(found.ask_all("syncz")) == [mesh]


@pytest.mark.root
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("job", "`job` has no proxy"),
        ("talkr", "did you mean `talker`?"),
        ("svc/talker", "not a workload"),
        ("talker.bank", "no workload or pod"),
    ],
)
def test_a_proxy_that_cannot_be_queried_is_an_error(weft, mesh, word, said):
    refused = weft("proxy-config", "clusters", word, "--mesh", mesh)
    assert refused.returncode == 1
    assert said in refused.stderr and "hint: " in refused.stderr
