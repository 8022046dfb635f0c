"""Tasks of https://istio.io/latest/docs/tasks/traffic-management/locality-load-balancing/: one HelloWorld in each of four
localities, and a caller in the first."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.objects import http_service, text, workload
from eventually import eventually
from tasks.bookinfo import objects

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.root]

LOCALITIES = {"r1z1": "region1/zone1", "r1z2": "region1/zone2", "r2z3": "region2/zone3", "r3z4": "region3/zone4"}


def files(control):
    return {
        "curl.yaml": text(workload("curl", control=control, locality="region1/zone1")),
        "helloworld.yaml": text(
            *(
                workload(name, control=control, serve="http=8080", app="helloworld", locality=locality)
                for name, locality in LOCALITIES.items()
            ),
            http_service("helloworld"),
        ),
    }


def rule(setting):
    return f"""
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: helloworld}}
spec:
  host: helloworld.shop.svc.cluster.local
  trafficPolicy:
    loadBalancer:
      simple: ROUND_ROBIN
      localityLbSetting: {{enabled: true, {setting}}}
    outlierDetection: {{consecutive5xxErrors: 1, interval: 1s, baseEjectionTime: 1m}}
"""


async def responding(mesh, count=40):
    """How many requests each locality has answered, whatever the status."""
    answers = await mesh.requests("curl", "http://helloworld/hello", count, parallel=2)
    return Counter(each["body"]["pod"].rpartition("-")[0] for each in answers if isinstance(each["body"], dict))


async def test_distribute(mesh):
    """Requests of one locality are split over localities by weight; a locality that is not listed gets none."""
    weights = '{"region1/zone1/*": 70, "region1/zone2/*": 20, "region3/zone4/*": 10}'
    await mesh.try_out(*objects(rule(f'distribute: [{{from: "region1/zone1/*", to: {weights}}}]')))
    seen = await responding(mesh, 400)
    assert seen.keys() == {"r1z1", "r1z2", "r3z4"}
    assert 200 < seen["r1z1"] < 350 and 40 < seen["r1z2"] < 140 and 10 < seen["r3z4"] < 90


async def test_failover(mesh):
    """Requests stay in their zone; if it fails, they go to the next zone of the region, then to region2."""
    await mesh.try_out(*objects(rule("failover: [{from: region1, to: region2}]")))
    assert set(await responding(mesh)) == {"r1z1"}
    for failing, following in (("r1z1", "r1z2"), ("r1z2", "r2z3")):
        await mesh.tell(failing, "script", path="/hello", forever={"status": 503})
        await eventually(lambda: responding(mesh, 10), lambda seen, to=following: set(seen) == {to})
