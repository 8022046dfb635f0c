"""Protobuf messages between kubelet and a CSI driver: the small part of CSI that a driver without a controller, staging
and mounts needs, and kubelet's plugin registration.

Built from descriptors (`base/protobuf_messages.py`), with CSI's own names and numbers. Kubelet is the client of both:

    csi.v1.Identity, csi.v1.Node            volume calls
    pluginregistration.Registration         kubelet reads the driver's name, then reports whether it accepted the driver
"""

from __future__ import annotations

from typing import Any

from weft.base.protobuf_messages import BOOL, MessagePool, field

IDENTITY_SERVICE = "csi.v1.Identity"
NODE_SERVICE = "csi.v1.Node"
REGISTRATION_SERVICE = "pluginregistration.Registration"

_POOL = MessagePool()

Nothing: Any = _POOL.add("csi.v1.Nothing")  # a message without fields, or with none that the driver reads
PluginInfoResponse: Any = _POOL.add("csi.v1.GetPluginInfoResponse", field("name", 1), field("vendor_version", 2))
_POOL.add("csi.v1.BoolValue", field("value", 1, BOOL))  # same wire format as google.protobuf.BoolValue
ProbeResponse: Any = _POOL.add("csi.v1.ProbeResponse", field("ready", 1, "csi.v1.BoolValue"))
NodeInfoResponse: Any = _POOL.add("csi.v1.NodeGetInfoResponse", field("node_id", 1))
PublishRequest: Any = _POOL.add(
    "csi.v1.NodePublishVolumeRequest",
    field("volume_id", 1),
    field("target_path", 4),
    field("readonly", 6, BOOL),
    string_maps={"secrets": 7, "volume_context": 8},
)
UnpublishRequest: Any = _POOL.add("csi.v1.NodeUnpublishVolumeRequest", field("volume_id", 1), field("target_path", 2))
RegisteredPlugin: Any = _POOL.add(
    "pluginregistration.PluginInfo",
    field("type", 1),
    field("name", 2),
    field("endpoint", 3),
    field("supported_versions", 4, repeated=True),
)
RegistrationStatus: Any = _POOL.add(
    "pluginregistration.RegistrationStatus", field("plugin_registered", 1, BOOL), field("error", 2)
)
