"""The API server that the other tests of this folder speak to is a real one, and strict."""

import ssl
import subprocess
import urllib.error
import urllib.request

import msgspec
import pytest
from tools.kube.api_server import RequestFailed, started

from tools.kube import build, left_over


def ask(server, path, **headers):
    context = ssl.create_default_context(cafile=str(server.ca))
    asked = urllib.request.Request(server.server + path, headers=headers)
    with urllib.request.urlopen(asked, context=context, timeout=10) as answer:
        return answer.read()


def test_the_api_server_has_the_expected_release(api_server):
    assert api_server.request("GET", "/version")["gitVersion"] == "v1.34.3"


def test_anonymous_requests_are_rejected_and_the_token_is_accepted(api_server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(api_server, "/api/v1/pods")
    assert refused.value.code == 401
    assert b"PodList" in ask(api_server, "/api/v1/pods", Authorization=f"Bearer {api_server.token}")


def test_the_kubeconfig_works_for_kubectl(api_server):
    command = [build.path("kubectl"), "--kubeconfig", api_server.kubeconfig, "auth", "can-i", "create", "pods"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "yes"


def test_an_account_may_do_only_what_its_role_allows(api_server):
    namespace = api_server.make_namespace("roles")
    said = api_server.request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"spec": {"audiences": []}}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(api_server, "/api/v1/pods", Authorization=f"Bearer {said['status']['token']}")
    assert refused.value.code == 403


@pytest.mark.kube
def test_what_is_stored_survives_a_restart_and_old_revisions_do_not_survive_a_compaction(tmp_path):
    with started(tmp_path) as server:
        before = server.make_namespace("kept")
        old = server.request("GET", "/api/v1/namespaces")["metadata"]["resourceVersion"]
        server.request("PATCH", f"/api/v1/namespaces/{before}", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
        server.compact()
        server.restart_api(kill=True)
        assert server.request("GET", "/api/v1/namespaces/kept")["metadata"]["labels"]["a"] == "b"
        with pytest.raises(RequestFailed) as gone:
            server.request("GET", f"/api/v1/namespaces?resourceVersion={old}&resourceVersionMatch=Exact&limit=5")
        assert gone.value.status == 410
        known = {msgspec.json.decode(file.read_bytes())["pid"] for file in left_over.place().glob("*/*.process")}
        assert {server.api.pid(), server.etcd.pid()} <= known  # so that it can be ended if nobody is left to do it
    assert not server.api.pid()
    assert not server.etcd.pid()


MERGE = "application/merge-patch+json"
