"""Commands that install weft on Kubernetes: install, upgrade, uninstall, manifest, crds, precheck."""
