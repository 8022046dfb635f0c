"""Small meshes for tests, in one line each."""

from weft.mesh.mesh import Mesh
from weft.model.group import Group, ProxyKind
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of, service_host
from weft.model.service import Protocol, Service, ServicePort


def service(name, namespace="shop", port=80, target=8080, protocol=Protocol.HTTP, **more):
    return Service(
        host=service_host(name, namespace, "cluster.local"),
        name=name,
        namespace=namespace,
        ports=(ServicePort(port, str(protocol), protocol, target),),
        selector=more.pop("selector", labels_of({"app": name})),
        **more,
    )


def instance(name, app, namespace="shop", address="10.244.0.1", **more):
    labels = {"app": app, **more.pop("labels", {})}
    return Instance(name, namespace, (address,), labels_of(labels), **more)


def group(app, namespace="shop", **labels):
    return Group(ProxyKind.SIDECAR, namespace, labels_of({"app": app, **labels}), app)


def put(mesh: Mesh, *values):
    """Apply values under keys of their own; returns what the last one touched."""
    touched = None
    for value in values:
        touched = mesh.apply(ObjectKey(type(value).__name__, value.namespace, value.name), (value,))
    return touched
