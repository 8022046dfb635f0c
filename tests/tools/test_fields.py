"""The page of traffic fields is up to date with the readers and the tests."""

import copy

import msgspec
import pytest

from tools import fields, reference
from translate.test_any_routes import document, mesh_of, parsed, received

PORT = {"number": 80, "name": "own", "protocol": "HTTP"}
WRITTEN = {
    "Gateway": {"selector": {"istio": "ingress"}, "servers": [{"name": "own", "port": PORT, "hosts": ["*"]}]},
    "Sidecar": {
        "workloadSelector": {"labels": {"app": "frontend"}},
        "ingress": [{"port": PORT, "captureMode": "IPTABLES", "defaultEndpoint": "127.0.0.1:8080"}],
        "egress": [{"port": PORT, "captureMode": "IPTABLES", "hosts": ["./*"]}],
    },
}

ROUTE = {"parentRefs": [{"name": "edge"}], "rules": [{"name": "own", "backendRefs": [{"name": "app", "port": 80}]}]}
CHECK = {"validation": {"mode": "AllowValidOnly", "caCertificateRefs": [{"kind": "ConfigMap", "name": "roots"}]}}
STANDARD = {
    "GatewayClass": {"controllerName": "weft.dev/gateway-controller", "description": "for everybody"},
    "TLSRoute": ROUTE,
    "TCPRoute": ROUTE,
    "Gateway.gateway.networking.k8s.io": {
        "gatewayClassName": "weft",
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        "tls": {"frontend": {"default": CHECK, "perPort": [{"port": 80, "tls": CHECK}]}},
    },
    "BackendTLSPolicy": {
        "targetRefs": [{"group": "", "kind": "Service", "name": "app"}],
        "validation": {"hostname": "a.example.com", "wellKnownCACertificates": "System"},
    },
}


def test_the_page_is_up_to_date_with_readers_and_tests():
    assert fields.PAGE.read_text() == fields.page(), "run: make reference"


@pytest.mark.parametrize("mark", list(fields.marks(fields.ROOT / "tests")), ids=lambda mark: mark.test)
def test_a_mark_names_fields_that_are_acted_on(mark):
    fates = fields.fates(mark.kind)
    assert {fates.get(field) for field in mark.fields} <= {reference.ACTED_ON, reference.DEPRECATED}


def sent(*texts):
    ports = [{"name": "http", "port": 80}, {"name": "tcp", "port": 81}]
    service = document("Service", "app", {"clusterIP": "10.96.0.9", "ports": ports}, "v1")
    objects = parsed([service, *texts])
    assert len(objects) == len(texts) + 1
    return list(received(mesh_of(objects)))


def kept(kind, spec):
    """The values that the reader returns for it, from any of its sources."""
    ((_, values),) = parsed([document(kind.partition(".")[0], "one", spec, "gateway.networking.k8s.io/v1")])
    return [msgspec.structs.replace(each, origin=None) for each in values]


def without(spec, field):
    spec = copy.deepcopy(spec)
    *above, last = field.removeprefix("spec.").split(".")
    holder = spec
    for name in above:
        holder = holder[name.removesuffix("[]")]
        holder = holder[0] if name.endswith("[]") else holder
    del holder[last]
    return spec


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, all_ in fields.UNSEEN.items() for field in all_])
def test_what_is_only_checked_changes_nothing_that_proxies_are_sent(kind, field):
    if kind in STANDARD:
        assert kept(kind, STANDARD[kind]) == kept(kind, without(STANDARD[kind], field))
    else:
        spec = WRITTEN[kind]
        assert sent(document(kind, "one", spec)) == sent(document(kind, "one", without(spec, field))) != sent()


def test_a_mark_is_found_with_its_test(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        '@proves("VirtualService", "spec.hosts")\nasync def test_hosts_decide():\n    pass\n'
    )
    page = fields.page(tmp_path / "tests")
    assert "| `spec.hosts` | on the wire: [hosts decide](../tests/test_one.py) |" in page
    assert "| `spec.http[].timeout` | acted on; no test on the wire yet |" in page
