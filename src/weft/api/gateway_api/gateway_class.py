"""The Gateway API's GatewayClass: whose Gateways of a class are. Only the controller's name means anything to weft."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.model.gateway_api import CONTROLLER, GatewayClass


def read_gateway_class(root: Fields, meta: Meta) -> tuple[GatewayClass, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    spec.text("description")  # for people
    controller = spec.text("controllerName", required=True, most=253)
    if controller == CONTROLLER:
        spec.refused("parametersRef", "weft has no parameters for a GatewayClass", "remove `parametersRef`")
    else:
        spec.ignored("parametersRef")
        if controller.partition("/")[0] == CONTROLLER.partition("/")[0]:
            what = f"weft does not go by the name `{controller}`: Gateways of this class are served by nobody"
            spec.warning("controllerName", what, f"write {CONTROLLER}")
    return (GatewayClass(meta.name, controller, meta.created, meta.origin),)
