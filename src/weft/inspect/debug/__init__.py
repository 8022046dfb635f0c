"""Istio's debug pages over HTTP, a Unix socket and xDS, for istioctl and weft's own commands."""
