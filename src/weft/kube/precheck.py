"""Checks whether weft can be installed on a cluster, before anything is written: the Kubernetes version,
permissions, existing objects with the same names, nodes. The input is the objects to apply, the output problems,
each with a hint."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from weft.base.problem import Problem, Severity, Where
from weft.kube.client import Client
from weft.kube.error import ApiError
from weft.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    SELF_SUBJECT_ACCESS_REVIEWS,
    ResourceKind,
    named,
)
from weft.kube.webhooks import unanswered

LEAST_VERSION = (1, 29)  # the first version that enables native sidecars by default
_ARCHITECTURES = ("amd64", "arm64")
# Kubelet root directories that differ from the default, by kubelet version or node label.
_ROOTS = (
    (re.compile(r"\+k0s"), "", "/var/lib/k0s/kubelet"),
    (None, "microk8s.io/cluster", "/var/snap/microk8s/common/var/lib/kubelet"),
)


class Plan(msgspec.Struct, frozen=True):
    """What an installation would apply, as input of the checks: the `objects` (manifests), their namespace, kubelet's
    directory on the nodes (`kubelet_root`), and weft's container image."""

    objects: Sequence[Mapping[str, Any]]
    namespace: str
    kubelet_root: str
    image: str


async def check(client: Client, plan: Plan) -> AsyncGenerator[tuple[str, list[Problem]], None]:
    """Run all checks. Yields the title and the problems of each check when it is done. Raises KubeError if the API
    server does not answer."""
    yield await _version(client)
    yield "permissions", await _permissions(client, plan)
    yield "names", await _names(client, plan)
    yield "kinds", await _kinds(client, plan)
    yield "pod security", await _pod_security(client, plan)
    nodes = (await client.list(NODES, _Node)).items
    yield f"machines ({len(nodes)})", list(_machines(nodes, plan))
    yield "webhooks", await unanswered(client, "app.kubernetes.io/name=weft")


class _Version(msgspec.Struct):
    major: str
    minor: str
    git_version: str = msgspec.field(name="gitVersion")


async def _version(client: Client) -> tuple[str, list[Problem]]:
    version = msgspec.json.decode(await client.raw("GET", "/version"), type=_Version)
    numbers = tuple(int(re.match(r"\d*", part)[0] or 0) for part in (version.major, version.minor))  # type: ignore[index]
    title = f"Kubernetes {version.git_version}"
    if numbers >= LEAST_VERSION:
        return title, []
    least = ".".join(map(str, LEAST_VERSION))
    return title, [_error("", f"Kubernetes {version.git_version} is too old", f"weft needs {least} or newer")]


async def _permissions(client: Client, plan: Plan) -> list[Problem]:
    lacking = []
    checked: set[tuple[str, str, str]] = set()
    for each in plan.objects:
        reference = named(each)
        resource = await client.find(reference.api_version, reference.kind)
        for verb in ("get", "create", "patch"):
            question = (verb, str(resource), reference.namespace)
            if question not in checked:
                checked.add(question)
                if not await _may(client, verb, resource, reference.namespace):
                    lacking.append(f"{verb} {resource}")
    if not lacking:
        return []
    what = f"you may not {', '.join(dict.fromkeys(lacking))}"
    return [_error("", what, "an installation needs the rights of cluster-admin")]


async def _may(client: Client, verb: str, resource: ResourceKind, namespace: str) -> bool:
    wanted = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    review = await client.create(SELF_SUBJECT_ACCESS_REVIEWS, {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    })  # fmt: skip
    return bool(review["status"].get("allowed"))


async def _names(client: Client, plan: Plan) -> list[Problem]:
    """Return a problem for each existing object that has the name of one of weft's objects but does not belong to weft,
    because applying would overwrite it without its owner's knowledge; and a warning for each other control plane."""
    problems = []
    for each in plan.objects:
        reference = named(each)
        if reference.kind in ("Namespace", "CustomResourceDefinition"):
            continue
        there = await _there(
            client, await client.find(reference.api_version, reference.kind), reference.name, reference.namespace
        )
        if there is not None and (there["metadata"].get("labels") or {}).get("app.kubernetes.io/name") != "weft":
            hint = "remove the object, or install weft with another --revision or in another namespace"
            problems.append(_error(str(reference), "the object exists already and is not weft's", hint))
    for other in (await client.list(DEPLOYMENTS, _Object, labels="app=istiod")).items:
        labels = other.metadata.labels or {}
        if labels.get("app.kubernetes.io/name") != "weft":
            where = f"Deployment {other.metadata.namespace}/{other.metadata.name}"
            what = "this is another control plane than weft; each namespace can use only one of them"
            problems.append(
                _warning(
                    where,
                    what,
                    "install weft with a --revision of its own, and move namespaces with the label istio.io/rev",
                )
            )
    return problems


