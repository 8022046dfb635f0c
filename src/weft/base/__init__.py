"""The lowest package: problems, back-off, suggestions, logging, HTTP and TLS helpers. It contains nothing about
meshes, and all other packages may import it."""
