from model.builders import group
from weft.api.document import Change
from weft.api.parse import parse
from weft.control.intake import Intake
from weft.control.problems import Problems
from weft.files.documents import read_documents
from weft.mesh.mesh import Mesh
from weft.model.authorization_policy import Action, AuthorizationPolicy
from weft.model.names import ObjectKey

ORDERS = """
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: shop}
spec:
  selector: {app: orders}
  ports: [{name: http, port: 80, targetPort: 8080}]
"""
KEY = ObjectKey("Service", "shop", "orders")


def changes(text):
    return [Change(document.key, document) for document in read_documents(text.encode(), "mesh.yaml").documents]


def intake(**more):
    mesh, problems = Mesh(), Problems()
    return mesh, problems, Intake(mesh, problems, domain="cluster.local", **more)


def test_a_document_becomes_a_value_and_touches_its_host():
    mesh, problems, one = intake()
    touched, changed = one.documents(changes(ORDERS))
    assert touched.hosts == {"orders.shop.svc.cluster.local"}
    assert changed == {KEY}
    assert problems.all() == ()
    assert mesh.get(KEY)[0].ports[0].target == 8080


def test_a_bad_version_leaves_the_last_good_one_and_a_problem_with_its_line():
    mesh, problems, one = intake()
    one.documents(changes(ORDERS))
    good = mesh.get(KEY)
    touched, changed = one.documents(changes(ORDERS.replace("port: 80,", "port: eighty,")))
    assert not touched
    assert not changed
    assert mesh.get(KEY) == good
    assert [problem.where.line for problem in problems.all()] == [7]
    one.documents(changes(ORDERS))
    assert problems.all() == ()


def test_a_bad_object_stops_no_other():
    mesh, problems, one = intake()
    bad = ORDERS.replace("port: 80,", "prot: 80,")
    other = ORDERS.replace("name: orders", "name: cart")
    one.documents(changes(bad + "---" + other))
    assert not mesh.get(KEY)
    assert mesh.get(ObjectKey("Service", "shop", "cart"))
    assert problems.all()


def test_a_deleted_object_is_removed_with_its_problems():
    mesh, problems, one = intake()
    one.documents(changes(ORDERS))
    one.documents(changes(ORDERS.replace("port: 80,", "port: eighty,")))
    _, changed = one.documents([Change(KEY, None)])
    assert changed == {KEY}
    assert not mesh.get(KEY)
    assert problems.all() == ()


def test_a_rejected_objects_parsed_values_are_kept_until_it_is_corrected_or_deleted():
    _, _, one = intake()
    bad = ORDERS.replace("targetPort: 8080", "targetPort: -1")
    for mended in (changes(ORDERS), [Change(KEY, None)]):
        one.documents(changes(bad))
        assert [service.host for service in one.refused[KEY]] == ["orders.shop.svc.cluster.local"]
        one.documents(mended)
        assert one.refused == {}


def test_the_runner_of_the_mesh_may_fill_in_values():
    mesh, _, one = intake(admit=lambda value: value)
    one.documents(changes(ORDERS))
    assert mesh.get(KEY)


def test_a_defect_in_weft_affects_only_the_object_that_triggers_it(monkeypatch):
    def choke(document, domain):
        if document.key == KEY:
            raise ZeroDivisionError("a defect")
        return parse(document, domain)

    _, problems, one = intake()
    monkeypatch.setattr("weft.control.intake.parse", choke)
    _, changed = one.documents(changes(ORDERS + "---" + ORDERS.replace("name: orders", "name: cart")))
    assert changed == {ObjectKey("Service", "shop", "cart")}
    assert "a defect" in problems.all()[0].what
    assert problems.all()[0].where.line == 2


POLICY = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: orders, namespace: shop}
spec:
  selector: {matchLabels: {app: orders}}
  rules:
  - from: [{source: {namespaces: [shop]}}]
