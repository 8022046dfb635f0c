"""A real API server in a test's hand: put objects there, take them away, and watch them through the product's source."""

import asyncio
from contextlib import aclosing, asynccontextmanager

from tools.kube.api_server import RequestFailed

from weft.control.intake import Intake
from weft.control.problems import Problems
from weft.install.crds import crds
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.pods import PodIndex
from weft.kube.resource import known
from weft.kube.source import watch
from weft.mesh.mesh import Mesh
from weft.mesh.touched import joined

MERGE = "application/merge-patch+json"
_PLURALS = {each["spec"]["names"]["kind"]: each["spec"]["names"]["plural"] for each in crds()}


def path(manifest, subresource=""):
    version, kind, meta = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
    resource = known(version, kind)
    if resource is not None:
        return resource.path(meta.get("namespace", ""), meta["name"], subresource)
    below = f"/{subresource}" if subresource else ""
    return f"/apis/{version}/namespaces/{meta['namespace']}/{_PLURALS[kind]}/{meta['name']}{below}"


def put(server, *manifests):
    """Make them, or make them so; statuses too."""
    for manifest in manifests:
        collection = path(manifest).rpartition("/")[0]
        try:
            server.request("POST", collection, manifest)
        except RequestFailed as error:
            if error.status != 409:
                raise
            fixed = ("status", "spec") if manifest["kind"] == "Pod" else ("status",)
            server.request("PATCH", path(manifest), {k: v for k, v in manifest.items() if k not in fixed}, kind=MERGE)
        if manifest["kind"] == "Pod":
            server.request("PATCH", path(manifest, "status"), {"status": manifest["status"]}, kind=MERGE)


def remove(server, *manifests):
    for manifest in manifests:
        now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        server.request("DELETE", path(manifest), now)


def client_of(server):
    return Client(load(server.kubeconfig))


class Watched:
    """What the source has told so far, in a mesh."""

    def __init__(self, batches, pods):
        self._batches, self.pods = batches, pods
        self.mesh, self.problems = Mesh(), Problems()
        self.intake = Intake(self.mesh, self.problems, domain="cluster.local")
        self.told = []  # batches
        self.statuses = {}

    async def next(self):
        """Take one more batch in; returns it and what it touched."""
        batch = await anext(self._batches)
        self.told.append(batch)
        touched, _ = self.intake.documents(batch.changes)
        self.statuses.update(batch.statuses)
        return batch, joined((touched, *(self.intake.values(*each) for each in batch.values)))

    async def until(self, holds, seconds=60):
        """Batches until it holds; what they touched."""
        touched = []
        async with asyncio.timeout(seconds):
            while not holds():
                touched.append((await self.next())[1])
        return joined(touched)

    def endpoints(self, name, namespace, number=80):
        found = next((each for each in self.mesh.services() if (each.name, each.namespace) == (name, namespace)), None)
        return self.mesh.endpoints(found, found.port(number)) if found else ()

    def addresses(self, name, namespace, number=80):
        return [(each.address, each.port) for each in self.endpoints(name, namespace, number)]


@asynccontextmanager
async def watched(server, **options):
    pods = PodIndex()
    async with client_of(server) as client, aclosing(watch(client, pods=pods, **options)) as batches:
        yield Watched(batches, pods)
