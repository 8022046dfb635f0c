"""Tasks of https://istio.io/latest/docs/tasks/traffic-management/, without ingress and egress."""

from __future__ import annotations

from collections import Counter

import pytest

from eventually import eventually
from tasks.bookinfo import SUBSETS, applications, echo_applications, objects, versions

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.root]

JASON = {"end-user": "jason"}


def files(control):
    return {**applications(control), **echo_applications(control)}


async def test_request_routing(mesh):
    """All requests to v1; then those of one user, by a header, to v2."""
    to_v1 = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews}
spec:
  hosts: [reviews]
  http:
  - route: [{destination: {host: reviews, subset: v1}}]
"""
    await mesh.try_out(*objects(SUBSETS + "---" + to_v1))
    assert await versions(mesh, "http://reviews/") == {"v1": 20}
    by_user = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews}
spec:
  hosts: [reviews]
  http:
  - match: [{headers: {end-user: {exact: jason}}}]
    route: [{destination: {host: reviews, subset: v2}}]
  - route: [{destination: {host: reviews, subset: v1}}]
"""
    await mesh.try_out(*objects(SUBSETS + "---" + by_user))
    assert await versions(mesh, "http://reviews/", headers=JASON) == {"v2": 20}
    assert await versions(mesh, "http://reviews/") == {"v1": 20}


async def test_fault_injection(mesh):
    """A delay and an aborted request, only for one user."""
    fault = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings}
spec:
  hosts: [ratings]
  http:
  - match: [{headers: {end-user: {exact: jason}}}]
    fault: FAULT
    route: [{destination: {host: ratings}}]
  - route: [{destination: {host: ratings}}]
"""
    await mesh.try_out(*objects(fault.replace("FAULT", "{delay: {percentage: {value: 100}, fixedDelay: 2s}}")))
    slow = await mesh.get("curl", "http://ratings/", headers=JASON)
    assert slow["status"] == 200 and slow["seconds"] >= 2
    await mesh.try_out(*objects(fault.replace("FAULT", "{abort: {percentage: {value: 100}, httpStatus: 500}}")))
    assert (await mesh.get("curl", "http://ratings/", headers=JASON))["status"] == 500
    assert (await mesh.get("curl", "http://ratings/"))["status"] == 200


async def test_traffic_shifting(mesh):
    """Half of the requests to v3, then all of them."""
    shifted = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews}
spec:
  hosts: [reviews]
  http:
  - route:
    - {destination: {host: reviews, subset: v1}, weight: OLD}
    - {destination: {host: reviews, subset: v3}, weight: NEW}
"""
    await mesh.try_out(*objects(SUBSETS + "---" + shifted.replace("OLD", "50").replace("NEW", "50")))
    seen = await versions(mesh, "http://reviews/", 400)
    assert seen.keys() == {"v1", "v3"} and 100 < seen["v3"] < 300
    await mesh.try_out(*objects(SUBSETS + "---" + shifted.replace("OLD", "0").replace("NEW", "100")))
    assert await versions(mesh, "http://reviews/", 50) == {"v3": 50}


async def test_tcp_traffic_shifting(mesh):
    """Connections to v1; then a fifth of them to v2."""
    rule = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: tcp-echo}
spec:
  host: tcp-echo
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tcp-echo}
spec:
  hosts: [tcp-echo]
  tcp:
  - match: [{port: 9000}]
    route:
"""
    v1 = "    - {destination: {host: tcp-echo, port: {number: 9000}, subset: v1}, weight: %d}\n"
    v2 = "    - {destination: {host: tcp-echo, port: {number: 9000}, subset: v2}, weight: 20}\n"
    await mesh.try_out(*objects(rule + v1 % 100))
    assert set(await mesh.tell("curl", "names", host="tcp-echo", port=9000, count=20)) == {"tcp-echo-v1-0"}
    await mesh.try_out(*objects(rule + v1 % 80 + v2))
    seen = Counter(await mesh.tell("curl", "names", host="tcp-echo", port=9000, count=200))
    assert seen.keys() == {"tcp-echo-v1-0", "tcp-echo-v2-0"} and 10 < seen["tcp-echo-v2-0"] < 90


async def test_request_timeouts(mesh):
    """A request that takes longer than its timeout ends with 504."""
    await mesh.tell("ratings-v1", "script", path="/slow", forever={"delay": 2.0})
    limited = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings}
spec:
  hosts: [ratings]
  http:
  - route: [{destination: {host: ratings}}]
    timeout: 0.5s
"""
    assert (await mesh.get("curl", "http://ratings/slow"))["status"] == 200
    await mesh.try_out(*objects(limited))
    assert (await mesh.get("curl", "http://ratings/slow"))["status"] == 504


async def test_circuit_breaking(mesh):
    """One connection, one pending request and one request per connection: of concurrent requests, some get 503."""
    limits = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: httpbin}
spec:
  host: httpbin
  trafficPolicy:
    connectionPool:
      tcp: {maxConnections: 1}
      http: {http1MaxPendingRequests: 1, maxRequestsPerConnection: 1}
    outlierDetection: {consecutive5xxErrors: 1, interval: 1s, baseEjectionTime: 3m, maxEjectionPercent: 100}
"""
    for version in ("v1", "v2"):
        await mesh.tell(f"httpbin-{version}", "script", path="/busy", forever={"delay": 0.2})
    await mesh.try_out(*objects(limits))
    assert (await mesh.get("curl", "http://httpbin/"))["status"] == 200
    seen = Counter(each["status"] for each in await mesh.requests("curl", "http://httpbin/busy", 20, parallel=10))
    assert seen[503] > 0 and seen[200] > 0 and seen.keys() == {200, 503}
    assert await mesh.stat("curl", r"outbound.80..httpbin.*upstream_rq_pending_overflow$") > 0


async def test_mirroring(mesh):
    """Requests go to v1, and a copy of each to v2, whose response nobody waits for."""
    mirrored = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: httpbin}
spec:
  host: httpbin
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: httpbin}
spec:
  hosts: [httpbin]
  http:
  - route: [{destination: {host: httpbin, subset: v1}, weight: 100}]
    mirror: {host: httpbin, subset: v2}
    mirrorPercentage: {value: 100.0}
"""
    await mesh.try_out(*objects(mirrored))
    assert await versions(mesh, "http://httpbin/copied", 10) == {"v1": 10}
    await eventually(lambda: received(mesh, "/copied"), lambda count: count == 10)


async def received(mesh, path):
    return await mesh.received("httpbin-v2", path)
