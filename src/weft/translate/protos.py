"""Builds small protobuf messages that other modules need: addresses, durations, packed messages, config sources."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

from envoy.config.core.v3.address_pb2 import Address
from envoy.config.core.v3.config_source_pb2 import ApiVersion, ConfigSource
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message


def packed(message: Message) -> Any:
    """Pack a message into an Any, with map entries in a fixed order, so that equal messages give equal bytes."""
    result = Any()
    result.Pack(message, deterministic=True)
    return result


def extension(name: str, message: Message) -> TypedExtensionConfig:
    return TypedExtensionConfig(name=name, typed_config=packed(message))


def duration(value: timedelta) -> Duration:
    result = Duration()
    result.FromTimedelta(value)
    return result


def socket_address(host: str, port: int) -> Address:
    """Return Envoy's address for an IP address, a host name, or a Unix socket (`unix:///path`; the port is ignored)."""
    result = Address()
    if host.startswith("unix://"):
        result.pipe.path = host.removeprefix("unix://")
    else:
        result.socket_address.address = host
        result.socket_address.port_value = port
    return result


@lru_cache(maxsize=1)
def from_control_plane() -> ConfigSource:
    """Return the ADS config source without an initial fetch timeout: incomplete config is worse than late config."""
    result = ConfigSource(resource_api_version=ApiVersion.V3)
    result.ads.SetInParent()
    result.initial_fetch_timeout.SetInParent()
    return result
