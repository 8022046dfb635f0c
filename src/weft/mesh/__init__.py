"""The index over the values of `weft.model`: which services, endpoints, routes and policies a proxy sees. Mutable;
owned by the control plane's loop."""
