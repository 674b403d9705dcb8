"""What the file of an attention forward kernel says around its roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twill.check import CheckedSchedule
from twill.emit.launch import Launch, launch
from twill.emit.plan import Architecture, Plan, Wording
from twill.emit.printer import launch_lines
from twill.emit.request import AttentionForward, attention_forward
from twill.lower import WarpProgram

__all__ = ["FORWARD", "ForwardArchitecture"]


class _Forward(Wording):
    graph = "attn_fwd"
    frame = "queries"
    stays = "Q"
    load_stays = "load_q"
    masked_by = "row_max"
    masks_one = True
    around = "Q and, below, the number of the next work tile; a slot of Q is a sub-tile"
    order = "keys"

    def title(self, plan: Plan) -> str:
        q = plan.request
        dims = f"head dim {q.head_dim}" + (f", {q.head_dim_v} for V" if q.head_dim_v != q.head_dim else "")
        return f"Attention forward for {plan.architecture.name}, {dims}: {q.rows * q.subtiles} query rows by {q.keys} keys an iteration"

    def tile_shapes(self, plan: Plan) -> str:
        q = plan.request
        return f"head_dim={q.head_dim}, head_dim_v={q.head_dim_v}, keys={q.keys}, subtiles={q.subtiles}"

    def kernel_parameters(self, plan: Plan) -> Iterator[str]:
        yield "    q_tma: cute.CopyAtom, q: cute.Tensor, k_tma: cute.CopyAtom, k: cute.Tensor, v_tma: cute.CopyAtom, v: cute.Tensor,"
        o_tma = "None" if plan.architecture.stores_registers(plan) else "cute.CopyAtom"
        yield f"    o_tma: {o_tma}, o: cute.Tensor, lse: cute.Tensor | None, counter: cute.Tensor | None, batch: cutlass.Int32,"
        yield "    seqlen_q: cutlass.Int32, heads: cutlass.Int32, seqlen_k: cutlass.Int32, kv_heads: cutlass.Int32,"
        yield "    softmax_scale: cutlass.Float32, causal: cutlass.Constexpr, dtype: cutlass.Constexpr,"

    def kernel_begin(self, plan: Plan) -> Iterator[str]:
        yield "    given = tiles.Operands((q_tma, q), (k_tma, k), (v_tma, v), (o_tma, o))"
        yield "    shape = (batch, seqlen_q, heads, seqlen_k, kv_heads)"
        where = "STORAGE, COLUMNS, BARRIERS" if any(s.memory == "tmem" for s in plan.program.storage) else "STORAGE, BARRIERS"
        more = plan.architecture.enter_arguments(plan)
        yield f"    block = tiles.enter(TILES, {where}, causal, dtype, given, lse, counter, shape, softmax_scale{more})"

    def host(self, plan: Plan) -> Iterator[str]:
        yield "@cute.jit"
        yield "def attn_fwd("
        yield "    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: cute.Tensor | None, counter: cute.Tensor | None,"
        yield "    softmax_scale: cutlass.Float32, sm_count: cutlass.Int32, causal: cutlass.Constexpr, stream: cuda.CUstream,"
        yield ") -> None:  # fmt: skip"
        yield '    """O = softmax(Q K^T * softmax_scale) V; all (batch, seq, heads, dim), dim contiguous; lse (batch, heads, seq) or None.'
        yield ""
        taken = "They take work tiles in turn or, given a ``counter``, as they come to need them."
        yield f"    At most ``sm_count`` blocks are launched. {taken}"
        yield "    A counter is one int32 in global memory, 0 before and after, and belongs to one launch at a time."
        yield '    """'
        yield "    given = tiles.operands(TILES, STORAGE, q, k, v, o)"
        yield "    kernel("
        yield "        *given.q, *given.k, *given.v, *given.o, lse, counter, q.shape[0], q.shape[1], q.shape[2], k.shape[1], k.shape[2],"
        yield "        softmax_scale, causal, q.element_type,"
        block, smem = f"({plan.launch.threads}, 1, 1)", "tiles.smem_bytes(STORAGE, BARRIERS)"
        more = plan.architecture.launch_arguments()
        if plan.request.ctas > 1:
            more = (f"cluster=({plan.request.ctas}, 1, 1)", *more)
        yield from launch_lines(["grid=tiles.grid(TILES, q, sm_count)", f"block={block}", f"smem={smem}", *more, "stream=stream"])


FORWARD = _Forward()


class ForwardArchitecture(Architecture):
    """An architecture, for the forward loop. ``policies`` are those of rescaling that it has tile operations for, the usual one last."""

    policies: Sequence[str] = ("always", "conditional")
    wording = FORWARD

    def request(self, checked: CheckedSchedule, program: WarpProgram) -> AttentionForward:
        return attention_forward(checked, self.name, self.rows, self.kinds, self.policies)

    def place(self, request: AttentionForward, program: WarpProgram, checked: CheckedSchedule) -> Launch:
        o_bytes = request.rows * request.subtiles * request.columns_v * 2
        return launch(program, checked.machine, request.subtiles, o_bytes)
