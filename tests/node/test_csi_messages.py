"""The encoding is CSI's own: field numbers and types of csi.proto and of kubelet's registration, written by hand."""

from __future__ import annotations

from weft.node import csi_messages as messages


def text(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def entry(number: int, key: bytes, value: bytes) -> bytes:
    return text(number, text(1, key) + text(2, value))


def test_a_publish_request_of_kubelets_is_read_and_what_is_not_ours_is_passed_over():
    payload = (
        text(1, b"csi-1")
        + entry(2, b"publish", b"context")
        + text(3, b"/staging")
        + text(4, b"/target")
        + text(5, text(2, b""))  # the capability: mount
        + bytes([6 << 3, 1])
        + entry(7, b"secret", b"s")
        + entry(8, b"csi.storage.k8s.io/pod.name", b"web-0")
    )
    request = messages.PublishRequest.FromString(payload)
    assert (request.volume_id, request.target_path, request.readonly) == ("csi-1", "/target", True)
    assert dict(request.secrets) == {"secret": "s"}
    assert dict(request.volume_context) == {"csi.storage.k8s.io/pod.name": "web-0"}


def test_an_unpublish_request():
    request = messages.UnpublishRequest.FromString(text(1, b"csi-1") + text(2, b"/target"))
    assert (request.volume_id, request.target_path) == ("csi-1", "/target")


def test_messages_sent_to_kubelet_are_encoded_as_in_csi():
    assert messages.PluginInfoResponse(name="n", vendor_version="1").SerializeToString() == text(1, b"n") + text(
        2, b"1"
    )
    assert messages.NodeInfoResponse(node_id="w").SerializeToString() == text(1, b"w")
    assert messages.ProbeResponse(ready={"value": True}).SerializeToString() == text(1, b"\x08\x01")
    plugin = messages.RegisteredPlugin(type="CSIPlugin", name="n", endpoint="/e", supported_versions=["1.0.0", "1"])
    assert plugin.SerializeToString() == b"".join(
        (text(1, b"CSIPlugin"), text(2, b"n"), text(3, b"/e"), text(4, b"1.0.0"), text(4, b"1"))
    )


def test_a_registration_status_of_kubelet_is_read():
    status = messages.RegistrationStatus.FromString(text(2, b"not today"))
    assert (status.plugin_registered, status.error) == (False, "not today")
    assert messages.RegistrationStatus.FromString(b"\x08\x01").plugin_registered
