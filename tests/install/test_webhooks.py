"""Which pods the webhooks select by labels: Istio's truth table, and never the cluster's own namespaces."""

import pytest

from weft.inject.selector import Selector, SelectorRequirement
from weft.inject.webhooks import selectors
from weft.install.crds import DEFINITIONS
from weft.install.values import values_of
from weft.install.webhooks import injector, validator, webhooks
from weft.model.names import CLUSTER_NAMESPACES

ENABLED, DISABLED = {"istio-injection": "enabled"}, {"istio-injection": "disabled"}
YES, NO = {"sidecar.istio.io/inject": "true"}, {"sidecar.istio.io/inject": "false"}


def rev(name):
    return {"istio.io/rev": name}


def asked(configuration, namespace, pod, name="shop"):
    """Return whether any webhook selects a pod with these labels."""

    def fits(selector, labels):
        return Selector(
            match_expressions=tuple(
                SelectorRequirement(each["key"], each["operator"], tuple(each.get("values", ())))
                for each in selector["matchExpressions"]
            )
        ).selects(labels)

    labels = {**namespace, "kubernetes.io/metadata.name": name}
    return [
        each["name"].removesuffix(".sidecar-injector.istio.io")
        for each in configuration["webhooks"]
        if fits(each["namespaceSelector"], labels) and fits(each["objectSelector"], pod)
    ]


@pytest.mark.parametrize(
    ("revision", "namespace", "pod", "expected"),
    [
        ("default", {}, {}, False),
        ("default", ENABLED, {}, True),
        ("default", ENABLED, NO, False),
        ("default", ENABLED, YES, True),
        ("default", DISABLED, YES, False),
        ("default", {}, YES, True),
        ("default", {}, {**YES, **rev("a")}, False),
        ("default", rev("default"), {}, True),
        ("default", rev("a"), {}, False),
        ("default", {**ENABLED, **rev("a")}, {}, True),
        ("a", {}, {}, False),
        ("a", ENABLED, {}, False),
        ("a", {}, YES, False),
        ("a", rev("a"), {}, True),
        ("a", rev("a"), NO, False),
        ("a", {}, rev("a"), True),
        ("a", rev("b"), rev("a"), False),
        ("a", {**ENABLED, **rev("a")}, {}, False),
        ("a", {**DISABLED, **rev("a")}, {}, False),
    ],
)
def test_a_pod_is_selected_by_one_revision_or_none(revision, namespace, pod, expected):
    found = asked(injector(values_of({"revision": revision})), namespace, pod)
    assert len(found) == (1 if expected else 0), found


def test_unlabelled_namespaces_are_selected_only_with_by_default():
    values = values_of({"injection": {"byDefault": True}})
    assert asked(injector(values), {}, {}) == ["auto"]
    assert not asked(injector(values), {}, {}, "kube-system")


@pytest.mark.parametrize("name", CLUSTER_NAMESPACES)
def test_the_clusters_own_namespaces_are_never_selected(name):
    configuration = injector(values_of({"injection": {"byDefault": True}}))
    for namespace in ({}, ENABLED, rev("default")):
        assert not asked(configuration, namespace, YES, name)


@pytest.mark.parametrize("revision", ["default", "a"])
def test_the_injector_itself_knows_the_same_webhooks(revision):
    ours = injector(values_of({"revision": revision}))["webhooks"]
    theirs = selectors(revision)
    assert [each["name"] for each in ours] == [each.name for each in theirs]
    for namespace in ({}, ENABLED, DISABLED, rev(revision), {**ENABLED, **rev(revision)}):
        for pod in ({}, YES, NO, rev(revision)):
            found = [
                each.name.removesuffix(".sidecar-injector.istio.io")
                for each in theirs
                if each.namespaces.selects(namespace) and each.objects.selects(pod)
            ]
            assert found == asked({"webhooks": ours}, namespace, pod)


def test_the_failure_policies_are_chosen_apart():
    values = values_of({"injection": {"failurePolicy": "Ignore"}})
    assert {each["failurePolicy"] for each in injector(values)["webhooks"]} == {"Ignore"}
    assert {each["failurePolicy"] for each in validator(values)["webhooks"]} == {"Fail"}


def test_the_root_is_left_to_the_control_plane():
    for configuration in webhooks(values_of({})):
        assert all("caBundle" not in each["clientConfig"] for each in configuration["webhooks"])


def test_every_kind_is_validated_and_no_status():
    rules = validator(values_of({}))["webhooks"][0]["rules"]
    assert {(rule["apiGroups"][0], each) for rule in rules for each in rule["resources"]} == {
        (definition.group, definition.plural) for definition in DEFINITIONS
    }


def test_objects_without_a_revision_are_validated_by_the_default_revision_alone():
    def judged(revision):
        return [each["objectSelector"]["matchExpressions"][0]["operator"] for each in
                validator(values_of({"revision": revision}))["webhooks"]]  # fmt: skip

    assert judged("default") == ["In", "DoesNotExist"]
    assert judged("a") == ["In"]


def test_validation_can_be_left_out():
    assert [each["kind"] for each in webhooks(values_of({"validation": {"enabled": False}}))] == [
        "MutatingWebhookConfiguration"
    ]
