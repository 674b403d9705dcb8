"""Optimal software pipelines and warp specialization for GPU attention kernels.

The functions for PyTorch are looked up when they are first used: the solver and the command line never import PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["attention", "register_kernel", "scaled_dot_product_attention"]

if TYPE_CHECKING:
    from twill.pytorch import attention, register_kernel, scaled_dot_product_attention
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            import twill.pytorch
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(f"twill.{name} needs PyTorch: install 'twill-gpu[kernels]'", name="torch") from None

        found = getattr(twill.pytorch, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
