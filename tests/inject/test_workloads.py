import copy

import pytest

from inject.pods import container, injected, pod, variables
from weft.cluster.sidecar_arguments import arguments
from weft.inject.annotations import InjectionRefused
from weft.inject.settings import InjectionSettings
from weft.inject.workloads import inject_document

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "w"}]}}


def workload(kind, version="apps/v1", **metadata):
    inner = {"template": copy.deepcopy(TEMPLATE)}
    spec = {"jobTemplate": {"spec": inner}} if kind == "CronJob" else inner
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", **metadata},
        "spec": spec,
    }


def run(document, settings=None, **options):
    return inject_document(document, settings or InjectionSettings(), arguments, **options)


@pytest.mark.parametrize(
    "kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"]
)
def test_every_kind_that_holds_a_pods_template(kind):
    before = workload(kind)
    result = run(before)
    assert result.changed
    spec = result.document["spec"]
    template = spec["jobTemplate"]["spec"]["template"] if kind == "CronJob" else spec["template"]
    assert variables(template)["ISTIO_META_OWNER"].endswith(f"/namespaces/shop/{kind.lower()}s/web")
    assert container(template, "istio-init")
    assert before == workload(kind)


def test_it_is_byte_for_byte_what_the_webhook_makes_of_the_pods():
    template = run(workload("Deployment")).document["spec"]["template"]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d", "controller": True}
    real = pod(
        labels={"app": "web", "pod-template-hash": "7d"}, containers=copy.deepcopy(TEMPLATE["spec"]["containers"])
    )
    real["metadata"]["ownerReferences"] = [reference]
    by_webhook = injected(real)
    # The hash label, which a template does not have, is the only difference in the proxy's arguments.
    told = [text.replace('"pod-template-hash":"7d",', "") for text in container(by_webhook)["args"]]
    assert container(template)["args"] == told
    assert {**container(template), "args": told} == {**container(by_webhook), "args": told}
    assert run(pod()).document == injected(pod(), namespace="default")


def test_lists_are_injected_item_by_item_and_other_objects_unchanged():
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    result = run({"kind": "List", "items": [service, {"kind": "List", "items": [workload("Job")]}]})
    assert result.document["items"][0] == service
    assert "initContainers" in result.document["items"][1]["items"][0]["spec"]["template"]["spec"]
    assert not run(service).changed


@pytest.mark.parametrize(
    "document",
    [
        None,
        1,
        "x",
        [],
        {},
        {"kind": "Deployment"},
        {"kind": "Deployment", "spec": {"template": None}},
        {"kind": ["x"]},
        {"kind": "List", "items": [None]},
    ],
)
def test_an_object_that_is_not_a_workload_is_returned_unchanged(document):
    assert run(document).document == document


def test_the_reason_for_no_sidecar_is_in_the_notes():
    hosted = workload("DaemonSet")
    hosted["spec"]["template"]["spec"]["hostNetwork"] = True
    result = run(hosted)
    assert not result.changed
    assert result.notes == (
        "DaemonSet shop/web gets no sidecar: the pod uses hostNetwork, where a redirect would intercept the traffic"
        " of the whole node",
    )


def test_a_template_without_metadata_is_a_template():
    before = workload("Job")
    before["spec"]["template"]["metadata"] = None
    assert run(before).changed


def test_what_cannot_be_injected_is_refused():
    before = workload("Job")
    before["spec"]["template"]["metadata"]["annotations"] = {"sidecar.istio.io/logLevel": "x"}
    with pytest.raises(InjectionRefused):
        run(before)
