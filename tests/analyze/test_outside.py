"""The outside before closed doors: the case of WFT0311 has the plain one."""

from analyze.meshes import WEB, facts
from weft.analyze.outside import of_outside
from weft.files.documents import read_documents

STRICT = """---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  mtls: {mode: STRICT}
  portLevelMtls: {8080: {mode: %s}}
"""


def found(kind, mode, inject="true"):
    text = WEB.replace("spec: {selector: {app: web}", f"spec: {{type: {kind}, selector: {{app: web}}") + STRICT.replace(
        "%s", mode
    )
    text = text.replace("version: v2}", f"version: v2, sidecar.istio.io/inject: '{inject}'}}")
    return [
        problem.where.field for problem in of_outside(facts(text), read_documents(text.encode(), "m.yaml").documents)
    ]


def test_an_exposed_service_is_reported_if_all_its_workloads_are_strict_at_the_port():
    assert found("LoadBalancer", "STRICT") == ["spec.type"]
    assert found("LoadBalancer", "PERMISSIVE") == []
    assert found("LoadBalancer", "STRICT", inject="false") == []  # that one takes plaintext


def test_a_cluster_ip_service_is_not_reported():
    assert found("ClusterIP", "STRICT") == []
