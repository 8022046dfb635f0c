from api.gateway_api.objects import standard
from api.reading import told, value
from weft.model.gateway_api import GrantSource, GrantTarget

GROUP = "gateway.networking.k8s.io"


def test_who_may_refer_to_what():
    found = value(
        standard(
            "ReferenceGrant",
            f"""
            from: [{{group: {GROUP}, kind: HTTPRoute, namespace: far}}]
            to: [{{group: "", kind: Service, name: web}}, {{group: "", kind: Secret}}]
            """,
            "v1beta1",
        )
    )
    route = GrantSource(GROUP, "HTTPRoute", "far")
    assert found.allows(route, GrantTarget("", "Service", "web"))
    assert found.allows(route, GrantTarget("", "Secret", "any"))
    assert not found.allows(route, GrantTarget("", "Service", "other"))
    assert not found.allows(GrantSource(GROUP, "HTTPRoute", "near"), GrantTarget("", "Service", "web"))


def test_both_sides_must_be_named():
    assert told(standard("ReferenceGrant", "from: []\nto: [{kind: Service}]", "v1")) == ["5 `from` must not be empty"]
