"""Protobuf messages without generated code: fields and names come in, message classes leave.

Each `MessagePool` is one of its own, so messages of the same name elsewhere in the process do not collide. A message
lists only the fields that weft reads or writes; all others are unknown fields, and stay unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

STRING = FieldDescriptorProto.TYPE_STRING
BOOL = FieldDescriptorProto.TYPE_BOOL
INT64 = FieldDescriptorProto.TYPE_INT64


def field(
    name: str, number: int, kind: FieldDescriptorProto.Type.ValueType | str = STRING, *, repeated: bool = False
) -> FieldDescriptorProto:
    """`kind`: a scalar type, or the full name of a message."""
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    made = FieldDescriptorProto(name=name, number=number, label=label)
    if isinstance(kind, str):
        made.type, made.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{kind}"
    else:
        made.type = kind
    return made


class MessagePool:
    def __init__(self, *dependencies: FileDescriptor) -> None:
        """`dependencies`: files whose messages are named in fields."""
        self._pool = DescriptorPool()
        self._dependencies = [each.name for each in dependencies]
        for each in dependencies:
            self._pool.AddSerializedFile(each.serialized_pb)

    def add(self, full_name: str, *fields: FieldDescriptorProto, string_maps: Mapping[str, int] | None = None) -> Any:
        """The class of a new message, `PACKAGE.NAME`. `string_maps`: numbers of fields that are maps of strings."""
        package, _, name = full_name.rpartition(".")
        made = DescriptorProto(name=name, field=fields)
        for each, number in (string_maps or {}).items():
            entry = f"{each.title().replace('_', '')}Entry"
            pair = [field("key", 1), field("value", 2)]
            made.nested_type.append(DescriptorProto(name=entry, field=pair, options=MessageOptions(map_entry=True)))
            made.field.append(field(each, number, f"{full_name}.{entry}", repeated=True))
        file = FileDescriptorProto(
            name=f"{full_name}.proto",
            package=package,
            syntax="proto3",
            dependency=self._dependencies,
            message_type=[made],
        )
        self._dependencies.append(file.name)
        self._pool.AddSerializedFile(file.SerializeToString())
        return GetMessageClass(self._pool.FindMessageTypeByName(full_name))
