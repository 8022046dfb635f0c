import msgspec

from weft.api.parse import parse
from weft.kube.documents import Documents, document
from weft.kube.objects import NamedObject, WrittenObject
from weft.kube.resource import NAMESPACES, SERVICES
from weft.model.names import ObjectKey

KEY = ObjectKey("Service", "shop", "orders")


def written(port=80, **metadata):
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "orders", "namespace": "shop", "managedFields": [{"manager": "x"}], **metadata},
        "spec": {"ports": [{"port": port}]},
        "status": {"loadBalancer": {}},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=WrittenObject)


def test_a_document_has_only_the_fields_that_its_author_wrote():
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "{…}", "networking.istio.io/exportTo": "."}
    made = document(
        SERVICES, KEY, written(labels={"a": "b"}, annotations=notes, creationTimestamp="2026-01-01T00:00:00Z")
    )
    assert made.body == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "orders",
            "namespace": "shop",
            "labels": {"a": "b"},
            "annotations": {"networking.istio.io/exportTo": "."},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"ports": [{"port": 80}]},
    }
    parsed = parse(made)
    assert parsed.values[0].host == "orders.shop.svc.cluster.local" and not parsed.problems


def test_a_change_of_server_fields_is_no_change():
    documents = Documents()
    assert documents.change(SERVICES, KEY, written(resourceVersion="1")).document is not None
    assert documents.change(SERVICES, KEY, written(resourceVersion="2", generation=7)) is None
    assert documents.change(SERVICES, KEY, written(port=81)) is not None
    assert documents.change(SERVICES, KEY, written(port=81, labels={"a": "b"})) is not None


def test_an_object_that_is_deleted_and_created_again_is_a_change():
    documents = Documents()
    documents.change(SERVICES, KEY, written())
    assert documents.gone(KEY).document is None
    assert documents.change(SERVICES, KEY, written()) is not None


def test_a_named_object_becomes_a_document_of_its_metadata():
    found = msgspec.json.decode(b'{"metadata": {"name": "shop", "labels": null}, "spec": {"x": 1}}', type=NamedObject)
    made = document(NAMESPACES, ObjectKey("Namespace", "", "shop"), found)
    assert made.body == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


def test_an_object_that_is_nested_too_deeply_is_logged_and_skipped(caplog):
    deep = WrittenObject(written().metadata, spec=msgspec.Raw(b"[" * 5_000 + b"]" * 5_000))
    made = document(SERVICES, KEY, deep)
    assert not made.usable and not parse(made).values
    assert "Service shop/orders cannot be read" in caplog.text
