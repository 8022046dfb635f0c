from api.reading import told, value

CLASS = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: x}\nspec:\n"


def test_only_the_controller_is_read():
    found = value(CLASS + "  controllerName: example.com/other\n  description: theirs\n  parametersRef: {name: a}")
    assert (found.name, found.controller) == ("x", "example.com/other")


def test_parameters_of_wefts_gateway_class_are_rejected():
    text = CLASS + "  controllerName: weft.dev/gateway-controller\n  parametersRef: {name: a}"
    assert told(text) == ["6 weft supports no parameters of a GatewayClass (remove `parametersRef`)"]


def test_a_misspelled_controller_name_gets_a_warning():
    assert told(CLASS + "  controllerName: weft.dev/gateway") == [
        "5 warning: weft has no controller `weft.dev/gateway`: Gateways of this class are not served"
        " (write weft.dev/gateway-controller)"
    ]
