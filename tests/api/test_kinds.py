import pytest

from weft.api.kinds import STANDARD_GATEWAY, group_of, key_kind, written_kind


@pytest.mark.parametrize(
    ("api_version", "kind", "key"),
    [
        ("gateway.networking.k8s.io/v1", "Gateway", "Gateway.gateway.networking.k8s.io"),
        ("gateway.networking.k8s.io/v1beta1", "Gateway", "Gateway.gateway.networking.k8s.io"),
        ("networking.istio.io/v1", "Gateway", "Gateway"),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", "HTTPRoute"),
        ("v1", "Service", "Service"),
        ("", "", ""),
    ],
)
def test_only_the_gateway_apis_gateway_has_its_group_in_the_key(api_version, kind, key):
    assert key_kind(api_version, kind) == key
    assert written_kind(key) == kind


def test_the_core_group_has_no_name():
    assert group_of("v1") == ""
    assert group_of("apps/v1") == "apps"
    assert written_kind(STANDARD_GATEWAY) == "Gateway"
