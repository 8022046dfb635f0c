import pytest
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network
from google.protobuf.json_format import ParseDict

from explain.test_rule import seen as _seen
from weft.explain.rbac import HTTP_FILTER, denied, effective
from weft.explain.walk import Walk

ANY = {"permissions": [{"any": True}], "principals": [{"any": True}]}
NOBODY = {"permissions": [{"not_rule": {"any": True}}], "principals": [{"any": True}]}


def _denied(rules, kind=RBAC, **more):
    walk = Walk()
    return denied(walk, ParseDict({**({"rules": rules} if rules else {}), **more}, kind()), _seen()), walk.steps


def test_a_request_that_no_allow_rule_matches_is_denied():
    assert _denied({"policies": {"a": NOBODY}})[0] == "rbac_access_denied_matched_policy[none]"
    assert _denied({"policies": {"a": NOBODY, "b": ANY}})[0] is None
    assert _denied({})[0] is None


def test_rules_that_do_not_match_have_their_unmet_conditions():
    get = {
        "permissions": [{"header": {"name": ":method", "string_match": {"exact": "PUT"}}}],
        "principals": [{"any": True}],
    }
    _, (step,) = _denied({"policies": {"ns[shop]-policy[p]-rule[0]": get, "ns[shop]-policy[none]": NOBODY}})
    assert step.what == "no ALLOW rule matches, so the call is denied (p rule[0]: method GET is not PUT)"
    _, (step,) = _denied({"policies": {f"ns[shop]-policy[p]-rule[{number}]": get for number in range(7)}})
    assert step.what.endswith("; p rule[3]: method GET is not PUT; and 3 more)")


def test_a_denial_names_its_rule():
    name = "ns[shop]-policy[p]-rule[0]"
    why, (step,) = _denied({"action": "DENY", "policies": {name: ANY}})
    assert why == f"rbac_access_denied_matched_policy[{name}]"
    assert str(step.sources[0]) == "AuthorizationPolicy shop/p rule[0]" and step.what == "p rule[0] denies the call"
    assert _denied({"action": "DENY", "policies": {"a b": ANY}})[0].endswith("[a_b]")
    assert _denied({"action": "DENY", "policies": {name: NOBODY}})[0] is None


def test_the_first_matching_policy_by_name_is_effective():
    assert effective(ParseDict({"policies": {"b": ANY, "a": ANY, "0": NOBODY}}, rbac_pb2.RBAC()), _seen()) == "a"


def test_log_rules_do_not_deny():
    why, steps = _denied({"action": "LOG", "policies": {"a": ANY}})
    assert why is None and "log" in steps[0].what


@pytest.mark.parametrize("kind", [RBAC, network.RBAC])
def test_shadow_rules_only_set_metadata(kind):
    seen = _seen()
    shadow = {"action": "DENY", "policies": {"a": ANY}}
    config = ParseDict({"shadow_rules": shadow, "shadow_rules_stat_prefix": "dry_"}, kind())
    assert denied(Walk(), config, seen) is None
    (notes,) = seen.metadata.values()
    assert notes == {"dry_shadow_engine_result": "denied", "dry_shadow_effective_policy_id": "a"}
    assert (HTTP_FILTER in seen.metadata) is (kind is RBAC)
