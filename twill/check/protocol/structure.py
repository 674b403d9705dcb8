"""Structure: the program carries out its graph, and every number in it is one that the hardware takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from twill.check.protocol.facts import ProtocolFacts, edge_label, is_mma, mma_positions, release_label
from twill.check.protocol.report import ProtocolFinding, protocol_finding
from twill.lower.program import Access, Arrive, Barrier, Execute, Role, Storage, Wait, WaitOwn

__all__ = ["structure"]

NAMED_IDS = range(1, 16)
"""Hardware barriers 1 to 15; 0 is __syncthreads (PTX ISA, barrier)."""
REGISTER_STEP, REGISTER_MIN, REGISTER_MAX = 8, 24, 256
"""What setmaxnreg takes (PTX ISA)."""
REGISTER_FILE = 65536
MEMORY_SIZE = {"smem": 232448, "tmem": 512}
"""Bytes a block and columns an SM, of all machines that twill knows (machine files)."""
MAX_WARPS = 32
"""1024 threads a block."""
WARPGROUP = 4


def structure(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    """Everything that is wrong without looking at any order of events."""
    yield from _names(facts)
    yield from _ops(facts)
    for role in facts.program.roles:
        yield from _instructions(facts, role)
    for barrier in facts.program.barriers:
        yield from _barrier(facts, barrier)
    yield from _named_ids(facts)
    for storage in facts.program.storage:
        yield from _storage(facts, storage)
    yield from _placement(facts)
    yield from _buffers(facts)
    yield from _handovers(facts)
    yield from _registers(facts)


def _names(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    p = facts.program
    for what, names in (
        ("role", [r.name for r in p.roles]), ("barrier", [b.name for b in p.barriers]), ("storage", [s.name for s in p.storage])
    ):  # fmt: skip
        for name, count in Counter(names).items():
            if count > 1:
                yield protocol_finding("structure", f"there are {count} of the name {name}", **{what: name} if what != "storage" else {})


def _ops(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    p = facts.program
    counts = Counter(x.op for r in p.roles for x in r.body if isinstance(x, Execute))
    for name in facts.ops:
        if counts[name] != 1:
            roles = ", ".join(r.name for r in p.roles if any(isinstance(x, Execute) and x.op == name for x in r.body))
            yield protocol_finding("structure", f"op {name} is executed {counts[name]} times an iteration; exactly 1 needed", role=roles)
    for name in counts:
        if name not in facts.ops:
            yield protocol_finding("structure", f"op {name} is not in graph {facts.graph.name}", role=facts.role(name))
    for name, op in facts.ops.items():
        for field, said, right in (
            ("latency_cycles", p.latency_cycles.get(name), op.latency_cycles),
            ("issue_cycles", p.issue_cycles.get(name), op.issue_cycles),
            ("asynchronous", name in p.asynchronous, op.asynchronous),
        ):
            if said != right:
                yield protocol_finding("structure", f"op {name}: {field} is {said}, the graph says {right}")


def _instructions(facts: ProtocolFacts, role: Role) -> Iterator[ProtocolFinding]:
    for position, x in enumerate(role.body):
        where = f"instruction {position}"
        if x.stage < 0:
            barrier = x.barrier if isinstance(x, Wait | Arrive) else ""
            text = f"{where} has the negative stage {x.stage}"
            yield protocol_finding("structure", text, role=role.name, barrier=barrier, edge=_guarded(facts, barrier))
        if isinstance(x, Wait | Arrive) and x.barrier not in facts.barriers:
            yield protocol_finding("structure", f"{where} names a barrier that does not exist", role=role.name, barrier=x.barrier)
        if isinstance(x, Wait) and x.distance < 0:
            text = f"{where} waits {-x.distance} iterations ahead: the last iterations would wait for ever"
            yield protocol_finding("structure", text, role=role.name, barrier=x.barrier, edge=_guarded(facts, x.barrier))
        if isinstance(x, Arrive):
            yield from _arrive(facts, role, position, x)
        if isinstance(x, WaitOwn):
            yield from _wait_own(facts, role, position, x)
        if isinstance(x, Execute):
            for a in x.accesses:
                if a.storage not in facts.storage:
                    text = f"{where}: op {x.op} touches storage {a.storage}, which does not exist"
                    yield protocol_finding("structure", text, role=role.name)


def _wait_own(facts: ProtocolFacts, role: Role, position: int, x: WaitOwn) -> Iterator[ProtocolFinding]:
    """Prologue and epilogue wait for those groups that the steady state waits for, as far as they exist."""

    def wrong(text: str) -> ProtocolFinding:
        edge, text = ", ".join(x.guards), f"instruction {position} {text}"
        return protocol_finding("structure", text, role=role.name, barrier="(wait for own MMAs)", edge=edge)

    known = facts.labels()
    for guard in x.guards:
        if guard.startswith(("edge ", "release ")) and guard not in known:
            yield wrong(f"guards {guard!r}, which is no dependence of graph {facts.graph.name}")
    issued = mma_positions(facts, role)
    if x.pending < 0 or not issued:
        yield wrong(f"waits until {x.pending} of its {len(issued)} MMA groups an iteration are pending")
        return
    for trip_count in range(1, 2 * role.stages + x.pending + 2):
        for period in range(x.stage, x.stage + trip_count):
            slots = [(n, p) for n in range(period + 1) for p in issued if n < period or p < position]
            exists = [0 <= n - role.body[p].stage < trip_count for n, p in slots]
            right = sum(exists[max(0, len(slots) - x.pending) :])
            said = x.in_period(period, trip_count).pending
            if min(said, sum(exists)) != right:
                yield wrong(
                    f"leaves {said} MMA groups pending in period {period} of trip count {trip_count}, where"
                    f" {right} of the {x.pending} latest were issued: it does not wait for what the steady state waits for"
                )
                return


def _guarded(facts: ProtocolFacts, barrier: str) -> str:
    found = facts.barriers.get(barrier)
    return ", ".join(found.guards) if found else ""


def _arrive(facts: ProtocolFacts, role: Role, position: int, x: Arrive) -> Iterator[ProtocolFinding]:
    def wrong(text: str) -> ProtocolFinding:
        return protocol_finding(
            "structure", f"instruction {position} {text}", role=role.name, barrier=x.barrier, edge=_guarded(facts, x.barrier)
        )

    if x.count < 1:
        yield wrong(f"adds {x.count} arrivals")
    if x.when == "now":
        if x.op:
            yield wrong(f"arrives now, yet names op {x.op}")
        return
    if x.op not in facts.site or x.op not in facts.ops:
        yield wrong(f"arrives after op {x.op or '(none)'}, which nobody executes")
        return
    issued = facts.site[x.op]
    op = facts.ops[x.op]
    if issued.role.name != role.name:
        yield wrong(f"arrives after {x.op}, which role {issued.role.name} issues; only the issuer can")
    if not op.asynchronous:
        yield wrong(f"arrives after {x.op}, which is synchronous: arrive now, behind it")
    if is_mma(op) and (x.stage, position) < (issued.instruction.stage, issued.position):
        yield wrong(f"commits before {x.op} is issued")


def _barrier(facts: ProtocolFacts, b: Barrier) -> Iterator[ProtocolFinding]:
    arrivals, waits = list(facts.arrivals(b.name)), list(facts.waits(b.name))
    roles = facts.arriving(b) or ", ".join(dict.fromkeys(site.role.name for site, _ in arrivals))
    label = ", ".join(b.guards)

    def wrong(text: str, role: str = roles) -> ProtocolFinding:
        return protocol_finding("structure", text, role=role, barrier=b.name, edge=label)

    if b.slots < 1:
        yield wrong(f"has {b.slots} slots")
    total = sum(x.count for _, x in arrivals)
    if total != b.arrivals:
        parts = ", ".join(f"{site.role.name} {x.count}" for site, x in arrivals) or "nobody arrives"
        yield wrong(f"{b.arrivals} arrivals complete a phase, the program makes {total} an iteration ({parts})")
    if not waits:
        yield wrong("nobody waits for it", facts.waiting(b))
    loads = sorted({x.op for _, x in arrivals if x.when == "after" and x.op in facts.ops and facts.ops[x.op].kind == "tma_load"})
    delivered = sum(buffer.size for buffer in facts.graph.buffers for w in buffer.writers if w in loads)
    if b.tx_bytes != delivered:
        parts = ", ".join(loads) or "no load"
        yield wrong(f"expects {b.tx_bytes} bytes a phase, {parts} delivers {delivered}")
    if b.kind == "named":
        asynchronous = [x.op for _, x in arrivals if x.when == "after"]
        if asynchronous:
            yield wrong(f"is a named barrier; {', '.join(asynchronous)} can only arrive on an mbarrier")
        for site, count in Counter(site.role.name for site, _ in waits).items():
            if count > 1:
                yield wrong(f"is a named barrier and waited for {count} times a phase by one role", site)
    known = facts.labels()
    for guard in b.guards:
        if guard.startswith(("edge ", "release ")) and guard not in known:
            yield wrong(f"guards {guard!r}, which is no dependence of graph {facts.graph.name}")


def _named_ids(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    owner: dict[int, str] = {}
    for b in facts.program.barriers:
        label = ", ".join(b.guards)
        if b.kind == "mbarrier":
            if b.named_id is not None:
                yield protocol_finding("structure", f"is an mbarrier with named id {b.named_id}", barrier=b.name, edge=label)
            continue
        ids = () if b.named_id is None else range(b.named_id, b.named_id + max(1, b.slots))
        if not ids or any(i not in NAMED_IDS for i in ids):
            text = f"takes the hardware ids {list(ids)}; they must be from {NAMED_IDS.start} to {NAMED_IDS.stop - 1}"
            yield protocol_finding("structure", text, barrier=b.name, edge=label)
        for i in ids:
            if i in owner:
                yield protocol_finding("structure", f"takes hardware id {i}, which {owner[i]} has", barrier=b.name, edge=label)
            owner.setdefault(i, b.name)


def _storage(facts: ProtocolFacts, s: Storage) -> Iterator[ProtocolFinding]:
    if s.stages < 1 or s.stride < 1 or s.offset < 0:
        yield protocol_finding("structure", f"storage {s.name}: {s.stages} stages of {s.stride} at {s.offset} of {s.memory}")
    end, size = s.offset + s.stages * s.stride, MEMORY_SIZE.get(s.memory)
    if size is None or end > size:
        yield protocol_finding("structure", f"storage {s.name} ends at {end} of {s.memory}, which has {size}")
    if s.persistent and s.stages != 1:
        yield protocol_finding("structure", f"storage {s.name} is persistent and has {s.stages} stages; exactly 1 needed")


def _placement(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    """What lives for the whole loop shares its addresses with nothing."""
    for a, b in combinations(facts.program.storage, 2):
        meet = a.offset < b.offset + b.stages * b.stride and b.offset < a.offset + a.stages * a.stride
        if a.memory == b.memory and meet and (a.persistent or b.persistent):
            kept = a.name if a.persistent else b.name
            yield protocol_finding("structure", f"storages {a.name} and {b.name} share addresses of {a.memory}, but {kept} is persistent")


def _buffers(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    """Every buffer of the graph has its storage, and every op that touches it says so."""
    for b in facts.graph.buffers:
        s = facts.storage.get(b.name)
        if s is None:
            yield protocol_finding("structure", f"buffer {b.name} of the graph has no storage")
            continue
        if (s.memory, s.persistent) != (b.memory, b.persistent) or s.stride < b.size:
            said = f"{'persistent ' * s.persistent}{s.stride} of {s.memory}"
            right = f"{'persistent ' * b.persistent}{b.size} of {b.memory}"
            yield protocol_finding("structure", f"storage {b.name} is {said}, the graph needs {right}")
        needed = [(w, Access(b.name, "write")) for w in b.writers]
        needed += [(r.op, Access(b.name, "read", -r.distance)) for r in b.readers]
        for op, access in needed:
            if op in facts.site and access not in facts.declared(op):
                text = f"op {op} does not say that it {access.mode}s {b.name} of iteration i{access.shift or ''}"
                label = release_label(b.name, op) if access.mode == "read" else ""
                yield protocol_finding("structure", text, role=facts.role(op), barrier=facts.guardians(label), edge=label)


def _handovers(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    """Register data that changes role goes through a storage that its maker writes and its user reads."""
    for e in facts.graph.edges:
        if e.kind != "registers" or e.src not in facts.site or e.dst not in facts.site or facts.role(e.src) == facts.role(e.dst):
            continue
        written = {(a.storage, a.shift) for a in facts.declared(e.src) if a.mode == "write"}
        if not any(a.mode == "read" and (a.storage, a.shift + e.distance) in written for a in facts.declared(e.dst)):
            text = f"{e.value or 'its value'} changes role, and no storage that {e.src} writes is read by {e.dst}"
            label = edge_label(e)
            yield protocol_finding("structure", text, role=facts.role(e.dst), barrier=facts.guardians(label), edge=label)


def _registers(facts: ProtocolFacts) -> Iterator[ProtocolFinding]:
    roles = facts.program.roles
    for r in roles:
        request = r.registers_per_thread
        if request % REGISTER_STEP or not REGISTER_MIN <= request <= REGISTER_MAX:
            text = f"requests {request} registers; setmaxnreg takes multiples of {REGISTER_STEP} from {REGISTER_MIN} to {REGISTER_MAX}"
            yield protocol_finding("structure", text, role=r.name)
        warps = max((facts.ops[x.op].warps for x in r.body if isinstance(x, Execute) and x.op in facts.ops), default=r.warps)
        if r.warps != warps:
            yield protocol_finding("structure", f"has {r.warps} warps, its ops take {warps}", role=r.name)
    partial = [r for r in roles if r.warps % WARPGROUP]
    whole = [r for r in roles if not r.warps % WARPGROUP]
    shared = -(-sum(r.warps for r in partial) // WARPGROUP)
    requests = {r.registers_per_thread for r in partial}
    if len(requests) > 1:
        said = ", ".join(f"{r.name} {r.registers_per_thread}" for r in partial)
        text = f"roles that share a warpgroup request different registers ({said}); setmaxnreg is one for all its warps"
        yield protocol_finding("structure", text, role=partial[0].name)
    used = sum(32 * r.warps * r.registers_per_thread for r in whole) + 128 * shared * max(requests, default=0)
    if used > REGISTER_FILE:
        said = ", ".join(f"{r.name} {r.warps} x {r.registers_per_thread}" for r in roles)
        yield protocol_finding("structure", f"the roles take {used} registers ({said}), the file has {REGISTER_FILE}", role=roles[0].name)
    warps = sum(r.warps for r in whole) + WARPGROUP * shared
    if warps > MAX_WARPS:
        yield protocol_finding("structure", f"the roles take {warps} warps, a block has at most {MAX_WARPS}")
