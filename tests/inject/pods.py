"""Pods to inject, the injection, and a JSON Patch implementation in place of the API server's."""

from weft.cluster.sidecar_arguments import arguments
from weft.inject.json_patch import copied
from weft.inject.patch import inject
from weft.inject.settings import InjectionSettings


def pod(*, labels=None, annotations=None, containers=None, name="web-7d4b9c-x2x1z", **spec):
    metadata = {"name": name, "labels": labels or {"app": "web"}}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers or [{"name": "web", "image": "web:1"}], **spec},
    }


def injected(wanted, settings=None, *, native=True, namespace="shop", render=arguments):
    return inject(wanted, namespace, settings or InjectionSettings(), render, native_sidecars=native).pod


def container(result, name="istio-proxy"):
    both = [*result["spec"]["containers"], *result["spec"].get("initContainers", ())]
    (found,) = [each for each in both if each["name"] == name]
    return found


def names(result, field="containers"):
    return [each["name"] for each in result["spec"].get(field, ())]


def variables(result):
    return {each["name"]: each.get("value") for each in container(result)["env"]}


def apply(document, operations):
    """Apply a JSON Patch (RFC 6902), as far as weft uses it; a missing path is an error."""
    document = copied(document)
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        holder = document
        for part in way:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        value = copied(operation.get("value"))
        if isinstance(holder, list):
            place = int(last)
            assert 0 <= place <= len(holder)
            match operation["op"]:
                case "add":
                    holder.insert(place, value)
                case "remove":
                    del holder[place]
                case "replace":
                    holder[place] = value
        elif operation["op"] == "remove":
            del holder[last]
        else:
            assert (last in holder) is (operation["op"] == "replace")
            holder[last] = value
    return document
