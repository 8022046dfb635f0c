"""Translates the mesh, as one group of proxies sees it, to Envoy's resources. Pure functions: equal views give equal
bytes."""
