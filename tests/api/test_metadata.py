from api.reading import istio, read, told, value
from weft.api.metadata import content_version
from weft.model.names import ObjectKey, Origin

RULE = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: x, namespace: shop, creationTimestamp: 2026-01-01T00:00:00Z}
spec:
  host: %s
  exportTo: %s
"""


def test_the_origin_has_key_file_and_line():
    rule = value("# a comment\n" + istio("DestinationRule", "host: a"))
    assert rule.origin == Origin(
        ObjectKey("DestinationRule", "shop", "x"), version=rule.origin.version, file="shop.yaml", line=2
    )
    assert rule.created == ""


def test_the_version_follows_the_content_only():
    assert content_version({"a": 1, "b": 2}) == content_version({"b": 2, "a": 1})
    assert content_version({"a": 1}) != content_version({"a": 2})
    assert content_version({"a": 1, "status": 5}) == content_version({"a": 1})


def test_a_creation_time_without_quotes_is_text():
    assert value(RULE % ("a", "[]")).created == "2026-01-01T00:00:00Z"


def test_short_hosts_are_in_the_objects_own_namespace():
    assert value(RULE % ("a", "[]")).host == "a.shop.svc.cluster.local"
    assert value(RULE % ("a.b", "[]")).host == "a.b"
    assert value(RULE % ("'*.example.com'", "[]")).host == "*.example.com"


def test_export_to_is_checked():
    assert value(RULE % ("a", "[., sales]")).export_to == (".", "sales")
    assert told(RULE % ("a", "[., shop]")) == ["6 `shop` is listed twice in `exportTo`"]
    assert told(RULE % ("a", "['*', sales]")) == ["6 `*` and `~` cannot be combined with other entries in `exportTo`"]
    assert told(RULE % ("a", "['~']")) == ["6 `~` is not a namespace (use a namespace, `.` (this one) or `*` (all))"]


def test_names_and_labels_are_checked():
    text = (
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: a b\n  namespace: S\n  labels: {x: 1}\n  lables: {}\n"
    )
    assert told(text) == [
        "4 `a b` is not a name for an object (use lower-case letters, digits, - and .)",
        "5 `S` is not a namespace (use lower-case letters, digits and -)",
        '6 `x` must be text, not the number 1 (put it in quotes: "1")',
        "7 unknown field `lables` (did you mean `labels`?)",
    ]


def test_what_the_api_server_adds_is_no_problem():
    text = """
    apiVersion: v1
    kind: ServiceAccount
    metadata: {name: a, uid: u, resourceVersion: "1", generation: 2, managedFields: [], finalizers: []}
    status: {}
    """
    assert read(text).problems == ()


def test_gateways_are_named_in_full():
    spec = "hosts: [a.com]\ngateways: [edge, istio-ingress/edge, mesh]\nhttp: [{route: [{destination: {host: a}}]}]"
    assert value(istio("VirtualService", spec)).gateways == ("shop/edge", "istio-ingress/edge", "mesh")
    assert told(istio("VirtualService", spec.replace("edge,", "a/b/c,", 1))) == [
        "6 `a/b/c` is not a reference to a gateway (write NAMESPACE/NAME, NAME or mesh)"
    ]
    assert told(istio("VirtualService", spec.replace("edge,", "edge.ns.svc.cluster.local,", 1))) == [
        "6 warning: `edge.ns.svc.cluster.local` is a deprecated way to name a gateway (write ns/edge)"
    ]


def test_a_gateway_name_in_upper_case_is_an_error():
    for name in ("Edge", "edge."):
        spec = f"{{hosts: [a], gateways: ['{name}'], http: [{{route: [{{destination: {{host: a}}}}]}}]}}"
        assert f"`{name}` is not a reference to a gateway" in told(istio("VirtualService", spec))[0]
