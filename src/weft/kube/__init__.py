"""Kubernetes' API, and nothing else speaks to it: where it is, what is watched there, what is written back."""
