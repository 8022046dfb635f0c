"""Whole meshes: real Envoy, real namespaces, real requests."""
