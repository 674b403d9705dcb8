"""What tile operations of all architectures share: work tiles, rings of barriers, TMA loads, and a block's view of its operands.

Needs ``nvidia-cutlass-dsl``. Emitted kernels import the tile library of their architecture, which is built from these modules.
"""
