"""The resource types of aggregated discovery, and the order in which a change of several types reaches a proxy.

The order is data: each step says which part of which type goes, which types must have settled on the same stream
before it, and why. `stream.py` walks it from top to bottom on every turn.
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
    """Whether a call is held until this is there. Only who asks for it by name is sent it, when all else
    has been taken; but never that there is none: an Envoy that was told so once lets every later call wait in vain."""
    return type_url == CLUSTER and is_held_cluster(name)


# Clients may ask for all of these by naming nothing, and in state-of-the-world a response carries all that exists, so
# that a missing name means "deleted". Of every other type a response carries what changed, and nothing can be deleted.
WHOLE_SET = frozenset({CLUSTER, LISTENER})


class PushPart(Enum):
    UPSERTS = "upserts"
    REMOVALS = "removals"
    BOTH = "both"
    ANSWERS = "answers"  # upserts of names that somebody waits for, and that nobody is told are not there


class PushStep(msgspec.Struct, frozen=True):
    type_url: str
    part: PushPart
    after: tuple[str, ...]  # types that must have nothing owed and nothing unanswered on this stream
    why: str


# Make before break: what is pointed at comes before what points, and goes after it.
PUSH_ORDER = (
    PushStep(SECRET, PushPart.BOTH, (), "clusters and listeners stay warming until their certificates are there"),
    PushStep(CLUSTER, PushPart.UPSERTS, (), "a route to a cluster that is not there yet answers 503"),
    PushStep(
        ENDPOINT,
        PushPart.UPSERTS,
        (),
        "a cluster is warm once it has endpoints; endpoints are news and wait for nobody",
    ),
    PushStep(ROUTE, PushPart.UPSERTS, (CLUSTER,), "a route may name new clusters"),
    PushStep(
        LISTENER,
        PushPart.BOTH,
        (CLUSTER, ROUTE),
        "a listener may name new clusters, and takes calls at once by routes that it shares with others; removals go "
        "along, for a proxy handles them first and a new listener may take over the address of an old one",
    ),
    PushStep(ROUTE, PushPart.REMOVALS, (LISTENER,), "nothing may look into routes any more when they go"),
    PushStep(CLUSTER, PushPart.REMOVALS, (LISTENER, ROUTE), "nothing may point at a cluster any more when it goes"),
    PushStep(ENDPOINT, PushPart.REMOVALS, (LISTENER, ROUTE, CLUSTER), "endpoints go when their cluster has gone"),
    PushStep(
        CLUSTER,
        PushPart.ANSWERS,
        (ENDPOINT, LISTENER, ROUTE),
        "a held call goes on when all that it is to meet is there",
    ),
)
