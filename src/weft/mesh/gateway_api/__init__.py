"""How the Gateway API's objects combine: routes attached to Services and Gateways become routes and gateways of the
mesh."""
