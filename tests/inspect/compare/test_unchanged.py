from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from tests.inspect.test_stage import DENY, shop

from model.builders import instance
from weft.api.parse import parse
from weft.api.request_test import RequestCase
from weft.base.problem import Where
from weft.files.documents import read_documents
from weft.inspect.compare.trial import every_call, judged
from weft.inspect.compare.unchanged import Unmoved
from weft.inspect.stage import Stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey

NOW = datetime(2026, 11, 16, tzinfo=UTC)
ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payments, namespace: shop}
spec: {hosts: [payments], http: [{fault: {abort: {httpStatus: 418, percentage: {value: 50}}}, route: [{destination: {host: payments}}]}]}
"""
RULE = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: payments, namespace: shop}
spec: {host: payments, trafficPolicy: {tls: {mode: DISABLE}}}
"""
STRICT = """
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {selector: {matchLabels: {app: payments}}, mtls: {mode: STRICT}}
"""
SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"}
"""


def changed(text="", *, gone=None, moved=None, file="change.yaml"):
    mesh = shop(instance("legacy-0", "legacy", address="10.244.0.6", workload="legacy"))
    for document in read_documents(text.encode(), file).documents:
        mesh.apply(document.key, parse(document).values)
    if gone is not None:
        mesh.apply(gone, ())
    for key, values in list(mesh.values()) if moved else ():
        if key.name == moved and isinstance(values[0], Instance):
            mesh.apply(key, (replace(values[0], addresses=("198.18.9.9",)),))
    return mesh


CHANGES = {
    "a policy": changed(DENY),
    "a route": changed(ROUTE),
    "a rule": changed(RULE + "---" + STRICT),
    "mutual TLS": changed(STRICT),
    "no service": changed(gone=ObjectKey("Service", "shop", "payments")),
    "no pod": changed(gone=ObjectKey("Instance", "shop", "payments-0")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_request_with_a_changed_outcome_passes_a_changed_group(name):
    before, after = Stage(changed()), Stage(CHANGES[name])
    unmoved = Unmoved(before, after)
    without_proxy = [RequestCase(Where(), "legacy", to, "shop") for to in ("http://payments/", "http://10.244.0.3/")]
    calls = [*every_call(before, 9), *without_proxy]
    pairs = [(judged(before, call, NOW), judged(after, call, NOW)) for call in calls]
    turned = [was for was, becomes in pairs if was.ways != becomes.ways]
    assert turned
    assert not any(unmoved.all_of(was.met.groups) for was in turned)


@pytest.mark.parametrize("after", [changed(SETTINGS), changed(moved="orders-0")], ids=["settings", "a pod"])
def test_no_request_is_unchanged_if_workloads_or_addresses_changed(after):
    assert not Unmoved(Stage(changed()), Stage(after)).all_of(())


def test_requests_that_pass_only_unchanged_groups_are_unchanged():
    before, after = Stage(changed()), Stage(changed(DENY))
    unmoved = Unmoved(before, after)
    assert not unmoved.everything()
    outside = next(group for group, pods in before.groups().items() if pods == ["orders-0.shop"])
    assert unmoved.all_of({outside})
    assert not unmoved.all_of(before.groups())


def test_objects_moved_to_another_file_are_unchanged():
    one, other = (Stage(changed(STRICT, file=file)) for file in ("a.yaml", "b.yaml"))
    assert Unmoved(one, other).everything()


def test_equal_objects_are_compared_without_translation(monkeypatch):
    one, other = (Stage(changed(RULE, file=file)) for file in ("a.yaml", "b.yaml"))
    monkeypatch.setattr(Stage, "versions", None)
    assert Unmoved(one, other).everything()
    with pytest.raises(TypeError):
        Unmoved(one, Stage(changed(STRICT))).everything()
