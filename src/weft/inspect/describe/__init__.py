"""What a mesh makes of a pod, a service or a gateway."""
