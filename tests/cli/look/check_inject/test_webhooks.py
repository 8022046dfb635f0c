"""Verdicts on webhooks: the same as the injector's own, and in istioctl's words."""

import itertools

import pytest

from weft.cli.look.check_inject.webhooks import configurations, verdict
from weft.inject.decision import decide
from weft.inject.settings import InjectionSettings
from weft.install.values import Values
from weft.install.webhooks import injector

INJECT, REVISION, ENABLED = "sidecar.istio.io/inject", "istio.io/rev", "istio-injection"


def configuration(revision="default"):
    (found,) = configurations([injector(Values(revision=revision))])
    return found


def pod(**fields):
    return {"metadata": {"labels": {}, **fields}, "spec": {}}


def said(labels=None, namespace_labels=None, *, namespace="shop", revision="default", settings=None, **fields):
    settings = settings or InjectionSettings(revision=revision)
    found = verdict(
        configuration(revision), pod(labels=labels or {}, **fields), namespace, namespace_labels or {}, settings
    )
    return found.injected, found.reason


def _labels(**choices):
    keys = {"enabled": ENABLED, "revision": REVISION, "inject": INJECT}
    for values in itertools.product(*choices.values()):
        yield {keys[name]: value for name, value in zip(choices, values, strict=True) if value is not None}


@pytest.mark.parametrize("revision", ["default", "canary"])
@pytest.mark.parametrize("namespace", ["shop", "kube-system"])
def test_it_is_the_injectors_own_verdict(revision, namespace):
    settings = InjectionSettings(revision=revision)
    tried = 0
    for of_namespace in _labels(enabled=(None, "enabled", "disabled"), revision=(None, "default", "canary")):
        for of_pod in _labels(inject=(None, "true", "false"), revision=(None, "default", "canary")):
            injected, reason = said(of_pod, of_namespace, namespace=namespace, revision=revision)
            wanted = decide(pod(labels=of_pod), namespace, of_namespace, settings)
            assert injected is wanted.inject, (of_namespace, of_pod, reason)
            assert reason
            tried += 1
    assert tried == 81


@pytest.mark.parametrize(
    ("labels", "namespace_labels", "wanted"),
    [
        ({}, {ENABLED: "enabled"}, (True, "Namespace label istio-injection=enabled matches")),
        ({REVISION: "default"}, {}, (True, "Pod label istio.io/rev=default matches")),
        (
            {INJECT: "false"},
            {ENABLED: "enabled"},
            (False, "Pod has sidecar.istio.io/inject=false label, preventing injection"),
        ),
        (
            {INJECT: "true"},
            {ENABLED: "disabled"},
            (False, "Namespace shop has istio-injection=disabled label, preventing injection"),
        ),
        (
            {},
            {},
            (
                False,
                "No matching namespace labels (istio.io/rev=default, istio-injection=enabled)"
                " or pod labels (istio.io/rev=default, sidecar.istio.io/inject=true)",
            ),
        ),
    ],
)
def test_reasons_read_as_istioctls(labels, namespace_labels, wanted):
    assert said(labels, namespace_labels) == wanted


def test_the_injector_may_still_leave_a_pod_alone():
    injected, reason = said({}, {ENABLED: "enabled"}, annotations={INJECT: "false"})
    assert not injected
    assert reason.startswith(
        "Namespace label istio-injection=enabled matches, but the injector does not inject it: the pod's annot"
    )
    assert not said({}, {ENABLED: "enabled"}, settings=InjectionSettings(auto_inject=False))[0]


def test_an_excluded_namespace_is_the_reason():
    assert said({}, {ENABLED: "enabled"}, namespace="kube-system") == (
        False,
        "Namespace kube-system is excluded by this webhook",
    )


def test_only_injecting_webhooks_are_evaluated():
    strange = {"metadata": {"name": "other"}, "webhooks": [{"name": "a.example.com"}]}
    named = injector(Values(revision="canary"))
    found = configurations([strange, {"metadata": {"name": "empty"}}, named])
    assert [(each.revision, each.namespace) for each in found] == [("canary", "istio-system")]
