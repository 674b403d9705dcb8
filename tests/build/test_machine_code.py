"""Real machine code: every shipped kernel passes, and whatever is done to it is noticed. Needs the extra 'kernels', no GPU."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from twill.build import LintError, Variant, library
from twill.build.compiler import Compiled, compiled
from twill.build.flow import Flow
from twill.build.kernelfile import ARCHITECTURES, find, names, read
from twill.build.program import program_of, shipped_schedule
from twill.build.report import Report, examined, reported
from twill.build.roles import seats
from twill.build.sass import parse
from twill.build.tools import disassembled
from twill.check import checked
from twill.cli.files import read_schedule
from twill.cli.request import machine_of_schedule
from twill.emit.emitter import emit
from twill.lower import lower

INSTALLED = all(importlib.util.find_spec(name) is not None for name in ("cutlass", "tvm_ffi", "filelock"))
pytestmark = pytest.mark.skipif(not INSTALLED, reason="the extra 'kernels' is not installed")
PLAIN, MASKED = Variant("bf16", False, False), Variant("bf16", True, True)


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One cache for all processes that run these tests."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "popen-gw" in shared.name else shared
    pytest.MonkeyPatch().setenv("TWILL_CACHE", str(shared / "kernels"))


@cache
def _compiled(name: str, variant: Variant) -> Compiled:
    file = read(find(name))
    return compiled(file, variant, ARCHITECTURES[file.tiles][0])


@cache
def _listing(name: str, variant: Variant) -> str:
    return disassembled(_compiled(name, variant).cubin)


def _examined(listing: str, name: str = "sm90_attn_fwd_d128", variant: Variant = PLAIN) -> Report:
    schedule = shipped_schedule(read(find(name)))
    assert schedule is not None
    return examined(_compiled(name, variant), listing, program_of(schedule), name)


@pytest.mark.parametrize("name", [n for n in names() if n.startswith(("sm100", "sm103"))])
@pytest.mark.parametrize("variant", [PLAIN, MASKED], ids=lambda v: v.name)
def test_a_kernel_for_tensor_memory_passes(name: str, variant: Variant) -> None:
    """Nothing is spilled, every role gets the registers that it asks for, and synchronization is where the schedule has it."""
    kernel = read(find(name))
    found = _examined(_listing(name, variant), name, variant)
    assert found.problems == ()
    assert (found.resources.stack_bytes, found.resources.local_bytes) == (0, 0)
    tiles = {k: int(v) for k, v in re.findall(r"(head_dim|keys|subtiles)=(\d+)", kernel.text.split("TILES = ")[1].split("\n")[0])}
    loops = {x.role: x for x in found.loops}
    assert set(loops) == {code.name for seat in seats(kernel) for code in seat.roles}
    # a multiplication has a depth of 16, and half as many columns of P as of S are stored
    steps = tiles["head_dim"] // 16 + tiles["keys"] // 16
    assert loops["mma"].turn.families["mma"] == (tiles["subtiles"] * steps,) * 2
    # polynomials among the exponentials: on sm100 40, 32 or 16 of 128 by what the model balances, none where MUFU is twice as fast
    share = re.search(r"poly_share=([\d.]+)", kernel.text)
    assert share is not None
    polynomials = {"sm100_attn_fwd_d64": 40, "sm100_attn_fwd_d96": 32}.get(name, 16) if name.startswith("sm100") else 0
    assert float(share[1]) * tiles["keys"] == polynomials
    assert loops["softmax_a"].turn.families["exp"] == (tiles["keys"] - polynomials + 1,) * 2
    assert loops["softmax_a"].turn.families["convert"] == (tiles["keys"] // 2,) * 2


@pytest.mark.parametrize("name", [n for n in names() if n.startswith("sm90_attn_bwd")])
@pytest.mark.parametrize("variant", [PLAIN, MASKED], ids=lambda v: v.name)
def test_a_backward_kernel_passes(name: str, variant: Variant) -> None:
    """Nothing is spilled, wgmma is not serialised, and the file goes through what the schedule does."""
    found = _examined(_listing(name, variant), name, variant)
    assert found.problems == ()
    assert (found.resources.stack_bytes, found.resources.local_bytes) == (0, 0)


@pytest.mark.parametrize("name", [n for n in names() if n.startswith("sm90_attn_fwd")])
@pytest.mark.parametrize("variant", [PLAIN, MASKED], ids=lambda v: v.name)
def test_a_shipped_kernel_passes(name: str, variant: Variant) -> None:
    kernel = read(find(name))
    found = _examined(_listing(name, variant), name, variant)
    assert found.problems == ()
    assert library(name, variant).read_bytes()[:4] == b"\x7fELF"
    assert (found.resources.stack_bytes, found.resources.local_bytes) == (0, 0)
    warpgroups = sum(len(code.roles) if code.name != "load" else 1 for seat in seats(kernel) for code in seat.roles)
    assert found.launch["threads"] == 128 * warpgroups
    smem = found.launch["dynamic_smem_bytes"]
    assert smem is not None
    assert 128 * 1024 < smem + found.resources.shared_bytes <= 227 * 1024
    tiles = {
        k: int(v) for k, v in re.findall(r"(head_dim|head_dim_v|keys|subtiles)=(\d+)", kernel.text.split("TILES = ")[1].split("\n")[0])
    }
    consumers = [x for x in found.loops if x.role != "load"]
    served = [name for seat in seats(kernel) for code in seat.roles for name in code.roles if code.name in {x.role for x in consumers}]
    assert len(served) == tiles["subtiles"]
    assert len(consumers) == len({x.role for x in consumers}) * (2 if variant.causal else 1)
    for loop in consumers:
        counts = {p.event.name.partition("_")[0]: len(p.at) for p in loop.period}
        assert counts["EXP"] == tiles["keys"] * 64 // 128
        assert counts["QK"] == tiles["head_dim"] // 16
        assert counts["PV"] == tiles["keys"] // 16
        assert counts["CVT"] == tiles["keys"] * 64 // 256
        # one that scales a maximum may be given the line of its neighbour
        assert counts["RESC"] - tiles["head_dim_v"] * 64 // 128 in (0, 1)
        assert loop.turn.families["mma"] == (counts["QK"] + counts["PV"],) * 2
        # factors only where a maximum grows
        assert loop.turn.families["exp"] == (counts["EXP"], counts["EXP"] + 2)
        assert loop.turn.shortest <= loop.turn.longest < 800


def test_scores_made_again_are_a_part_of_the_turn(tmp_path: Path) -> None:
    """The loop over the columns of Q and K in which `old_max` makes scores again does not hide the loop over tiles that it is in."""
    schedule = read_schedule(str(Path(__file__).parent.parent / "emit" / "schedules" / "d128_old_max.json"))
    found = checked(schedule, machine_of_schedule(schedule.machine.name, None))
    file = tmp_path / "old_max.py"
    file.write_text(emit(found, lower(found), "a test"), encoding="utf-8")
    made = compiled(read(file), PLAIN, "sm_90a")
    report = examined(made, disassembled(made.cubin), program_of(schedule), "old_max")
    assert report.problems == ()
    assert (report.resources.stack_bytes, report.resources.local_bytes) == (0, 0)
    loops = {x.role: x.turn.families for x in report.loops}
    assert loops.keys() == {"softmax", "load"}
    assert loops["softmax"]["mma"] == (13, 13)
    # those of a turn in which scores are made again, and the factors of two rows
    assert loops["softmax"]["exp"] == (40, 82)


def _last(pattern: str, listing: str) -> re.Match[str]:
    return list(re.finditer(pattern, listing))[-1]


def _without(pattern: str) -> Callable[[str], str]:
    """The last line of code that matches becomes a no-op."""

    def change(listing: str) -> str:
        found = _last(pattern, listing)
        return listing[: found.start()] + "NOP ;" + listing[found.end() :]

    return change


def _serialise(listing: str) -> str:
    return re.sub(r"(HGMMA[^;]*?)(, gsb0)? ;", r"\1, gsb0 ;", listing)


def _swap_last_mma_wait_and_arrival(listing: str, before: int | None = None) -> str:
    """The arrival that frees V before the wait for the MMA that reads it, behind the loop: no period is touched."""
    wait = _last(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0 ;", listing[:before])
    arrival = re.search(r"@P\d SYNCS\.ARRIVE\.TRANS64\.A1T0[^;]*;", listing[wait.end() :])
    assert arrival is not None
    one, other = wait.end(), wait.end() + arrival.end()
    # with the lines of PTX that stand before them
    first, second = (listing.rindex("\t//##", 0, end) for end in (one, other))
    assert first < one <= second < other
    return listing[:first] + listing[second:other] + listing[one:second] + listing[first:one] + listing[other:]


def _swap_mma_wait_and_arrival(listing: str) -> str:
    """The same in the loop."""
    return _swap_last_mma_wait_and_arrival(listing, _last(r"HGMMA[^;]*;", listing).start())


def _swap_lines_of_waits(listing: str) -> str:
    """A wait for K where the schedule waits for V, and the other way round."""
    flow = Flow(parse(listing)[0])
    (loads,) = [body for body in map(flow.body, flow.work) if sum(x.is_a("UTMALDG") for x in body) > 1 and len(body) < 120]
    lines = {x.line for x in loads if "TRYWAIT" in x.opcode and x.address not in flow.first_tries}
    one, other = (f"line {line}\n" for line in lines)
    assert one != other
    return listing.replace(one, "line X\n").replace(other, one).replace("line X\n", other)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (_serialise, "serialised"),
        (_without(r"USETMAXREG\.TRY_ALLOC\.CTAPOOL UP0, 0x\w+ ;"), "registers"),
        (_without(r"USETMAXREG\.DEALLOC\.CTAPOOL 0x\w+ ;"), "registers"),
        (lambda listing: listing.replace("MUFU.EX2", "STL [R1],", 1), "spills"),
        (_swap_mma_wait_and_arrival, "order"),
        (_swap_last_mma_wait_and_arrival, "order"),
        (_swap_lines_of_waits, "order"),
        (_without(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1 ;"), "order"),
        (lambda listing: listing.replace("WARPGROUP.DEPBAR.LE gsb0, 0x1 ;", "WARPGROUP.DEPBAR.LE gsb0, 0x0 ;"), "order"),
    ],
    ids=[
        "serialised",
        "rise dropped",
        "fall dropped",
        "spill",
        "arrival first",
        "arrival first behind the loop",
        "waits swapped",
        "wait lost",
        "wait for all",
    ],
)
def test_corrupted_machine_code_is_refused(change: Callable[[str], str], kind: str) -> None:
    listing = _listing("sm90_attn_fwd_d128", PLAIN)
    assert _examined(listing).problems == ()
    changed = change(listing)
    assert changed != listing
    found = _examined(changed)
    assert kind in {p.kind for p in found.problems}
    assert all(p.step for p in found.problems)


def test_a_kernel_short_of_registers_is_no_library(tmp_path: Path) -> None:
    """The assembler really spills and serialises."""
    kernel = read(find("sm90_attn_fwd_d128"))
    at_launch = _examined(_listing(kernel.name, PLAIN)).resources.registers
    path = tmp_path / "short.py"
    path.write_text(re.sub(r"setmaxregister_increase\(\d+\)", f"setmaxregister_increase({at_launch // 8 * 8 + 8})", kernel.text))
    with pytest.raises(LintError, match=r"short \(bf16\)[\s\S]*spills[\s\S]*and 1 more[\s\S]*next step: take smaller tiles"):
        library(path, PLAIN)
    assert library(path, PLAIN, check=False).is_file()
    found = reported(compiled(read(path), PLAIN, "sm_90a"), None, "itself")
    assert {p.kind for p in found.problems} == {"spills", "serialised"}


def test_every_instruction_of_arithmetic_is_somebodys() -> None:
    """Line information says which tile operation made what: two exponentials a turn are the row maximum's, for the factor."""
    found = _examined(_listing("sm90_attn_fwd_d64", PLAIN), "sm90_attn_fwd_d64")
    for loop in found.loops:
        if loop.role == "load":
            continue
        exps = [p for p in loop.period if p.event.name.startswith("EXP")]
        assert len(exps) == 1
        assert loop.turn.families["exp"][0] - len(exps[0].at) == 2


def test_issue_slots_of_each_sub_partition() -> None:
    """Four sub-partitions share the warps of each softmax; single warps make the difference between them."""
    for name, single in (("sm100_attn_fwd_d64", {"load": 0, "mma": 1}), ("sm90_attn_fwd_d128", {"load": 0})):
        found = _examined(_listing(name, PLAIN), name)
        assert [part.number for part in found.issue] == [0, 1, 2, 3]
        least = found.issue[3].total
        for part in found.issue:
            alone = [role for role, where in single.items() if where == part.number]
            assert set(part.roles) == set(found.issue[3].roles) | set(alone)
            assert part.total == tuple(x + sum(part.roles[role][i] for role in alone) for i, x in enumerate(least))
    steady = {loop.role: (loop.turn.shortest, loop.turn.longest) for loop in sorted(found.loops, key=lambda x: -x.turn.longest)}
    assert least == tuple(3 * x for x in steady["softmax"])
