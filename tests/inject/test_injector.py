import pytest

from inject.pods import apply, names, pod
from weft.cluster.sidecar_arguments import arguments
from weft.inject.injector import Injector, has_native_sidecars, has_sleep_hooks
from weft.inject.review import AdmissionRequest, ReviewedKind
from weft.inject.settings import InjectionSettings

POD = ReviewedKind("", "v1", "Pod")


def injector(**settings):
    return Injector(InjectionSettings(**settings), arguments, native_sidecars=True)


def asked(wanted, *, operation="CREATE", kind=POD, namespace="shop"):
    return AdmissionRequest("1", kind, operation, "", namespace, wanted)


def test_the_patch_makes_the_injected_pod():
    answer = injector().answer(asked(pod()))
    assert answer.allowed
    assert names(apply(pod(), answer.patch), "initContainers") == ["istio-init", "istio-proxy"]


def test_a_pod_that_disables_injection_gets_no_sidecar(caplog):
    with caplog.at_level("INFO", "weft.inject"):
        answer = injector().answer(asked(pod(labels={"sidecar.istio.io/inject": "no"})))
    assert (answer.allowed, answer.patch) == (True, ())
    assert "the pod's label sidecar.istio.io/inject is no" in caplog.text


@pytest.mark.parametrize("place", ["label", "annotation"])
def test_a_label_that_is_neither_true_nor_false_gives_no_sidecar_and_a_warning(place):
    answer = injector().answer(asked(pod(**{f"{place}s": {"sidecar.istio.io/inject": "flase"}})))
    assert (answer.allowed, answer.patch) == (True, ())
    [warning] = answer.warnings
    assert warning == (
        "Pod shop/web-7d4b9c-x2x1z gets no sidecar: "
        f"the pod's {place} sidecar.istio.io/inject is flase, which is neither true nor false"
    )
    for clear in ("false", "Off", "n"):
        assert injector().answer(asked(pod(labels={"sidecar.istio.io/inject": clear}))).warnings == ()


def test_a_pod_that_cannot_be_injected_is_denied_with_every_reason():
    said = {"sidecar.istio.io/logLevel": "x", "sidecar.istio.io/proxyCPU": "y"}
    answer = injector().answer(asked(pod(annotations=said)))
    assert not answer.allowed
    assert answer.code == 422
    assert "`x` is not a log level" in answer.message and "`y` is not an amount" in answer.message


def test_warnings_go_along():
    answer = injector().answer(asked(pod(annotations={"sidecar.istio.io/agentLogLevel": "x"})))
    assert answer.warnings == (
        "Pod shop/web-7d4b9c-x2x1z: weft does not use the annotation sidecar.istio.io/agentLogLevel",
    )


@pytest.mark.parametrize(
    "request_",
    [asked(pod(), operation="UPDATE"), asked(None), asked({"kind": "Service"}, kind=ReviewedKind("", "v1", "Service"))],
)
def test_other_requests_than_pod_creations_are_allowed_unchanged(request_):
    answer = injector().answer(request_)
    assert (answer.allowed, answer.patch) == (True, ())


def test_a_review_of_istioctl_gets_the_same_patch_as_one_of_the_api_server():
    sent = asked(pod(), operation="", kind=ReviewedKind("admission.k8s.io", "v1", "AdmissionRequest"))
    assert injector().answer(sent) == injector().answer(asked(pod()))
    assert injector().answer(sent).patch


def test_the_namespace_is_the_requests_where_the_pod_names_none():
    assert not injector().answer(asked(pod(), namespace="kube-system")).patch
    inside = pod()
    inside["metadata"]["namespace"] = "kube-system"
    assert not injector().answer(asked(inside, namespace="")).patch


def test_new_settings_apply_from_the_next_review_on():
    changing = injector()
    changing.settings = InjectionSettings(auto_inject=False)
    assert not changing.answer(asked(pod())).patch


@pytest.mark.parametrize(
    ("major", "minor", "there"),
    [("1", "29", True), ("1", "28", False), ("1", "34+", True), ("2", "0", True), ("", "", False), ("1", "x", False)],
)
def test_native_sidecars_are_used_from_their_kubernetes_version_on(major, minor, there):
    assert has_native_sidecars(major, minor) is there


@pytest.mark.parametrize(("minor", "there"), [("29", False), ("30", True), ("31+", True)])
def test_sleep_hooks_are_used_from_their_kubernetes_version_on(minor, there):
    assert has_sleep_hooks("1", minor) is there


def test_without_support_for_sleep_hooks_none_is_injected():
    older = Injector(InjectionSettings(), arguments, native_sidecars=True, sleep_hooks=False)
    assert "sleep" not in str(older.answer(asked(pod())).patch)
    assert "sleep" in str(injector().answer(asked(pod())).patch)
