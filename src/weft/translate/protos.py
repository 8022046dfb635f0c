"""Small messages that every other room needs: addresses, durations, packed messages, where to fetch a resource."""

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
    """Map entries in a fixed order: equal content must be equal bytes."""
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
    """Of an IP address, a host name, or a Unix socket (`unix:///path`, whose port means nothing)."""
    result = Address()
    if host.startswith("unix://"):
        result.pipe.path = host.removeprefix("unix://")
    else:
        result.socket_address.address = host
        result.socket_address.port_value = port
    return result


@lru_cache(maxsize=1)
def from_control_plane() -> ConfigSource:
    """Over the aggregated stream, and waited for without a limit: half a config is worse than a late one."""
    result = ConfigSource(resource_api_version=ApiVersion.V3)
    result.ads.SetInParent()
    result.initial_fetch_timeout.SetInParent()
    return result
