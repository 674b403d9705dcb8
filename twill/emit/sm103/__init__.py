"""Blackwell Ultra (sm_103a): what it has beyond `twill.emit.sm100`, a load of tensor memory that also says the largest value.

No GPU has run it.
"""
