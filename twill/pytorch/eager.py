"""Whether a call may go past PyTorch's dispatcher.

An operator written in Python costs the host more than allocating a result does. Whoever looks at operators, a compiler, a tracer, a mode, a
transform, the profiler or a subclass of tensors, finds one all the same: a call goes straight to the kernel where none of them is about.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import _get_tracing_state, _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import profiler

__all__ = ["nothing_looks_on", "wants_gradients"]


def wants_gradients(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the result has to be differentiable."""
    return bool(torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad))


def nothing_looks_on(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether all three are plain tensors with memory, and nothing is active that would want to see an operator.

    Not to be asked while ``torch.compiler.is_compiling()``: what it asks PyTorch is nothing that Dynamo follows.
    """
    return (
        type(q) is Tensor
        and type(k) is Tensor
        and type(v) is Tensor
        and not q.is_meta
        and not _len_torch_dispatch_stack()
        and not _len_torch_function_stack()
        and peek_interpreter_stack() is None
        and _get_tracing_state() is None
        and not profiler._is_profiler_enabled
    )
