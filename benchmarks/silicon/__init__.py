"""Kernels and planted faults on a GPU, beside the emulator: what `benchmarks.emulate_silicon` is made of."""
