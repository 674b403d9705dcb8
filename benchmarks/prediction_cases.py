"""Legal schedules of attention forward at head dim 128 on Hopper, good ones and worse ones by design, to predict and then to measure."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CASES", "HEAD_DIM"]

HEAD_DIM = 128

CASES: Mapping[str, tuple[str, ...]] = {
    "128x128, always": ("--tile", "128x128", "--subtiles", "2", "--set", "rescale=always"),
    "128x128, conditional": ("--tile", "128x128", "--subtiles", "2", "--set", "rescale=conditional"),
    "128x128, one copy": ("--tile", "128x128", "--subtiles", "2", "--set", "rescale=always", "--max-copies", "1"),
    "128x64, always": ("--tile", "128x64", "--subtiles", "2", "--set", "rescale=always"),
    "128x96, always": ("--tile", "128x96", "--subtiles", "2", "--set", "rescale=always"),
    "128x160, always": ("--tile", "128x160", "--subtiles", "2", "--set", "rescale=always"),
    "64x128, always": ("--tile", "64x128", "--subtiles", "1", "--set", "rescale=always"),
    "192x80, always": ("--tile", "192x80", "--subtiles", "3", "--set", "rescale=always"),
    "192x80, conditional": ("--tile", "192x80", "--subtiles", "3", "--set", "rescale=conditional"),
    "192x80, one copy": ("--tile", "192x80", "--subtiles", "3", "--set", "rescale=conditional", "--max-copies", "1"),
    "192x64, conditional": ("--tile", "192x64", "--subtiles", "3", "--set", "rescale=conditional"),
    "192x48, conditional": ("--tile", "192x48", "--subtiles", "3", "--set", "rescale=conditional"),
    "128x112, always": ("--tile", "128x112", "--subtiles", "2", "--set", "rescale=always"),
    "128x192, always": ("--tile", "128x192", "--subtiles", "2", "--set", "rescale=always"),
    "128x128, conditional, one copy": ("--tile", "128x128", "--subtiles", "2", "--set", "rescale=conditional", "--max-copies", "1"),
    "128x80, one copy": ("--tile", "128x80", "--subtiles", "2", "--set", "rescale=conditional", "--max-copies", "1"),
    "192x48, one copy": ("--tile", "192x48", "--subtiles", "3", "--set", "rescale=conditional", "--max-copies", "1"),
    "128x64, one copy": ("--tile", "128x64", "--subtiles", "2", "--set", "rescale=conditional", "--max-copies", "1"),
    "192x48, always": ("--tile", "192x48", "--subtiles", "3", "--set", "rescale=always"),
    "128x80, always": ("--tile", "128x80", "--subtiles", "2", "--set", "rescale=always"),
    "128x80, conditional": ("--tile", "128x80", "--subtiles", "2", "--set", "rescale=conditional"),
    "128x48, always": ("--tile", "128x48", "--subtiles", "2", "--set", "rescale=always"),
    "128x48, one copy": ("--tile", "128x48", "--subtiles", "2", "--set", "rescale=conditional", "--max-copies", "1"),
    "128x144, conditional": ("--tile", "128x144", "--subtiles", "2", "--set", "rescale=conditional"),
    "128x176, conditional": ("--tile", "128x176", "--subtiles", "2", "--set", "rescale=conditional"),
    "128x32, conditional": ("--tile", "128x32", "--subtiles", "2", "--set", "rescale=conditional"),
    "192x32, conditional": ("--tile", "192x32", "--subtiles", "3", "--set", "rescale=conditional"),
}
"""What `twill solve --arch sm90 attn_fwd --head-dim 128` is told beside that. One copy: nothing of the next iteration is begun early."""