async def _kinds(client: Client, plan: Plan) -> list[Problem]:
    problems = []
    for each in plan.objects:
        if each["kind"] != "CustomResourceDefinition":
            continue
        name = each["metadata"]["name"]
        there = await _there(client, CUSTOM_RESOURCE_DEFINITIONS, name, "")
        if there is None:
            continue
        ours = {version["name"] for version in each["spec"]["versions"]}
        lost = sorted(set(there.get("status", {}).get("storedVersions", ())) - ours)
        where = f"CustomResourceDefinition {name}"
        if lost:
            what = f"objects are stored in version {', '.join(lost)}, which weft does not serve"
            problems.append(_error(where, what, "store them again in v1: see kube-storage-version-migrator"))
        elif (there["metadata"].get("labels") or {}).get("app.kubernetes.io/name") != "weft":
            what = "the kind belongs to another installation; weft replaces its schema and keeps its objects"
            problems.append(_warning(where, what, "to keep the schema as it is: --set crds=false"))
    return problems


async def _pod_security(client: Client, plan: Plan) -> list[Problem]:
    there = await _there(client, NAMESPACES, plan.namespace, "")
    level = ((there or {}).get("metadata", {}).get("labels") or {}).get("pod-security.kubernetes.io/enforce", "")
    if level not in ("baseline", "restricted"):
        return []
    what = f"the namespace enforces pod security `{level}`; weft changes that to `privileged`, for the node agent"
    return [_warning(f"Namespace {plan.namespace}", what, "or choose another namespace: --set namespace=NAME")]


def _machines(nodes: Iterable[_Node], plan: Plan) -> Iterable[Problem]:
    for node in nodes:
        where, info, labels = f"Node {node.metadata.name}", node.status.info, node.metadata.labels or {}
        if info.operating_system not in ("", "linux"):  # kubelet may not have reported it yet
            yield _warning(where, f"the node runs {info.operating_system}: its pods can have no proxy")
            continue
        if info.architecture not in ("", *_ARCHITECTURES):
            yield _warning(where, f"there is no Envoy for {info.architecture}: the node's pods can have no proxy")
        numbers = re.match(r"v(\d+)\.(\d+)", info.kubelet_version)
        if numbers and (int(numbers[1]), int(numbers[2])) < LEAST_VERSION:
            yield _warning(
                where,
                f"the node's kubelet {info.kubelet_version} is too old",
                "update kubelet before you inject pods there",
            )
        for version, label, root in _ROOTS:
            fits = (version and version.search(info.kubelet_version)) or (label and label in labels)
            if fits and plan.kubelet_root != root:
                yield _error(
                    where,
                    f"the root directory of the node's kubelet is {root}, not {plan.kubelet_root}",
                    f"--set node.kubeletRoot={root}",
                )
        if "/" not in plan.image and not _has_image(node, plan.image):
            hint = "load the image on the node, or use an image of a registry: --set image=REGISTRY/weft:TAG"
            yield _warning(where, f"the node does not have the image {plan.image}, which names no registry", hint)


def _has_image(node: _Node, image: str) -> bool:
    return any(
        name.endswith(f"/{image}") or name == image for entry in node.status.images for name in entry.names or ()
    )


async def _there(client: Client, resource: ResourceKind, name: str, namespace: str) -> dict[str, Any] | None:
    try:
        return await client.get(resource, name, namespace=namespace)
    except ApiError as error:
        if error.not_found:
            return None
        raise


def _error(where: str, what: str, hint: str = "") -> Problem:
    return Problem(Where(object=where), what, hint)


def _warning(where: str, what: str, hint: str = "") -> Problem:
    return Problem(Where(object=where), what, hint, Severity.WARNING)


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Metadata(_Camel, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Object(_Camel, frozen=True):
    metadata: _Metadata


class _NodeInfo(_Camel, frozen=True):
    operating_system: str = "linux"
    architecture: str = "amd64"
    kubelet_version: str = ""


class _Image(_Camel, frozen=True):
    names: tuple[str, ...] | None = None


class _NodeStatus(_Camel, frozen=True):
    info: _NodeInfo = msgspec.field(name="nodeInfo", default=_NodeInfo())
    images: tuple[_Image, ...] = ()


class _Node(_Camel, frozen=True):
    metadata: _Metadata
    status: _NodeStatus = _NodeStatus()
