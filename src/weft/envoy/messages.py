"""Writes Envoy's messages as JSON, with the fields that Envoy has and the package xds-protos lacks.

Protobuf keeps fields that a message class lacks, but writes them to no JSON. So `as_dict` parses the bytes with classes
of a second descriptor pool, which has these fields and takes everything else from the default pool.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_FILE, _MESSAGE = "envoy/config/core/v3/protocol.proto", "Http2ProtocolOptions"
_LACKING = {"stream_reset_burst": 21, "stream_reset_rate": 22}  # since Envoy 1.39; of type UInt64Value


def as_dict(message: Message) -> dict[str, Any]:
    """Return a message as JSON with Envoy's names."""
    pool = _pool()
    extended = GetMessageClass(pool.FindMessageTypeByName(message.DESCRIPTOR.full_name))()
    extended.ParseFromString(message.SerializeToString())
    result: dict[str, Any] = MessageToDict(extended, preserving_proto_field_name=True, descriptor_pool=pool)
    return result


class _Database:
    """The files of the default pool, in the interface that a descriptor pool loads files from."""

    def FindFileByName(self, name: str) -> FileDescriptorProto:  # noqa: N802 (protobuf's name)
        return self._file(descriptor_pool.Default().FindFileByName(name))

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptorProto:  # noqa: N802 (protobuf's name)
        return self._file(descriptor_pool.Default().FindFileContainingSymbol(symbol))

    def _file(self, found: Any) -> FileDescriptorProto:
        result = FileDescriptorProto()
        found.CopyToProto(result)
        if result.name == _FILE:
            (options,) = (each for each in result.message_type if each.name == _MESSAGE)
            known = {field.name for field in options.field}
            for name, number in _LACKING.items():
                if name not in known:
                    options.field.add(
                        name=name,
                        number=number,
                        label=FieldDescriptorProto.LABEL_OPTIONAL,
                        type=FieldDescriptorProto.TYPE_MESSAGE,
                        type_name=".google.protobuf.UInt64Value",
                    )
        return result


@lru_cache(maxsize=1)
def _pool() -> descriptor_pool.DescriptorPool:
    return descriptor_pool.DescriptorPool(_Database())
