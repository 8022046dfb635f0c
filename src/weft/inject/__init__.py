"""Sidecar injection: returns a pod with its proxy added, or the reason why the pod gets none."""
