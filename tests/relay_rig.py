"""A control plane behind its TLS port, and agents that call it with certificates and tokens of the mesh.

async with cluster(plane, placements) as rig:
    relay = await rig.agent("node-1", directory)
    await relay.add(pod("web-0"), doorway(directory / "web-0"))
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import defaultdict
from datetime import timedelta

from eventually import eventually
from weft.ca.authority import Authority
from weft.ca.server import CaServer
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import AUDIENCE, TokenIssuer
from weft.ca.tokens import Caller
from weft.cluster.tls_front import Front
from weft.control.access import Access
from weft.control.plane import ControlPlane
from weft.model.identity import Identity
from weft.node.door import Doorway
from weft.node.key import Key
from weft.node.pods import KubeletPod
from weft.node.relay import Relay
from weft.xds.upstream import Line

TRUST_DOMAIN = "cluster.local"
AGENTS = ("istio-system", "weft-node")


def pod(name, account="web", namespace="shop"):
    return KubeletPod(namespace, name, f"uid-{name}", account)


def doorway(directory, **more):
    return Doorway(path=directory / "xds", **{"uid": os.getuid(), "gid": os.getgid(), **more})


class Placed:
    """What a watch of Pods would know."""

    def __init__(self):
        self.nodes = {}  # pod → node
        self.groups = {}  # pod → group
        self.listed = True
        self._told = defaultdict(list)

    def put(self, uid, node, group=None):
        self.nodes[uid] = node
        if group is not None:
            self.groups[uid] = group
        self.tell(node)
        self.tell(uid)

    def tell(self, node):
        for changed in self._told[node]:
            changed()

    def pods_on(self, node):
        if not self.listed:
            return None
        return {uid: group for uid, group in self.groups.items() if self.nodes[uid] == node}

    def node_of(self, pod_uid):
        return self.nodes.get(pod_uid)

    def subscribe(self, node, changed):
        self._told[node].append(changed)
        return lambda: self._told[node].remove(changed)

    def uid_of(self, namespace, pod):
        group = self.groups.get(f"uid-{pod}")
        return f"uid-{pod}" if group is not None and group.namespace == namespace else None

    def group_of(self, pod_uid):
        return self.groups.get(pod_uid)

    follow = subscribe


class Cluster:
    def __init__(self, plane, placed):
        self.plane, self.placed = plane, placed
        self.authority = Authority.in_memory(TRUST_DOMAIN)
        self.issuer = TokenIssuer()
        self.address = ""
        self.front = None

    async def open(self, plane=None):
        """Open again, with another control plane: the same CA, the same address."""
        self.plane = plane or self.plane
        self.front = Front(self.authority)
        checker = self.issuer.checker()
        ca = CaServer(CertificateService(self.authority, checker), host_of=self.front.host_of)
        access = Access(TRUST_DOMAIN, checker, self.front.identity_of, frozenset({AGENTS}))
        handlers = (*ca.handlers(), *self.plane.handlers("15012", access))
        self.address = await self.front.listen(self.address or "127.0.0.1:0", *handlers)

    async def close(self):
        await self.front.close()
        await self.plane.close()

    def token(self, caller):
        return self.issuer.issue(caller, audience=AUDIENCE, lifetime=timedelta(minutes=10))

    def certificate(self, namespace, account):
        """(chain, key)"""
        identity = Identity(TRUST_DOMAIN, namespace, account)
        key = Key()
        issued = self.authority.sign(key.request(identity), identity, timedelta(hours=1))
        return "".join(issued.chain), key.secret_pem()

    def line(self, node, *, certified=True, account=AGENTS):
        self.placed.put(f"uid-agent-{node}", node)

        async def line():
            chain, key = self.certificate(*account) if certified else ("", b"")
            return Line(
                target=self.address,
                roots="".join(self.authority.bundle()),
                chain=chain,
                key=key,
                token=self.token(Caller(*account, f"agent-{node}", f"uid-agent-{node}")),
            )

        return line

    def agent(self, node, directory):
        relay = Relay(directory / "private", node, self.line(node))
        relay.start()
        return relay


@contextlib.asynccontextmanager
async def cluster(documents=(), placed=None):
    placed = placed or Placed()
    plane = ControlPlane(placements=placed)
    rig = Cluster(plane, placed)
    if documents:
        plane.apply(documents)
    await rig.open()
    try:
        yield rig
    finally:
        await rig.close()


until = functools.partial(eventually, limit=60)  # seconds: the awaited change passes three programs
