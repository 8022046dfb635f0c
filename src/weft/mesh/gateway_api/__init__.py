"""Combines the Gateway API's objects: routes attached to Services and Gateways become routes and gateways of the
mesh."""
