from weft.model.names import ObjectKey, Origin
from weft.model.virtual_service import (
    Destination,
    HttpRoute,
    L4Route,
    Mirror,
    VirtualService,
    WeightedDestination,
    destinations,
)

FIRST, SECOND = (Origin(ObjectKey("HTTPRoute", "shop", name), "routes.yaml", 3) for name in ("first", "second"))


def to(host, line=0):
    return WeightedDestination(Destination(host), weight=1, line=line)


def test_origins_are_unique_and_the_deciding_one_is_first():
    routes = (HttpRoute(origin=FIRST), HttpRoute(origin=SECOND), HttpRoute(origin=FIRST), HttpRoute())
    assert VirtualService(name="a", namespace="shop", hosts=("a",), http=routes, origin=SECOND).origins == (
        SECOND,
        FIRST,
    )
    assert VirtualService(name="a", namespace="shop", hosts=("a",)).origins == ()


def test_destinations_returns_all_destinations_with_their_lines():
    routing = VirtualService(
        name="a",
        namespace="shop",
        hosts=("a",),
        http=(HttpRoute(route=(to("one", 7), to("two")), mirrors=(Mirror(Destination("copy")),), line=5),),
        tls=(L4Route(route=(to("three"),), line=9),),
        tcp=(L4Route(route=(to("four", 12),), line=11),),
    )
    assert [(line, destination.host) for line, destination in destinations(routing)] == [
        (7, "one"),
        (5, "two"),
        (5, "copy"),
        (9, "three"),
        (12, "four"),
    ]
