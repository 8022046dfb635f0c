"""The resource types of aggregated discovery, and the order in which a change of several types is sent to a proxy.

The order is data (PUSH_ORDER): each step has a type, what is sent of this type (`PushPart`), the types of which
everything must have been sent and acknowledged before on the same stream, and the reason. `stream.py` goes through the
steps from top to bottom on every turn.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from weft.xds.on_demand import is_held_cluster

_PREFIX = "type.googleapis.com/"

CLUSTER = _PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINT = _PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = _PREFIX + "envoy.config.listener.v3.Listener"
ROUTE = _PREFIX + "envoy.config.route.v3.RouteConfiguration"
SECRET = _PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"

WILDCARD = "*"


def is_held(type_url: str, name: str) -> bool:
    """Whether this is a cluster that Envoy requests by name for a call that it holds (on-demand CDS). Such a cluster is
    sent only to clients that request it by name, after everything else was acknowledged. It is never reported as
    missing: if it were, Envoy would hold every later call until its timeout."""
    return type_url == CLUSTER and is_held_cluster(name)


# Clients may subscribe to all resources of these types with an empty list of names. A state-of-the-world response
# contains all resources that exist, so that a missing name means "deleted". Responses of other types contain changes
# and delete nothing.
WHOLE_SET = frozenset({CLUSTER, LISTENER})


class PushPart(Enum):
    UPSERTS = "upserts"
    REMOVALS = "removals"
    BOTH = "both"
    ANSWERS = "answers"  # upserts of clusters that held calls wait for (`is_held`)


class PushStep(msgspec.Struct, frozen=True):
    type_url: str
    part: PushPart
    after: tuple[str, ...]  # types that must have nothing owed and nothing unacknowledged on this stream
    why: str


# Make before break: a resource is sent before the resources that refer to it, and removed after them.
PUSH_ORDER = (
    PushStep(SECRET, PushPart.BOTH, (), "clusters and listeners stay warming until they have their certificates"),
    PushStep(CLUSTER, PushPart.UPSERTS, (), "a route to a cluster that does not exist yet returns 503"),
    PushStep(
        ENDPOINT,
        PushPart.UPSERTS,
        (),
        "a cluster is warm once it has endpoints; endpoints are never delayed",
    ),
    PushStep(ROUTE, PushPart.UPSERTS, (CLUSTER,), "a route may name new clusters"),
    PushStep(
        LISTENER,
        PushPart.BOTH,
        (CLUSTER, ROUTE),
        "a listener may name new clusters, and may use routes that other listeners have already; removals "
        "are in the same response, because a proxy applies them first and a new listener may reuse an old address",
    ),
    PushStep(ROUTE, PushPart.REMOVALS, (LISTENER,), "no listener may refer to routes when they are removed"),
    PushStep(CLUSTER, PushPart.REMOVALS, (LISTENER, ROUTE), "nothing may refer to a cluster when it is removed"),
    PushStep(ENDPOINT, PushPart.REMOVALS, (LISTENER, ROUTE, CLUSTER), "endpoints are removed after their cluster"),
    PushStep(
        CLUSTER,
        PushPart.ANSWERS,
        (ENDPOINT, LISTENER, ROUTE),
        "a held call continues when the proxy has all its listeners, routes and endpoints",
    ),
)
