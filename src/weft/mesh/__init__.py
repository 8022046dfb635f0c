"""The index over the values of `weft.model`: which services, endpoints, routes and policies a proxy sees. The index
is mutable; only the control plane's event loop uses it."""
