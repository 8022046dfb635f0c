"""The page of traffic fields says what the readers do and the tests show."""

import copy

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


def test_the_page_is_what_readers_and_tests_say_now():
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


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, all_ in fields.UNSEEN.items() for field in all_])
def test_what_is_only_checked_changes_nothing_that_proxies_are_sent(kind, field):
    spec = copy.deepcopy(WRITTEN[kind])
    *above, last = field.removeprefix("spec.").split(".")
    holder = spec
    for name in above:
        holder = holder[name.removesuffix("[]")]
        holder = holder[0] if name.endswith("[]") else holder
    whole = sent(document(kind, "one", spec))
    del holder[last]
    assert whole == sent(document(kind, "one", spec)) != sent()


def test_a_mark_is_found_with_its_test(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        '@proves("VirtualService", "spec.hosts")\nasync def test_hosts_decide():\n    pass\n'
    )
    page = fields.page(tmp_path / "tests")
    assert "| `spec.hosts` | on the wire: [hosts decide](../tests/test_one.py) |" in page
    assert "| `spec.http[].timeout` | acted on; no test on the wire yet |" in page
