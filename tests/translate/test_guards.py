from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule
from weft.model.group import ProxyKind
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.guards import Guards, guards_of
from weft.translate.view import GroupView


def guards(*policies):
    return guards_of(GroupView(ProxyKind.SIDECAR, (), OutboundPolicy.ALLOW_ANY, Settings(), authorization=policies))


def test_without_policies_there_are_no_guards():
    assert guards() == Guards()


def test_requests_and_connections_have_the_same_policies():
    found = guards(
        AuthorizationPolicy("a", "shop"), AuthorizationPolicy("b", "shop", Action.DENY, rules=(AuthorizationRule(),))
    )
    assert [each.name for each in found.http] == ["envoy.filters.http.rbac"] * 2
    assert [each.name for each in found.network] == ["envoy.filters.network.rbac"] * 2
    assert found.unknown == found.network


def test_the_guards_list_the_metadata_prefixes_for_the_access_log():
    assert guards(AuthorizationPolicy("a", "shop")).noted == {""}
    assert guards(AuthorizationPolicy("a", "shop", Action.AUDIT, rules=(AuthorizationRule(),))).noted == {
        "istio_audit_"
    }
    dry = (AuthorizationPolicy(each, "shop", each, rules=(AuthorizationRule(),), dry_run=True) for each in Action)
    assert guards(*dry).noted == {"istio_dry_run_allow_", "istio_dry_run_deny_", "istio_dry_run_custom_"}
    asked = (
        AuthorizationPolicy(each, "shop", Action.CUSTOM, rules=(AuthorizationRule(),), provider=each) for each in "ab"
    )
    assert guards(*asked).noted == {"", "istio_ext_authz_", "istio_ext_authz_1_"}
