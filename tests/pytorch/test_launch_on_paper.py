"""What a compiled kernel's host function does with operands, seen without a GPU: tensor maps, stream, refusals and time.

The library is a real one; only the CUDA runtime under it is of paper (`paper_cuda.c`). So strides beyond 2^31 elements can be looked at
where nobody has the memory.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NEEDED = [name for name in ("cutlass", "tvm_ffi", "filelock", "torch") if importlib.util.find_spec(name) is None]
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.skipif(bool(NEEDED), reason=f"{', '.join(NEEDED)} is not installed"),
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler"),
]
HERE = Path(__file__).parent
KERNEL = "sm90_attn_fwd_d128"
D = 128
ADDRESS = 1 << 41
STREAM = 0x7700
LIMIT_US = 10.0
"""What of the 20 microseconds of a call is left for what comes after Python; 0.2 were measured, without the driver's part of a launch."""


@dataclass(frozen=True)
class Map:
    """A tensor map as the hardware reads it: sizes, and strides in bytes of all dimensions but the first."""

    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def _decode(words: list[int]) -> Map:
    """Four dimensions. Strides are in units of 16 bytes, 32 bits each and 4 more of each in one word; sizes are less one."""
    low = (words[1] >> 32, words[2] & 0xFFFFFFFF, words[2] >> 32)
    high = tuple(words[3] >> (32 + 4 * n) & 0xF for n in range(3))
    strides = tuple((a | b << 32) * 16 for a, b in zip(low, high, strict=True))
    sizes = (words[4] & 0xFFFFFFFF, words[4] >> 32, words[5] & 0xFFFFFFFF, words[5] >> 32)
    return Map(words[0], tuple(n + 1 for n in sizes), strides)


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Runs calls in a child and gives back a line of output for each."""
    from twill.build.compiler import compiled
    from twill.build.kernelfile import Variant, find, read

    folder = tmp_path_factory.mktemp("paper")
    built = compiled(read(find(KERNEL)), Variant("bf16", False, False), "sm_90a", cache=folder / "cache")
    paper = folder / "paper_cuda.so"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-o", str(paper), str(HERE / "paper_cuda.c")], check=True)
    maps = [int(n) for n in re.findall(r"\.param \.align 64 \.b8 \w+_param_(\d+)\[128\]", built.ptx.read_text())]
    assert len(maps) == 4, "q, k, v and o have a tensor map each"
    names = [name for name in built.kernel.parameters if name not in ("causal", "stream")]
    command = [sys.executable, str(HERE / "paper_launch.py"), str(built.library), str(paper), json.dumps(maps), json.dumps(names)]

    def run(*calls: dict[str, Any]) -> list[str]:
        text = "".join(json.dumps({"stream": STREAM, "sm_count": 132, **call}) + "\n" for call in calls)
        environment = {**os.environ, "LD_PRELOAD": str(paper)}
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


Strides = tuple[int, int, int, int]


def _tensor(batch: int, seqlen: int, heads: int, strides: Strides | None = None, address: int = ADDRESS) -> tuple[Any, ...]:
    packed = (seqlen * heads * D, heads * D, D, 1)
    return address, (batch, seqlen, heads, D), strides or packed


def _call(q: tuple[Any, ...], k: tuple[Any, ...], v: tuple[Any, ...] | None = None) -> dict[str, Any]:
    batch, seqlen, heads, _ = q[1]
    return {"q": q, "k": k, "v": v or k, "o": _tensor(batch, seqlen, heads, address=2 * ADDRESS)}


def _maps(line: str) -> list[Map]:
    words = line.split()
    assert words[0] == "launch", line
    numbers = [int(word, 16) for word in words[7:]]
    return [_decode(numbers[n : n + 8]) for n in range(0, len(numbers), 8)]


S, H = 300, 4
CASES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "contiguous": (_tensor(2, S, H), _tensor(2, 77, H)),
    "shared heads": (_tensor(2, S, H), _tensor(2, S, 2)),
    "heads outside": (_tensor(2, S, H, (H * S * D, D, S * D, 1)), _tensor(2, S, H)),
    "one of three packed": (_tensor(2, S, H, (3 * S * H * D, 3 * H * D, D, 1)), _tensor(2, S, H, (3 * S * H * D, 3 * H * D, D, 1))),
    "batches further apart than 2^31 elements": (_tensor(2, S, H, (2**31 + 64, H * D, D, 1)), _tensor(2, S, H, (2**35 + 8, H * D, D, 1))),
    "strides of almost 2^40 bytes": (_tensor(2, S, H, (2**39 - 8, 2**37 + 16, 2**36 + 8, 1)), _tensor(2, S, H, (2**38, D, 2**34, 1))),
    "heads expanded": (_tensor(2, S, H), _tensor(2, S, H, (S * D, D, 0, 1))),
    "a long sequence": (_tensor(1, 3, H), _tensor(1, 2**31 - 1, H)),
}


@pytest.mark.parametrize("name", CASES)
def test_tensor_maps_are_the_operands(launch: Callable[..., list[str]], name: str) -> None:
    q, k = CASES[name]
    (line,) = launch(_call(q, k))
    call = _call(q, k)
    for found, (address, shape, strides) in zip(_maps(line), (call["q"], call["k"], call["v"], call["o"]), strict=True):
        # dimensions of size 1 have no stride worth the name
        order = (3, 1, 2, 0)
        expected = Map(address, tuple(shape[n] for n in order), tuple(2 * strides[n] for n in order[1:]))
        assert (found.address, found.sizes) == (expected.address, expected.sizes)
        wide = [n for n in range(3) if found.sizes[n + 1] > 1]
        assert [found.strides[n] for n in wide] == [expected.strides[n] for n in wide]


def test_it_goes_to_the_current_stream(launch: Callable[..., list[str]]) -> None:
    call = _call(*CASES["contiguous"])
    lines = launch(call, {**call, "stream": 0xABC0})
    assert [int(line.split()[6]) for line in lines] == [STREAM, 0xABC0]


def test_a_size_of_one_may_have_any_stride(launch: Callable[..., list[str]]) -> None:
    odd = _tensor(1, S, 1, (3, D, 5, 1))
    (line,) = launch(_call(odd, odd))
    assert [m.sizes for m in _maps(line)] == [(D, S, 1, 1)] * 4


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (_tensor(2, S, H, address=ADDRESS + 2), "Misaligned"),
        (_tensor(2, S, H, (S * H * D + 4, H * D, D, 1)), r"strides\[0\]"),
        (_tensor(2, S, H, (S * H * D, H * D + 1, D, 1)), r"strides\[1\]"),
        (_tensor(2, S, H, (S * H * D * 2, H * D * 2, D * 2, 2)), r"strides\[3\]"),
    ],
    ids=["data", "batch", "sequence", "dim"],
)
def test_what_twill_would_copy_the_host_function_would_refuse(launch: Callable[..., list[str]], q: tuple[Any, ...], message: str) -> None:
    """A second line of defence: such operands never reach it."""
    (line,) = launch(_call(q, _tensor(2, S, H)))
    assert line.startswith("error")
    assert re.search(message, line)


def test_what_a_launch_costs_the_host(launch: Callable[..., list[str]]) -> None:
    (line,) = launch({**_call(*CASES["contiguous"]), "time": True})
    assert line.startswith("time ")
    assert float(line.split()[1]) < LIMIT_US
