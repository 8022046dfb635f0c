from __future__ import annotations

import asyncio

from bench.kube_endpoints import _every


class _Envoy:
    """Has the endpoint from its third response on."""

    def __init__(self):
        self.asked = 0

    async def read(self, path, query):
        self.asked += 1
        await asyncio.sleep(0)
        return b"outbound|80||called::10.0.0.1:8080::cx_active::0" if self.asked > 2 else b""


async def test_waits_for_the_last_envoy():
    envoys = [_Envoy(), _Envoy()]
    envoys[1].asked = -2
    await _every(envoys, b"called::10.0.0.1:8080::", there=True)
    assert [envoy.asked for envoy in envoys] == [3, 3]
