"""Secrets of DestinationRules; the case of WFT0219 has the plain one."""

import msgspec

from analyze.meshes import facts, istio
from weft.analyze.credentials import meant_secret, of_credentials
from weft.model.credential import Credential
from weft.model.names import CredentialRef

EDGE = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: edge, namespace: edge, labels: {app: edge}}
spec: {gateway: {}}
"""


def rule(mode, more=""):
    tls = f"{{mode: {mode}, credentialName: outer}}"
    return istio("DestinationRule", f"{{host: outer.example, {more}trafficPolicy: {{tls: {tls}}}}}", namespace="edge")


def told(text, *held):
    known = {each.reference: each for each in held}
    return [(each.what, each.hint) for each in of_credentials(msgspec.structs.replace(facts(text), credentials=known))]


def secret(name="outer", namespace="edge", *, chain=b"", roots=b""):
    return Credential(name=name, namespace=namespace, chain=chain, roots=roots)


def test_a_secret_in_another_namespace_is_reported_with_the_right_namespace():
    ((what, hint),) = told(EDGE + rule("SIMPLE"), secret(namespace="shop", roots=b"r"))
    assert what.startswith("the Secret edge/outer does not exist or cannot be parsed")
    assert hint == "namespace shop has a Secret of this name; it must be in namespace edge"


def test_a_secret_must_have_what_the_tls_mode_needs():
    assert told(EDGE + rule("SIMPLE"), secret(roots=b"r")) == []
    assert told(EDGE + rule("SIMPLE"), secret("outer-cacert", roots=b"r")) == []
    ((what, _),) = told(EDGE + rule("SIMPLE"), secret(chain=b"c"))
    assert "has no CA certificate" in what
    assert told(EDGE + rule("MUTUAL"), secret(chain=b"c", roots=b"r")) == []
    ((what, _),) = told(EDGE + rule("MUTUAL"), secret(roots=b"r"))
    assert "has no certificate" in what


def test_without_gateways_no_secret_is_missing():
    assert told(EDGE.replace("gateway: {}", "command: [sleep]") + rule("SIMPLE")) == []


SIDECAR = EDGE.replace("gateway: {}", "command: [sleep]")
SELECTED = "workloadSelector: {matchLabels: {app: edge}}, "


def test_a_rule_that_selects_sidecars_cannot_use_a_secret():
    ((what, hint),) = told(SIDECAR + rule("SIMPLE", SELECTED), secret(roots=b"r"))
    assert what.startswith("only gateways get the Secret outer") and "caCertificates" in hint
    assert told(EDGE + rule("SIMPLE", SELECTED), secret(roots=b"r")) == []


def test_a_similar_secret_name_is_guessed():
    known = facts(EDGE)
    known = msgspec.structs.replace(known, credentials={CredentialRef("outer", "edge"): secret()})
    assert "outer" in meant_secret("outre", "edge", known)
