"""What the file of an attention backward kernel says around its roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twill.emit.plan import Helper, Plan, Wording
from twill.emit.printer import launch_lines

__all__ = ["BACKWARD"]


TURNS = "tiles.start_turns(block)"


def _of_order(name: str, call: str, does: str) -> Helper:
    """A warp that keeps the order of additions to dQ."""
    return Helper(
        name,
        (
            f'"""1 warp beside those of the schedule: {does}."""',
            f"turn, over = {TURNS}, tiles.counting()",
            "number = tiles.first(block, turn)",
            "while number < block.work_tiles:",
            f"    tiles.{call}(block, turn, number, over)",
            "    number = tiles.following(block, turn, number)",
        ),
    )


HELPERS = (
    _of_order("count_dq", "count_work", "says of additions to dQ that they are over, to blocks whose turn is next"),
    _of_order("order_dq", "keep_turns", "lets additions to dQ go when their turn has come"),
)


class _Backward(Wording):
    graph = "attn_bwd"
    frame = "keys"
    stays = "keys and values"
    load_stays = "load_keys"
    masked_by = "exp2"
    masks_one = False
    around = "keys and values, the number of the next work tile, and where warps meet"
    order = "queries"
    helped = "deterministic"
    turns = TURNS

    @property
    def helpers(self) -> Sequence[Helper]:
        return HELPERS

    def title(self, plan: Plan) -> str:
        q = plan.request
        dims = f"head dim {q.head_dim}" + (f", {q.head_dim_v} for V" if q.head_dim_v != q.head_dim else "")
        return f"Attention backward for {plan.architecture.name}, {dims}: {q.queries} query rows an iteration by {q.keys} keys"

    def tile_shapes(self, plan: Plan) -> str:
        q = plan.request
        shapes = f"head_dim={q.head_dim}, head_dim_v={q.head_dim_v}, queries={q.queries}, keys={q.keys}, subtiles={q.subtiles}"
        return f'{shapes}, parts={q.parts}, divides="{q.divides}"'

    def kernel_parameters(self, plan: Plan) -> Iterator[str]:
        yield "    q_tma: cute.CopyAtom, q: cute.Tensor, k_tma: cute.CopyAtom, k: cute.Tensor, v_tma: cute.CopyAtom, v: cute.Tensor,"
        yield "    do_tma: cute.CopyAtom, do: cute.Tensor, dk_tma: None, dk: cute.Tensor, dv_tma: cute.CopyAtom, dv: cute.Tensor,"
        yield "    workspace: cute.Tensor, counter: cute.Tensor | None, batch: cutlass.Int32, seqlen_q: cutlass.Int32,"
        yield "    heads: cutlass.Int32, seqlen_k: cutlass.Int32, kv_heads: cutlass.Int32, softmax_scale: cutlass.Float32,"
        yield "    causal: cutlass.Constexpr, deterministic: cutlass.Constexpr, dtype: cutlass.Constexpr,"

    def kernel_begin(self, plan: Plan) -> Iterator[str]:
        yield "    given = tiles.Operands((q_tma, q), (k_tma, k), (v_tma, v), (do_tma, do), (dk_tma, dk), (dv_tma, dv))"
        yield "    shape = (batch, seqlen_q, heads, seqlen_k, kv_heads)"
        yield "    block = tiles.enter("
        yield "        TILES, STORAGE, BARRIERS, causal, deterministic, dtype, given, workspace, counter, shape, softmax_scale,"
        yield "    )  # fmt: skip"

    def host(self, plan: Plan) -> Iterator[str]:
        yield "@cute.jit"
        yield "def attn_bwd("
        yield "    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, do: cute.Tensor, lse: cute.Tensor, dq: cute.Tensor,"
        yield "    dk: cute.Tensor, dv: cute.Tensor, workspace: cute.Tensor, counter: cute.Tensor | None, softmax_scale: cutlass.Float32,"
        yield "    sm_count: cutlass.Int32, causal: cutlass.Constexpr, deterministic: cutlass.Constexpr, stream: cuda.CUstream,"
        yield ") -> None:  # fmt: skip"
        yield '    """dQ, dK and dV of O = softmax(Q K^T * softmax_scale) V for dO.'
        yield ""
        yield "    All (batch, seq, heads, dim), dim contiguous; lse (batch, heads, seq). Three kernels: row sums of O * dO and a cleared"
        yield "    sum for dQ go into ``workspace`` (fp32, at least `tiles.workspace_words`), the loop makes dK and dV and adds to that"
        yield "    sum, and the last one makes dQ of it. At most ``sm_count`` blocks run the loop. They take work tiles in turn or, given"
        yield "    a ``counter``, as they come to need them. A counter is one int32 in global memory, 0 before and after; it and the"
        yield "    workspace belong to one launch at a time. ``deterministic`` gradients are the same to the bit in every run: for that,"
        yield "    blocks wait for each other, so that without a counter all of them have to run at once."
        yield '    """'
        yield "    tiles.preprocess(TILES, q, k, o, do, lse, workspace, deterministic, stream)"
        yield "    given = tiles.operands(TILES, STORAGE, q, k, v, do, dk, dv)"
        yield "    kernel("
        yield "        *given.q, *given.k, *given.v, *given.do, *given.dk, *given.dv, workspace, counter, q.shape[0], q.shape[1],"
        yield "        q.shape[2], k.shape[1], k.shape[2], softmax_scale, causal, deterministic, q.element_type,"
        block, smem = f"({plan.launch.threads}, 1, 1)", "tiles.smem_bytes(STORAGE, BARRIERS)"
        more = plan.architecture.launch_arguments()
        yield from launch_lines(["grid=tiles.grid(TILES, k, sm_count)", f"block={block}", f"smem={smem}", *more, "stream=stream"])
        yield "    tiles.postprocess(TILES, q, k, dq, workspace, softmax_scale, stream)"


BACKWARD = _Backward()
