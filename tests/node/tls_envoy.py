"""An Envoy with one mTLS listener and certificates from SDS; its config is hand-written, so that it needs no
translation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import uuid

from cryptography import x509

from eventually import eventually
from weft.envoy import binary
from weft.envoy.admin import Admin
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix, render
from weft.model.proxy import PROXY_GID, PROXY_UID, SDS_CLUSTER
from weft.netns import namespace as netns
from weft.netns.process import Spawn, end, spawn
from weft.netns.view import Laid, View

PORT = 8443
_TYPES = "type.googleapis.com/envoy.extensions"


def sds(name: str) -> dict:
    service = {
        "envoy_grpc": {
            "cluster_name": SDS_CLUSTER,
            "retry_policy": {"retry_back_off": {"base_interval": "0.1s", "max_interval": "1s"}},
        }
    }
    source = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [service],
    }
    config = {"resource_api_version": "V3", "initial_fetch_timeout": "0s", "api_config_source": source}
    return {"name": name, "sds_config": config}


def document(sds_path: str) -> dict:
    node = BootstrapNode(name="web-0", namespace="shop", addresses=("127.0.0.1",))
    made = json.loads(render(Bootstrap(node=node, xds=Unix("/nowhere"), sds=Unix(sds_path))))
    del made["dynamic_resources"]
    tls = {
        "@type": f"{_TYPES}.transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": True,
        "common_tls_context": {
            "tls_certificate_sds_secret_configs": [sds("default")],
            "combined_validation_context": {
                "default_validation_context": {},
                "validation_context_sds_secret_config": sds("ROOTCA"),
            },
        },
    }
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"},
            }
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "test",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "ok"}}}
                    ],
                }
            ]
        },
    }
    listener = {
        "name": "tls",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": PORT}},
        "filter_chains": [
            {
                "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
                "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
            }
        ],
    }
    made["static_resources"]["listeners"] = [listener]
    return made


@contextlib.contextmanager
def pod_network():
    made = netns.make(f"weft-sds-{uuid.uuid4().hex[:8]}")
    subprocess.run(["ip", "-n", made.name, "link", "set", "lo", "up"], check=True)
    try:
        yield made
    finally:
        netns.delete(made)


@contextlib.asynccontextmanager
async def tls_envoy(directory, sds_path, where, *, log_level="warning", volume=None):
    """Yield (admin, process, path of its log). `volume` is mounted over the socket's directory."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    file, log_file = directory / "envoy.json", directory / "envoy.log"
    file.write_text(json.dumps(document(str(sds_path))))
    argv = (str(binary.find()), "--config-path", str(file), "--concurrency", "1", "--disable-hot-restart")
    with log_file.open("ab") as log:
        process = await spawn(
            Spawn(
                argv=(*argv, "--log-level", log_level),
                namespace=where,
                uid=PROXY_UID,
                gid=PROXY_GID,
                view=View(
                    visible=(str(binary.find().parent), str(directory), str(sds_path.parent)),
                    files=(Laid(str(volume), str(sds_path.parent)),) if volume is not None else (),
                ),
                core_dumps=False,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        )
    admin = Admin(lambda: netns.socket_in(where), name="Envoy web-0")
    try:
        yield admin, process, log_file
    finally:
        await admin.close()
        await end(process)


class Connection:
    """One mTLS connection to the Envoy, kept for several requests."""

    def __init__(self, reader, writer) -> None:
        self._reader, self._writer = reader, writer
        secured = writer.get_extra_info("ssl_object")
        self.certificate = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True))

    @property
    def serial(self) -> str:
        return f"{self.certificate.serial_number:x}"

    async def get(self) -> int:
        self._writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(30):
            head = await self._reader.readuntil(b"\r\n\r\n")
            assert await self._reader.readexactly(2) == b"ok"
        return int(head.split()[1])

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()


async def connect(where, context: ssl.SSLContext) -> Connection:
    made: socket.socket = netns.socket_in(where)
    try:
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", PORT))
        return Connection(*await asyncio.open_connection(sock=made, ssl=context, server_hostname="web"))
    except BaseException:
        made.close()
        raise


async def until_served(where, context, seconds=20):
    return await eventually(lambda: connect(where, context), limit=seconds, retry=OSError)
