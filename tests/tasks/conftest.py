"""The tasks of Istio's documentation as tests: one test for each page, named after the page, with the page's resources
written for these applications. Each module has one mesh; see `e2e/conftest.py`."""

from e2e.conftest import mesh, run_base, whole_mesh

__all__ = ["mesh", "run_base", "whole_mesh"]
