"""What weft is on a cluster, as objects: values come in, manifests leave. Pure; `kube` is who applies them."""
