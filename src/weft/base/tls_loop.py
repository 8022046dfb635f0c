"""An event loop whose outgoing TLS connections need little memory. The loop affects connections that a library opens
with the loop's `create_connection`, such as the dozens of watches of a Kubernetes API server. `tls_transport.py`
explains how the memory is saved."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from weft.base.tls_transport import connect_tls

_HANDSHAKE_SECONDS = 60.0  # asyncio's own default


class TlsEventLoop(asyncio.SelectorEventLoop):
    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, Any]:
        """Open a connection as asyncio's method does, with the same options, except that `ssl_shutdown_timeout` has
        no effect: a closed connection does not wait for the peer's close_notify."""
        context = options.get("ssl")
        if not isinstance(context, ssl.SSLContext):
            return await super().create_connection(protocol_factory, host, port, **options)
        options.pop("ssl")
        options.pop("ssl_shutdown_timeout", None)
        name = options.pop("server_hostname", None)
        if name is None and not host:
            raise ValueError("server_hostname is needed for TLS on a socket that is connected already")
        seconds = options.pop("ssl_handshake_timeout", None) or _HANDSHAKE_SECONDS
        protocol = cast(asyncio.Protocol, protocol_factory())
        transport = await connect_tls(
            protocol,
            lambda factory: super(TlsEventLoop, self).create_connection(factory, host, port, **options),
            context,
            server_hostname=host if name is None else name or None,
            handshake_seconds=seconds,
        )
        return transport, protocol
