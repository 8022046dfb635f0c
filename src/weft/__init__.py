"""weft, a service mesh: Istio's resources, stock Envoy, and an answer to every why."""

__version__ = "0.1.0"
