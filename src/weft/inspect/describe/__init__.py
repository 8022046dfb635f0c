"""Describe a pod, a service or a gateway: what selects it, routes to it and guards it."""