"""
POLICY_KEY = ObjectKey("AuthorizationPolicy", "shop", "orders")


def guarding(mesh, app="orders"):
    return [(policy.action, policy.refused) for policy in mesh.policies(AuthorizationPolicy, group(app))]


def test_a_rejected_policy_that_was_never_valid_denies_everything_for_selected_workloads():
    mesh, problems, one = intake()
    touched, changed = one.documents(changes(POLICY.replace("namespaces:", "namespace:")))
    assert guarding(mesh) == [(Action.DENY, True)]
    assert guarding(mesh, "cart") == []
    assert touched.inbound == {"shop"}
    assert changed == {POLICY_KEY}
    assert [problem.where.line for problem in problems.all()] == [8]


def test_a_refused_policy_whose_selector_cannot_be_read_closes_its_namespace():
    mesh, _, one = intake()
    one.documents(changes(POLICY.replace("matchLabels", "labels")))
    assert guarding(mesh) == guarding(mesh, "cart") == [(Action.DENY, True)]
    assert mesh.policies(AuthorizationPolicy, group("cart", "test")) == ()


def test_a_good_policy_stays_when_its_next_version_is_refused():
    mesh, problems, one = intake()
    one.documents(changes(POLICY))
    touched, _ = one.documents(changes(POLICY.replace("namespaces:", "namespace:")))
    assert guarding(mesh) == [(Action.ALLOW, False)]
    assert not touched
    assert problems.all()


def test_deny_all_ends_when_the_policy_is_corrected_or_deleted():
    bad = POLICY.replace("namespaces:", "namespace:")
    mesh, _, one = intake()
    one.documents(changes(bad))
    one.documents(changes(bad.replace("[shop]", "[test]")))
    assert guarding(mesh) == [(Action.DENY, True)]
    one.documents(changes(POLICY))
    assert guarding(mesh) == [(Action.ALLOW, False)]
    one.documents([Change(POLICY_KEY, None)])
    assert guarding(mesh) == []
    one.documents(changes(bad))
    one.documents([Change(POLICY_KEY, None)])
    assert guarding(mesh) == []


TOKENS = """
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec:
  selector: {matchLabels: {app: orders}}
  jwtRules: [{issuer: a, jwksUri: https://a.example.com/keys}]
"""


def test_a_policy_that_was_never_valid_denies_all_until_it_is_corrected():
    mesh, problems, one = intake()
    key = ObjectKey("RequestAuthentication", "shop", "tokens")
    broken = TOKENS.replace("jwksUri", "jwks_uri")
    touched, _ = one.documents(changes(broken))
    assert touched.inbound == {"shop"}
    assert mesh.get(key)[0].refused
    assert problems.all()
    one.documents(changes(TOKENS))
    assert not mesh.get(key)[0].refused
    one.documents(changes(broken))
    assert not mesh.get(key)[0].refused  # the last good one stays
    one.documents([Change(key, None)])
    assert mesh.get(key) == ()


def test_a_value_that_cannot_be_applied_stops_no_other():
    """On a cluster values come from pods; an exception would end the control plane, and every later one as well."""

    def admit(value):
        if value == "bad":
            raise RuntimeError("a defect")
        return value

    mesh, _, one = intake(admit=admit)
    parsed = parse(changes(ORDERS)[0].document, "cluster.local").values
    touched = one.all_values([(ObjectKey("Pod", "shop", "bad"), ("bad",)), (KEY, parsed)])
    assert touched.hosts == {"orders.shop.svc.cluster.local"} and mesh.get(KEY) == parsed


def test_rejected_versions_are_listed_with_whether_an_earlier_one_is_in_force():
    _, _, one = intake()
    bad = ORDERS.replace("port: 80,", "port: eighty,")
    (change,) = changes(bad)
    one.documents([change])
    (rejected,) = one.rejected()
    assert (rejected.key, rejected.where.line, rejected.is_in_force) == (KEY, 2, False)
    one.documents(changes(ORDERS))
    assert one.rejected() == ()
    assert [(each.key, each.is_in_force) for each in one.rejected(unreadable=[KEY])] == [(KEY, True)]
    one.documents([change])
    assert [each.is_in_force for each in one.rejected()] == [True]
    one.documents([Change(KEY, None)])
    assert one.rejected() == ()


def test_a_policy_that_fails_closed_is_not_an_earlier_version():
    _, _, one = intake()
    policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x, namespace: shop}\n"
    one.documents(changes(f"{policy}spec: {{action: FOO}}\n"))
    assert [each.is_in_force for each in one.rejected()] == [False]
