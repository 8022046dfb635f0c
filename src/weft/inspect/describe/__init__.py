"""Describe a pod, a service or a gateway: the objects that select it, route to it and guard it."""
