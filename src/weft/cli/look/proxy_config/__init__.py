"""`weft proxy-config`: the configuration of a pod's Envoy as tables, JSON or YAML."""
