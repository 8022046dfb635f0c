"""What goes wrong on a cluster sooner or later, done to it on purpose, while pods of the mesh speak to each other.

What runs must go on: not one request fails. What must be refused is, and the reason can be read.
"""

import base64
import json
import os
import sys
import time

import jwt
import pytest
from tools.kube.process import Failed

from cluster import traffic as parts
from cluster.mesh import NAMESPACE, until
from cluster.traffic import Traffic, logs, peer, service, slept_until

CONTROL, AGENT = "app=istiod,istio.io/rev=default", "app=weft-node,istio.io/rev=default"
AWAY_SECONDS = 62


@pytest.fixture(scope="module")
def namespace(mesh):
    name = mesh.namespace("faults")
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def traffic(mesh, namespace):
    return Traffic(mesh, namespace)


@pytest.fixture
def held(mesh, namespace):
    """A pod that nobody runs: it is only there to be spoken of."""
    manifest = {**peer(namespace, "held"), "apiVersion": "v1"}
    manifest["spec"]["schedulingGates"] = [{"name": "weft.dev/never"}]
    mesh.cluster.apply(manifest)
    yield "held"
    mesh.kubectl("delete", "pod", f"--namespace={namespace}", "held", "--ignore-not-found", "--force")


def token(mesh, namespace, pod, account="default", audience="istio-ca"):
    bound = ["--bound-object-kind=Pod", f"--bound-object-name={pod}"] if pod else []
    asked = [account, f"--namespace={namespace}", f"--audience={audience}", *bound]
    return mesh.kubectl("create", "token", *asked).strip()


def expired(mesh, good):
    """The same token as of yesterday: signed as the API server signs, whose key the test cluster's owner has."""
    claims = jwt.decode(good, options={"verify_signature": False})
    for claim in ("iat", "nbf", "exp"):
        claims[claim] -= 86_400
    key = (mesh.cluster.api.keys / "service-account.key").read_text()
    headers = {"kid": jwt.get_unverified_header(good)["kid"]}
    return jwt.encode(claims, key, algorithm="RS256", headers=headers)


def ask(mesh, questions, address=""):
    """At port 15012, from the node. See caller.py."""
    found = mesh.cluster.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/services/istiod") if not address else None
    asked = {
        "address": address or f"{found['spec']['clusterIP']}:15012",
        "name": f"istiod.{NAMESPACE}.svc",
        "roots": roots(mesh) if not address else None,
        "questions": questions,
    }
    return caller(mesh, asked)


def caller(mesh, asked):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return parts.on_node(mesh.cluster, "cluster.caller", asked, environment)


def roots(mesh):
    jsonpath = "jsonpath={.data.root-cert\\.pem}"
    return mesh.kubectl("get", "configmap", f"--namespace={NAMESPACE}", "istio-ca-root-cert", "-o", jsonpath)


def test_tokens_that_prove_nothing_are_refused_and_both_sides_say_why(mesh, namespace, held):
    good = token(mesh, namespace, held)
    identity = f"spiffe://cluster.local/ns/{namespace}/sa/default"
    tokens = {
        "good": good,
        "expired": expired(mesh, good),
        "for somebody else": token(mesh, namespace, held, audience="vault"),
        "of no pod": token(mesh, namespace, ""),
        "forged": good[:-20] + ("A" * 20),
        "none": "",
    }
    answers = ask(mesh, {name: {"token": each, "identity": identity} for name, each in tokens.items()})
    mesh.kubectl("delete", "pod", f"--namespace={namespace}", held, "--force")
    of_dead = {"of a pod that is gone": {"token": good, "identity": identity}}
    answers |= until(lambda: "refused" in (found := ask(mesh, of_dead))["of a pod that is gone"] and found, timeout=30)
    assert answers.pop("good") == {"issued": [identity]}
    said = {name: answer["why"] for name, answer in answers.items()}
    reasons = {name: answer["refused"] for name, answer in answers.items()}
    assert reasons == {
        "expired": "token-signature",
        "for somebody else": "token-audience",
        "of no pod": "token-not-bound-to-a-pod",
        "forged": "token-signature",
        "none": "token-missing",
        "of a pod that is gone": "token-signature",
    }
    assert "expired" in said["expired"]
    assert "audience" in said["for somebody else"]
    written = logs(mesh, NAMESPACE, CONTROL, since="2m")
    for why in said.values():
        assert f"refused a certificate to an unknown caller: {why}" in written
    for each in filter(None, tokens.values()):
        assert each not in written
