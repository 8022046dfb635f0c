"""A proxy for tests: a real gRPC stream over a Unix socket, with messages that a proxy would send."""

import asyncio
import contextlib

import grpc.aio
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from google.rpc.status_pb2 import Status

from weft.api.document import Change
from weft.control.plane import ControlPlane
from weft.files.documents import read_documents

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
NODE = "sidecar~10.244.0.1~web-0.shop~shop.svc.cluster.local"


def changes(text):
    return [Change(document.key, document) for document in read_documents(text.encode(), "mesh.yaml").documents]


class Client:
    def __init__(self, channel, namespace="shop"):
        self._call = channel.stream_stream(
            METHOD,
            request_serializer=DeltaDiscoveryRequest.SerializeToString,
            response_deserializer=DeltaDiscoveryResponse.FromString,
        )()
        self._namespace = namespace
        self.labels = {"app": "web"}
        self.kind = "sidecar"

    async def subscribe(self, type_url, *names, had=None):
        request = DeltaDiscoveryRequest(
            type_url=type_url, resource_names_subscribe=names, initial_resource_versions=had or {}
        )
        request.node.id = NODE.replace("sidecar", self.kind)
        request.node.metadata.update({"NAMESPACE": self._namespace, "LABELS": self.labels, "SERVICE_ACCOUNT": "web"})
        await self._call.write(request)

    async def read(self):
        async with asyncio.timeout(30):
            return await self._call.read()

    async def answer(self, response, error=""):
        request = DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        if error:
            request.error_detail.CopyFrom(Status(code=3, message=error))
        await self._call.write(request)

    async def code(self):
        async with asyncio.timeout(30):
            return await self._call.code()

    def cancel(self):
        self._call.cancel()


@contextlib.asynccontextmanager
async def serving(tmp_path, documents=None, only=None):
    plane = ControlPlane()
    if documents is not None:
        plane.apply(changes(documents))
    address = await plane.listen(f"unix:{tmp_path}/xds.sock", only)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield plane, channel
    finally:  # an open server would keep the interpreter from exiting
        await plane.close()
