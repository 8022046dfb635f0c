import json

import pytest
import typer

from weft.cli.reach.connect import Local, reach, split


@pytest.mark.parametrize(
    ("word", "namespace", "meant"),
    [
        ("payments-v1-0", "", ("", "payments-v1-0", "")),
        ("payments-v1-0", "shop", ("", "payments-v1-0", "shop")),
        ("payments-v1-0.shop", "", ("", "payments-v1-0", "shop")),
        ("payments-v1-0.shop", "shop", ("", "payments-v1-0", "shop")),
        ("deploy/payments", "", ("deployment", "payments", "")),
        ("Deployment/payments.shop", "", ("deployment", "payments", "shop")),
        ("po/payments", "shop", ("pod", "payments", "shop")),
        ("shop/payments", "", ("", "payments", "shop")),
        ("v1.2", "", ("", "v1.2", "")),  # no namespace is called 2, so the dot is the name's own
        ("deploy/v1.2", "shop", ("deployment", "v1.2", "shop")),
    ],
)
def test_reads_a_name_as_istioctl_and_as_weft_write_it(word, namespace, meant):
    assert split(word, namespace, known={"shop", "bank"}) == meant


@pytest.mark.parametrize(
    ("word", "namespace", "said"),
    [
        ("payments.bank", "shop", "two namespaces are named: bank and shop"),
        ("deplyo/payments", "", "there is no kind `deplyo`"),
    ],
)
def test_a_name_that_makes_no_sense_is_a_usage_error(word, namespace, said, capsys):
    with pytest.raises(typer.Exit) as refused:
        split(word, namespace, known={"shop", "bank"})
    assert refused.value.exit_code == 2
    assert said in capsys.readouterr().err


def test_on_a_cluster_what_follows_the_last_dot_is_the_namespace():
    assert split("web-0.anything", "") == ("", "web-0", "anything")


def test_a_mesh_of_this_machine_is_not_on_a_cluster(capsys):
    with pytest.raises(typer.Exit) as refused:
        reach("shop", kubernetes=True)
    assert refused.value.exit_code == 2
    assert "--mesh" in capsys.readouterr().err


@pytest.mark.root
def test_finds_pods_of_a_mesh_and_asks_their_envoys(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    monkeypatch.delenv("KUBECONFIG", raising=False)
    found = reach()
    assert isinstance(found, Local) and found.mesh == mesh
    for word in ("talker-0", "talker-0.shop", "shop/talker-0", "pod/talker-0"):
        assert str(found.find(word)) == "talker-0.shop"
    assert [str(each) for each in found.find_all("deploy/talker")] == ["talker-0.shop", "talker-1.shop"]
    assert str(found.find("talker", "shop")) in ("talker-0.shop", "talker-1.shop")
    assert b'"state": "LIVE"' in found.admin(found.find("talker-1"), "/server_info").replace(b'":"', b'": "')


@pytest.mark.root
def test_says_what_could_be_typed(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    found = reach(mesh)
    assert found.names() == ["talker", "talker-0.shop", "talker-1.shop"]
    assert found.names("pod", "shop") == ["talker", "talker-0", "talker-1"]
    assert found.names("pod", "elsewhere") == []
    assert found.names("deploy") == ["talker"]
    assert found.names("namespace") == ["shop"]
    assert found.names("service") == []


@pytest.mark.root
def test_asks_the_control_plane_of_a_mesh(weft, mesh, monkeypatch):
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
        ("svc/talker", "no workload"),
        ("talker.bank", "no workload or pod"),
    ],
)
def test_who_cannot_be_asked_is_told_of(weft, mesh, word, said):
    refused = weft("proxy-config", "clusters", word, "--mesh", mesh)
    assert refused.returncode == 1
    assert said in refused.stderr and "hint: " in refused.stderr
