"""The control plane: objects come in, the mesh follows, and every group of proxies is sent what changed for it."""
