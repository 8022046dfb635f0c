"""ServiceEntries that lead out of a mesh on one machine. The mistake itself is in `cases/WFT0322.yaml`."""

import pytest

from analyze.meshes import facts, istio
from weft.analyze.external_hosts import of_external_hosts
from weft.analyze.facts import facts_of
from weft.api.parse import parse
from weft.files.documents import read_documents
from weft.model.settings import Settings

WORKLOAD = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {command: [web]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, name: http}]}
"""


def entry(resolution, *addresses, host="api.example.com"):
    endpoints = [{"address": each} for each in addresses]
    spec = {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": resolution}
    return istio("ServiceEntry", {**spec, **({"endpoints": endpoints} if endpoints else {})})


def codes(*texts):
    return [problem.code for problem in of_external_hosts(facts("\n".join(texts)))]


@pytest.mark.parametrize(
    "written",
    [
        entry("DNS"),
        entry("DNS_ROUND_ROBIN", "other.example.org"),
        entry("DNS", "web", "other.example.org"),
        entry("STATIC", "8.8.8.8"),
        entry("STATIC", "2001:4860:4860::8888"),
    ],
)
def test_a_host_outside_is_found_on_one_machine_only(written):
    assert codes(WORKLOAD, written) == ["WFT0322"]
    assert codes(written) == []


@pytest.mark.parametrize(
    "written",
    [
        entry("DNS", "web"),
        entry("DNS", "web.shop"),
        entry("DNS", "web.shop.svc.cluster.local."),
        entry("DNS", "web-0.web.shop.svc.cluster.local"),
        entry("DNS", "localhost"),
        entry("STATIC", "10.244.0.9"),
        entry("STATIC", "127.0.0.1"),
        entry("NONE"),
    ],
)
def test_a_host_that_may_be_inside_is_not_found(written):
    assert codes(WORKLOAD, written) == []


def test_with_a_way_out_nothing_is_found():
    (workload,) = parse(read_documents(WORKLOAD.partition("---")[0].encode(), "mesh.yaml").documents[0]).values
    assert facts_of(Settings(), [(workload,)]).confined
    assert not facts_of(Settings(), [(workload,)], egress=True).confined
