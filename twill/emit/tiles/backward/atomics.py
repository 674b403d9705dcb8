"""Words in memory by which warps and blocks tell each other how far they are (PTX ISA, memory consistency model)."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T

from twill.emit.tiles.backward.bulk import issue

__all__ = ["add", "clear_words", "count_up", "load", "wait_for_count", "wait_for_turn"]


def _asked(text: str, constraints: str, operands: list[Any]) -> Any:
    word = llvm.inline_asm(
        T.i32(), operands, text, constraints, has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT
    )  # fmt: skip
    return cutlass.Int32(word)


def load(word: Any, space: str = "global") -> Any:
    """A word of global memory, or of SMEM (``shared``), and with it all that whoever stored it had seen before."""
    scope, address = ("gpu", "l") if space == "global" else ("cta", "r")
    return _asked(f"ld.acquire.{scope}.{space}.b32 $0, [$1];", f"=r,{address}", [word.toint().ir_value()])


def _look(word: Any) -> Any:
    """A word of global memory, and nothing else that its writer has seen: unlike `load` it leaves the first cache as it is."""
    return _asked("ld.relaxed.gpu.global.b32 $0, [$1];", "=r,l", [word.toint().ir_value()])


def add(word: Any, value: Any) -> None:
    """Add to a word of global memory; who loads it sees all that this thread has seen."""
    issue("red.release.gpu.global.add.s32 [$0], $1;", "l,r", [word.toint().ir_value(), cutlass.Int32(value).ir_value()])


COUNT = """{
.reg .pred here;
setp.ne.s32 here, $0, 0;
@here red.release.cta.shared::cta.add.u32 [$1], 1;
}"""


def count_up(word: Any, here: Any) -> None:
    """Add 1 to a word of SMEM where ``here`` is not 0; who loads it sees all that the thread has seen. By a predicate, as
    `twill.emit.tiles.backward.bulk.add_to_global` is.
    """
    issue(COUNT, "r,r", [cutlass.Int32(here).ir_value(), word.toint().ir_value()])


def _pause(nanoseconds: int) -> None:
    issue(f"nanosleep.u32 {nanoseconds};", "", [])


@cute.jit
def clear_words(words: cute.Tensor, warp: cutlass.Int32) -> None:
    """Let words of SMEM begin at 0; seen by all warps once they have met."""
    if warp == 0:
        words.fill(0)


@cute.jit
def wait_for_count(word: cutlass.Constexpr, least: cutlass.Int32, nanoseconds: cutlass.Constexpr) -> None:
    """Until a word of SMEM, which only grows, is at least so much."""
    seen = load(word, "shared")
    while seen < least:
        _pause(nanoseconds)
        seen = load(word, "shared")


@cute.jit
def wait_for_turn(word: cutlass.Constexpr, turn: cutlass.Int32, nanoseconds: cutlass.Constexpr) -> None:
    """Until a word of global memory is just so much, and what its writers had seen before is seen."""
    seen = _look(word)
    while seen != turn:
        _pause(nanoseconds)
        seen = _look(word)
    load(word)
