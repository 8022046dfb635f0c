"""Kubernetes manifests of weft: turns installation values into the objects to apply. Pure functions; the package `kube`
applies the objects."""
