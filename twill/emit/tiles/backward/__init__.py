"""Tile operations of the backward that all architectures share."""
