"""Emission of the attention backward loop: what all architectures have in common."""
