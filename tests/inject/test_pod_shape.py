import pytest

from inject.pods import pod
from weft.inject.annotations import OVERRIDES
from weft.inject.injector import Injector
from weft.inject.pod_shape import flaw_of_pod, is_container
from weft.inject.review import AdmissionRequest, ReviewedKind
from weft.inject.settings import InjectionSettings


def test_a_pod_of_the_right_shape_has_no_flaw_whatever_else_it_contains():
    assert flaw_of_pod(pod(containers=[{"name": "a", "unknown": [1], "env": None}], volumes=None), "Pod a") is None


# Each of these raised an exception in the injector.
WRONG = {
    "containers[0].ports[0].containerPort": pod(containers=[{"name": "a", "ports": [{"containerPort": [80]}]}]),
    "containers[1].env[0].name": pod(containers=[{"name": "a"}, {"name": "istio-proxy", "env": [{"name": [1]}]}]),
    "containers[1].volumeMounts[0].mountPath": pod(
        containers=[{"name": "a"}, {"name": "istio-proxy", "volumeMounts": [{"mountPath": {}}]}]
    ),
    "volumes[0].name": pod(volumes=[{"name": ["x"]}]),
    "securityContext.sysctls": pod(securityContext={"sysctls": 5}),
    "containers[0].securityContext.runAsUser": pod(containers=[{"name": "a", "securityContext": {"runAsUser": "x"}}]),
}


@pytest.mark.parametrize("field", WRONG)
def test_the_injector_rejects_a_field_of_the_wrong_type_by_its_path(field):
    assert flaw_of_pod(WRONG[field], "Pod a").where.field == f"spec.{field}"
    answer = answered(WRONG[field])
    assert not answer.allowed
    assert f"spec.{field}: error: it must be " in answer.message


@pytest.mark.parametrize("value", [1, [], {}, None, True])
def test_a_label_that_is_no_string_decides_nothing(value):
    wanted = pod(labels={"app": "web", "sidecar.istio.io/inject": value})
    assert "metadata.labels: error: it must be a string" in answered(wanted).message


def test_stored_overrides_of_the_wrong_shape_are_ignored():
    stored = '{"containers": [{"name": "istio-proxy", "env": [{"name": [1]}]}]}'
    assert answered(pod(annotations={OVERRIDES: stored})).allowed
    assert is_container({"name": "istio-proxy", "env": [{"name": "a"}]})
    assert not is_container({"name": "istio-proxy", "env": [{"name": [1]}]})


def answered(wanted):
    injector = Injector(InjectionSettings(), lambda _: [], native_sidecars=True)
    return injector.answer(
        AdmissionRequest(uid="1", kind=ReviewedKind(kind="Pod"), operation="CREATE", namespace="shop", object=wanted)
    )
