"""Attention for PyTorch: emitted kernels behind a function, an operator and a table of which kernel fits.

``import twill`` offers `attention`, `scaled_dot_product_attention` and `register_kernel`; PyTorch is imported when one of them is first
looked up. A call goes functional -> op -> plan -> library.
"""

from twill.pytorch.catalogue import KernelFile, kernels
from twill.pytorch.errors import AttentionError
from twill.pytorch.functional import attention, register_kernel, scaled_dot_product_attention, unregister_kernel, use_libraries

__all__ = [
    "AttentionError", "KernelFile", "attention", "kernels", "register_kernel", "scaled_dot_product_attention", "unregister_kernel",
    "use_libraries",
]  # fmt: skip
