"""Measurements and generated tables: run each as ``python -m benchmarks.NAME`` from the top of the repository."""
