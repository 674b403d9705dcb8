"""What generated code calls: lane arithmetic that numpy does not spell in one operator."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["NAMESPACE"]

Array = Any
"""32 lanes; numpy's own type says nothing that helps here."""
u8, i8, u16, i16, u32, i32, u64, i64 = np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64
f16, f32, f64, pv = np.float16, np.float32, np.float64, np.bool_
ALL = np.ones(32, pv)
TINY = np.float32(2.0**-126)


def signed(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return ((value & (2 * half - 1)) ^ half) - half


def f32_of(bits: int) -> np.float32:
    return f32(np.array(bits & 0xFFFFFFFF, u32).view(f32)[()])


def f64_of(bits: int) -> np.float64:
    return f64(np.array(bits, u64).view(f64)[()])


def f16_of(bits: int) -> np.float16:
    return f16(np.array(bits & 0xFFFF, u16).view(f16)[()])


def bf16_of(bits: int) -> int:
    return bits & 0xFFFF


def f32x2_of(bits: int) -> Array:
    return np.tile(np.array([bits & 0xFFFFFFFF, bits >> 32], u32).view(f32), 32)


def full32(value: Any, form: Any) -> Array:
    if form is pv:
        return np.full(32, bool(value))
    return np.full(32, value, form)


def spread(value: Any, form: Any, count: int) -> Array:
    """One value in all lanes."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, int) and form is not f32:
        bits = np.dtype(form).itemsize * 8
        return np.full(count, value & ((1 << bits) - 1), f"u{bits // 8}").view(form)
    return np.full(count, value, form)


def widen(value: Array, form: Any, to: Any) -> Array:
    return value.view(form).astype(to)


def join(parts: tuple[Any, ...], part: Any, whole: Any) -> Array:
    out = np.empty((32, len(parts)), part)
    for i, p in enumerate(parts):
        out[:, i] = p
    return out.reshape(-1).view(whole)


def select(p: Any, a: Any, b: Any, form: Any) -> Array:
    if isinstance(p, bool):
        chosen = a if p else b
        return chosen if isinstance(chosen, np.ndarray) else np.full(32, chosen, form)
    if not isinstance(a, np.ndarray):
        a = form(a)
    if not isinstance(b, np.ndarray):
        b = form(b)
    return np.where(p, a, b)


def left(a: Any, n: Any, form: Any, width: int) -> Array:
    a = a if isinstance(a, np.ndarray) else np.full(32, a, form)
    n = np.minimum(n, width) if isinstance(n, np.ndarray) else np.full(32, min(n, width), u32)
    return np.where(n >= width, form(0), a << (n % width).astype(form))


def right(a: Any, n: Any, form: Any, width: int) -> Array:
    a = a if isinstance(a, np.ndarray) else np.full(32, a, form)
    n = np.minimum(n, width) if isinstance(n, np.ndarray) else np.full(32, min(n, width), u32)
    if np.dtype(form).kind == "i":
        return a >> np.minimum(n, width - 1).astype(form)
    return np.where(n >= width, form(0), a >> (n % width).astype(form))


def div_int(a: int, b: int) -> int:
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def rem_int(a: int, b: int) -> int:
    return a - div_int(a, b) * b if b else a


def div_lanes(a: Any, b: Any, form: Any) -> Array:
    x, y = np.broadcast_to(np.asarray(a, form), 32), np.broadcast_to(np.asarray(b, form), 32)
    safe = np.where(y == 0, form(1), y)
    q = (np.abs(x.astype(i64)) // np.abs(safe.astype(i64))) if form is not u64 else x // safe
    if np.dtype(form).kind == "i":
        q = np.where((x < 0) == (safe < 0), q, -q)
    return np.where(y == 0, ~form(0), q.astype(form))


def rem_lanes(a: Any, b: Any, form: Any) -> Array:
    x, y = np.broadcast_to(np.asarray(a, form), 32), np.broadcast_to(np.asarray(b, form), 32)
    return np.where(y == 0, x, x - div_lanes(x, y, form) * y)


def bfe(a: Any, start: Any, length: Any) -> Any:
    if isinstance(a, int) and isinstance(start, int) and isinstance(length, int):
        return (a >> min(start & 255, 32)) & ((1 << min(length & 255, 32)) - 1)
    wide = np.broadcast_to(np.asarray(a, u32), 32).astype(u64)
    size = np.minimum(np.asarray(length, u64) & u64(255), u64(32))
    return ((wide >> (np.asarray(start, u64) & u64(63))) & ((u64(1) << size) - u64(1))).astype(u32)


def popc_int(a: int) -> int:
    return a.bit_count()


def popc_lanes(a: Array) -> Array:
    return np.bitwise_count(a).astype(u32)


def clz_int(a: int) -> int:
    return 32 - (a & 0xFFFFFFFF).bit_length()


def clz_lanes(a: Array) -> Array:
    return np.array([clz_int(int(v)) for v in a], u32)


def bfind_int(a: int) -> int:
    return (a.bit_length() - 1) & 0xFFFFFFFF


def bfind_lanes(a: Array) -> Array:
    return np.array([bfind_int(int(v)) for v in a], u32)


def brev_int(a: int) -> int:
    return int(f"{a:032b}"[::-1], 2)


def brev_lanes(a: Array) -> Array:
    return np.array([brev_int(int(v)) for v in a], u32)


def prmt_int(a: int, b: int, selector: int) -> int:
    source = (a | b << 32).to_bytes(8, "little")
    out = 0
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = source[nibble & 7]
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        out |= byte << (8 * i)
    return out


def prmt_lanes(a: Any, b: Any, selector: Any) -> Array:
    x, y, s = (np.broadcast_to(np.asarray(v, u32), 32) for v in (a, b, selector))
    return np.array([prmt_int(int(p), int(q), int(r)) for p, q, r in zip(x, y, s, strict=True)], u32)


def flush(a: Array) -> Array:
    return np.where(np.abs(a) < TINY, np.copysign(f32(0), a), a)


def saturate(a: Array) -> Array:
    return np.where(np.isnan(a), f32(0), np.clip(a, f32(0), f32(1)))


def fma(a: Any, b: Any, c: Any) -> Array:
    return np.asarray(np.multiply(a, b, dtype=f64) + c, f32)


def directed_add(a: Any, b: Any, mode: str) -> Array:
    return _toward(np.add(a, b, dtype=f64), mode)


def directed_sub(a: Any, b: Any, mode: str) -> Array:
    return _toward(np.subtract(a, b, dtype=f64), mode)


def directed_mul(a: Any, b: Any, mode: str) -> Array:
    return _toward(np.multiply(a, b, dtype=f64), mode)


def _toward(exact: Array, mode: str) -> Array:
    near = exact.astype(f32)
    if mode == "rm" or mode == "rz":
        down = np.where(near > exact, np.nextafter(near, f32(-np.inf)), near)
        if mode == "rm":
            return down
    up = np.where(near < exact, np.nextafter(near, f32(np.inf)), near)
    return up if mode == "rp" else np.where(exact >= 0, down, up)


def ex2(a: Array) -> Array:
    return np.exp2(a)


def lg2(a: Array) -> Array:
    return np.log2(a)


def rcp(a: Array) -> Array:
    return f32(1) / a


def sqrt(a: Array) -> Array:
    return np.sqrt(a)


def rsqrt(a: Array) -> Array:
    return (1 / np.sqrt(a.astype(f64))).astype(f32)


def tanh(a: Array) -> Array:
    return np.tanh(a)


def from_bf16(a: Array) -> Array:
    return (a.astype(u32) << 16).view(f32)


def from_f16(a: Array) -> Array:
    return a.view(f16).astype(f32)


def to_bf16(a: Array) -> Array:
    bits = np.ascontiguousarray(a).view(u32)
    rounded = (bits + (u32(0x7FFF) + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(a), u32(0x7FFF), rounded).astype(u16)


def to_f16(a: Array) -> Array:
    return a.astype(f16).view(u16)


def pack_bf16(high: Array, low: Array) -> Array:
    """Both halves at once: rounded to nearest even, NaN to the canonical one."""
    x, y = high.view(u32), low.view(u32)
    x = x + (u32(0x7FFF) + ((x >> 16) & 1))
    y = y + (u32(0x7FFF) + ((y >> 16) & 1))
    packed = (x & u32(0xFFFF0000)) | (y >> 16)
    if np.isnan(high + low).any():
        packed = to_bf16(high).astype(u32) << 16 | to_bf16(low)
    return packed


def pack_f16(high: Array, low: Array) -> Array:
    return to_f16(high).astype(u32) << 16 | to_f16(low)


def round_int(a: Array, mode: str) -> Array:
    return _toward(a.astype(f64), mode) if mode != "rn" else a.astype(f32)


def to_int(a: Array, mode: str, form: Any) -> Array:
    step = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[mode](a.astype(f64))
    info = np.iinfo(form)
    return np.where(np.isnan(step), 0, np.clip(step, info.min, info.max)).astype(form)


def _halves(a: Array, kind: str) -> tuple[Array, Array]:
    widen_to = from_bf16 if kind == "bf16" else from_f16
    return widen_to((a & u32(0xFFFF)).astype(u16)), widen_to((a >> 16).astype(u16))


def ex2_two(a: Array, kind: str) -> Array:
    low, high = _halves(a, kind)
    return (pack_bf16 if kind == "bf16" else pack_f16)(np.exp2(high), np.exp2(low))


def half_two(operation: str, kind: str, *values: Array) -> Array:
    halves = [_halves(v, kind) for v in values]
    done = []
    for part in (1, 0):
        a, b = halves[0][part], halves[1][part]
        if operation == "fma":
            done.append(fma(a, b, halves[2][part]))
        else:
            done.append({"add": a + b, "sub": a - b, "mul": a * b}[operation])
    return (pack_bf16 if kind == "bf16" else pack_f16)(done[0], done[1])


def vote_any(p: Array, active: Array) -> bool:
    return bool((p & active).any())


def vote_all(p: Array, active: Array) -> bool:
    return bool((p | ~active).all())


def vote_uni(p: Array, active: Array) -> bool:
    return vote_all(p, active) or not vote_any(p, active)


def vote_ballot(p: Array, active: Array) -> int:
    return int(np.packbits(p & active, bitorder="little").view(u32)[0])


def first_of(active: Array) -> Array:
    out = np.zeros(32, pv)
    out[active.argmax()] = True
    return out


def redux(operation: str, a: Array, active: Array) -> int:
    chosen = a[active]
    if operation in ("and", "or", "xor"):
        return int({"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[operation].reduce(chosen))
    return int({"add": np.add, "min": np.minimum, "max": np.maximum}[operation].reduce(chosen))


NAMESPACE: dict[str, Any] = {name: value for name, value in globals().items() if not name.startswith("_") and name != "NAMESPACE"} | {
    "where": np.where, "__builtins__": {"min": min, "max": max, "int": int, "abs": abs, "bool": bool, "__import__": __import__},
}  # fmt: skip
