"""Creates protobuf message classes at run time, without generated code. Input: names and fields. Output: message
classes.

Each `MessagePool` has its own descriptor pool, so its messages do not collide with messages of the same name
elsewhere in the process. A message declares only the fields that weft reads or writes; all other fields are unknown
fields and are not read.
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
    """Return the descriptor of a field with this name and number. `kind`: a scalar type, or the full name of a message
    type. `repeated`: whether it is a list."""
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    descriptor = FieldDescriptorProto(name=name, number=number, label=label)
    if isinstance(kind, str):
        descriptor.type, descriptor.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{kind}"
    else:
        descriptor.type = kind
    return descriptor


class MessagePool:
    def __init__(self, *dependencies: FileDescriptor) -> None:
        """`dependencies`: the files with the message types that fields refer to."""
        self._pool = DescriptorPool()
        self._dependencies = [each.name for each in dependencies]
        for each in dependencies:
            self._pool.AddSerializedFile(each.serialized_pb)

    def add(self, full_name: str, *fields: FieldDescriptorProto, string_maps: Mapping[str, int] | None = None) -> Any:
        """Add a message type with these fields and return its class. `full_name`: PACKAGE.NAME. `string_maps`: names
        and numbers of further fields, which are maps from strings to strings."""
        package, _, name = full_name.rpartition(".")
        message = DescriptorProto(name=name, field=fields)
        for each, number in (string_maps or {}).items():
            entry = f"{each.title().replace('_', '')}Entry"
            pair = [field("key", 1), field("value", 2)]
            message.nested_type.append(DescriptorProto(name=entry, field=pair, options=MessageOptions(map_entry=True)))
            message.field.append(field(each, number, f"{full_name}.{entry}", repeated=True))
        file = FileDescriptorProto(
            name=f"{full_name}.proto",
            package=package,
            syntax="proto3",
            dependency=self._dependencies,
            message_type=[message],
        )
        self._dependencies.append(file.name)
        self._pool.AddSerializedFile(file.SerializeToString())
        return GetMessageClass(self._pool.FindMessageTypeByName(full_name))
