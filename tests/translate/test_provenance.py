from google.protobuf.json_format import MessageToDict

from translate.views import origin
from weft.translate.provenance import keys, of_objects, of_route


def test_names_each_object_once_and_the_first_of_a_kind_that_istioctl_reads():
    service, rule = origin("Service", "orders"), origin("DestinationRule", "orders")
    found = keys(service, None, rule, service)
    assert [key.kind for key in found] == ["Service", "DestinationRule"]
    metadata = MessageToDict(of_objects(found))["filterMetadata"]
    assert metadata["weft"]["sources"][0] == {"kind": "Service", "namespace": "shop", "name": "orders"}
    assert metadata["istio"]["config"] == "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/orders"


def test_only_a_route_carries_version_and_line():
    routing = origin("VirtualService", "orders", line=3)
    assert of_objects((routing.key,)) == of_objects((origin("VirtualService", "orders", line=99).key,))
    (source,) = MessageToDict(of_route((routing,), 12))["filterMetadata"]["weft"]["sources"]
    assert (source["file"], source["line"], source["version"]) == ("mesh.yaml", 12, "v1")


def test_without_sources_the_metadata_is_empty():
    assert not of_objects(()).ByteSize() and not of_route(()).ByteSize()


def test_callers_get_separate_copies_of_the_cached_metadata():
    found = origin("Service", "orders")
    for made in (lambda: of_objects((found.key,)), lambda: of_route((found,), 7)):
        made().filter_metadata["weft"].update({"sources": []})
        assert MessageToDict(made())["filterMetadata"]["weft"]["sources"]
