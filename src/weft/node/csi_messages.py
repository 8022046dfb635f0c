"""The words that kubelet and a driver of volumes have in common: the little of CSI that a driver without a controller,
without staging and without mounts needs, and kubelet's registration of plugins.

Built from descriptors here, in a pool of their own, with CSI's own names and numbers: what is not listed is unknown
fields to us, and stays unread.

    csi.v1.Identity, csi.v1.Node            kubelet asks, the driver answers
    pluginregistration.Registration         kubelet asks who is there, and says whether it was taken
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

IDENTITY_SERVICE = "csi.v1.Identity"
NODE_SERVICE = "csi.v1.Node"
REGISTRATION_SERVICE = "pluginregistration.Registration"

_STRING, _BOOL, _MESSAGE = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_BOOL,
    FieldDescriptorProto.TYPE_MESSAGE,
)
_ONE, _MANY = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED


def _field(name: str, number: int, kind: Any = _STRING, label: Any = _ONE, type_name: str = "") -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, type=kind, label=label, type_name=type_name or None)


def _message(name: str, *fields: FieldDescriptorProto, maps: dict[str, int] | None = None) -> DescriptorProto:
    """`maps`: fields that are maps of strings."""
    made = DescriptorProto(name=name, field=fields)
    for each, number in (maps or {}).items():
        entry = f"{each.title().replace('_', '')}Entry"
        made.nested_type.append(
            DescriptorProto(
                name=entry, field=[_field("key", 1), _field("value", 2)], options=MessageOptions(map_entry=True)
            )
        )
        made.field.append(_field(each, number, _MESSAGE, _MANY, f".csi.v1.{name}.{entry}"))
    return made


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.AddSerializedFile(
        FileDescriptorProto(
            name="csi.proto",
            package="csi.v1",
            syntax="proto3",
            message_type=[
                _message("Nothing"),
                _message("GetPluginInfoResponse", _field("name", 1), _field("vendor_version", 2)),
                _message("BoolValue", _field("value", 1, _BOOL)),  # google.protobuf.BoolValue, on the wire
                _message("ProbeResponse", _field("ready", 1, _MESSAGE, type_name=".csi.v1.BoolValue")),
                _message("NodeGetInfoResponse", _field("node_id", 1)),
                _message(
                    "NodePublishVolumeRequest",
                    _field("volume_id", 1),
                    _field("target_path", 4),
                    _field("readonly", 6, _BOOL),
                    maps={"secrets": 7, "volume_context": 8},
                ),
                _message("NodeUnpublishVolumeRequest", _field("volume_id", 1), _field("target_path", 2)),
            ],
        ).SerializeToString()
    )
    pool.AddSerializedFile(
        FileDescriptorProto(
            name="pluginregistration.proto",
            package="pluginregistration",
            syntax="proto3",
            message_type=[
                _message(
                    "PluginInfo",
                    _field("type", 1),
                    _field("name", 2),
                    _field("endpoint", 3),
                    _field("supported_versions", 4, label=_MANY),
                ),
                _message("RegistrationStatus", _field("plugin_registered", 1, _BOOL), _field("error", 2)),
            ],
        ).SerializeToString()
    )
    return pool


_POOL = _pool()


def _class(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(name))


Nothing: Any = _class("csi.v1.Nothing")  # what is asked or answered with no field, or none of ours
PluginInfoResponse: Any = _class("csi.v1.GetPluginInfoResponse")
ProbeResponse: Any = _class("csi.v1.ProbeResponse")
NodeInfoResponse: Any = _class("csi.v1.NodeGetInfoResponse")
PublishRequest: Any = _class("csi.v1.NodePublishVolumeRequest")
UnpublishRequest: Any = _class("csi.v1.NodeUnpublishVolumeRequest")
RegisteredPlugin: Any = _class("pluginregistration.PluginInfo")
RegistrationStatus: Any = _class("pluginregistration.RegistrationStatus")
