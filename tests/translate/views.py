"""Views for tests, in one line each."""

from model.builders import service
from weft.model.group import ProxyKind
from weft.model.names import ObjectKey, Origin
from weft.model.virtual_service import Destination, HttpRoute, VirtualService, WeightedDestination
from weft.translate.view import CallerView, ServiceView

HOST = "orders.shop.svc.cluster.local"


def view(*http, routes=(), namespace="shop", labels=(), kind=ProxyKind.SIDECAR, **more):
    """The service `orders` on port 80, with these HTTP routes if any."""
    made = more.pop("service", None) or service("orders", **more.pop("like", {}))
    if http:
        routes = (routing(*http), *routes)
    return ServiceView(
        host=made.host,
        caller=CallerView(kind, namespace, labels),
        service=made,
        ports=more.pop("ports", made.ports),
        routes=tuple(routes),
        **more,
    )


def routing(*http, name="orders", **more):
    return VirtualService(
        name, "shop", more.pop("hosts", (HOST,)), http=http, origin=origin("VirtualService", name), **more
    )


def to(host=HOST, subset="", port=0, weight=1):
    return WeightedDestination(Destination(host, subset, port), weight)


def route(*destinations, **more):
    return HttpRoute(route=destinations or (to(),), **more)


def origin(kind, name, line=7):
    return Origin(ObjectKey(kind, "shop", name), "v1", "mesh.yaml", line)
