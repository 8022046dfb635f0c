"""Reads the Gateway API's GatewayClass: the name of the controller that serves the Gateways of the class."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.model.gateway_api import CONTROLLER, GatewayClass


def read_gateway_class(root: Fields, meta: Meta) -> tuple[GatewayClass, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    spec.text("description")  # a valid field without effect
    controller = spec.text("controllerName", required=True, most=253)
    if controller == CONTROLLER:
        spec.refused("parametersRef", "weft supports no parameters of a GatewayClass", "remove `parametersRef`")
    else:
        spec.ignored("parametersRef")
        if controller.partition("/")[0] == CONTROLLER.partition("/")[0]:
            what = f"weft has no controller `{controller}`: Gateways of this class are not served"
            spec.warning("controllerName", what, f"write {CONTROLLER}")
    return (GatewayClass(meta.name, controller, meta.created, meta.origin),)
