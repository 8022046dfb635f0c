import pytest

from weft.inject.owner import WorkloadOwner, canonical_name, canonical_revision, owner_of


def owned(kind, name, version="apps/v1", **labels):
    reference = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
    return {"name": "x", "labels": labels, "ownerReferences": [{"kind": "Other", "name": "y"}, reference]}


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        (
            owned("ReplicaSet", "web-7d4b", **{"pod-template-hash": "7d4b"}),
            WorkloadOwner("apps/v1", "Deployment", "web"),
        ),
        (owned("ReplicaSet", "web-7d4b"), WorkloadOwner("apps/v1", "ReplicaSet", "web-7d4b")),
        (owned("ReplicaSet", "web", **{"pod-template-hash": "7d4b"}), WorkloadOwner("apps/v1", "ReplicaSet", "web")),
        (owned("StatefulSet", "db"), WorkloadOwner("apps/v1", "StatefulSet", "db")),
        (owned("DaemonSet", "logs"), WorkloadOwner("apps/v1", "DaemonSet", "logs")),
        (owned("Job", "once", "batch/v1"), WorkloadOwner("batch/v1", "Job", "once")),
        (owned("Job", "report-29384756", "batch/v1"), WorkloadOwner("batch/v1", "CronJob", "report")),
        (owned("Job", "report-2938", "batch/v1"), WorkloadOwner("batch/v1", "Job", "report-2938")),
        (owned("Rollout", "web", "argoproj.io/v1alpha1"), WorkloadOwner("argoproj.io/v1alpha1", "Rollout", "web")),
        ({"name": "alone"}, WorkloadOwner("v1", "Pod", "alone")),
        ({"generateName": "made-"}, WorkloadOwner("v1", "Pod", "made")),
        ({}, WorkloadOwner("v1", "Pod", "")),
        ({"name": "x", "ownerReferences": [None, {"controller": True, "name": 1}]}, WorkloadOwner("v1", "Pod", "x")),
    ],
)
def test_the_workload_behind_a_pod(metadata, owner):
    assert owner_of(metadata) == owner


@pytest.mark.parametrize("strange", [{"ownerReferences": True}, {"ownerReferences": [1, None]}, {"labels": [1]}])
def test_invalid_metadata_has_an_owner_and_a_revision(strange):
    assert owner_of({"name": "web", **strange}) == WorkloadOwner("v1", "Pod", "web")
    assert canonical_revision(strange) == "latest"


def test_its_path_is_istios():
    assert WorkloadOwner("apps/v1", "Deployment", "web").path("shop") == (
        "kubernetes://apis/apps/v1/namespaces/shop/deployments/web"
    )


def test_canonical_names_prefer_kubernetes_own_labels():
    web = WorkloadOwner("apps/v1", "Deployment", "web")
    assert canonical_name({"labels": {"app": "a", "app.kubernetes.io/name": "b"}}, web) == "b"
    assert canonical_name({"labels": {"app": "a"}}, web) == "a"
    assert canonical_name({}, web) == "web"
    assert canonical_name({}, WorkloadOwner("v1", "Pod", "x" * 62 + "-y")) == "x" * 62
    assert canonical_revision({"labels": {"version": "1", "app.kubernetes.io/version": "2"}}) == "2"
    assert canonical_revision({"labels": {"version": "1"}}) == "1"
    assert canonical_revision({}) == "latest"
