"""The objects that the fuzz test mutates: meshes that other tests use, so that new kinds and fields arrive here by
themselves. A mesh is a list of objects; references between its objects resolve, so that mutated objects meet others."""

from pathlib import Path

import yaml

from api.test_parse import VALID

ROOT = Path(__file__).parent.parent.parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def meshes():
    """Return all meshes, always in the same order."""
    files = [
        *sorted((ROOT / "tests" / "golden").glob("*/mesh.yaml")),
        *sorted((ROOT / "tests" / "broken").glob("mesh/*.yaml")),
    ]
    examples = sorted(each for each in (ROOT / "examples").iterdir() if each.is_dir())
    found = [_objects([file]) for file in files]
    found += [_objects(sorted(directory.rglob("*.yaml"))) for directory in examples]
    found += [[*(yaml.load(text, _LOADER) for text in VALID.values()), request_test(), *deployments()[:1]]]
    found += [[namespace(), service(), each] for each in deployments()]
    return [mesh for mesh in found if mesh]


def pods():
    """Return the pods of the injection's golden cases."""
    files = sorted((ROOT / "tests" / "inject" / "golden").glob("*/pod.yaml"))
    return [yaml.load(file.read_text(), _LOADER)["pod"] for file in files]


def deployments():
    """Return a workload of a cluster for each pod, of all kinds in turn."""
    kinds = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod")
    return [_workload(kinds[number % len(kinds)], pod) for number, pod in enumerate([*pods(), *pods()])]


def namespace():
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"istio-injection": "enabled"}},
    }


def service():
    spec = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def request_test():
    request = {"from": "web", "to": "http://web/a", "method": "POST", "headers": {"x": "y"}, "expect": "allowed"}
    metadata = {"name": "requests", "namespace": "shop"}
    spec = {"requests": [request, {**request, "sourceAddress": "10.0.0.1", "expect": {"status": 200}}]}
    return {"apiVersion": "weft.dev/v1alpha1", "kind": "RequestTest", "metadata": metadata, "spec": spec}


def _workload(kind, pod):
    metadata = {"name": "web", "namespace": "shop"}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, **pod, "metadata": {**pod.get("metadata", {}), **metadata}}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pod}}}
    else:
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pod}
    return {"apiVersion": "batch/v1" if "Job" in kind else "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _objects(files):
    found = []
    for file in files:
        try:
            found += [each for each in yaml.load_all(file.read_text(), _LOADER) if isinstance(each, dict)]
        except yaml.YAMLError:
            continue  # a file that is invalid on purpose
    return found
