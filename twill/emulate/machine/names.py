"""Names for warps, buffers and barriers in reports: from the tables of an emitted kernel, or plain offsets."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Names", "of_kernel"]

FRAME = "frame"
"""What a table STORAGE calls the place of barriers, if they have one."""


@dataclass(frozen=True, slots=True)
class Names:
    """Ranges of shared memory (begin, end, name, bytes of a slot), first warps of roles, names of named barriers, and the emitted file
    with its lines. All may be empty."""

    buffers: tuple[tuple[int, int, str, int], ...] = ()
    barriers: tuple[tuple[int, int, str, int], ...] = ()
    roles: tuple[tuple[int, int, str], ...] = ()
    named: tuple[tuple[int, str], ...] = ()
    file: str = ""
    lines: tuple[str, ...] = ()

    def barrier(self, offset: int) -> str:
        """The mbarrier at an offset of the kernel's shared memory."""
        return _lookup(self.barriers, offset) or f"the barrier at shared memory offset {offset}"

    def storage(self, offset: int) -> str:
        """Where an offset of the kernel's shared memory is."""
        found = _lookup(self.buffers, offset) or _lookup(self.barriers, offset)
        return f"{found} (offset {offset})" if found else f"offset {offset}"

    def named_barrier(self, number: int) -> str:
        return next((name for n, name in self.named if n == number), f"named barrier {number}")

    def statement(self, line: int) -> str:
        """A statement of the emitted file, with the line it stands on."""
        return f"{self.lines[line - 1].strip()} in {self.file}:{line}" if 0 < line <= len(self.lines) else ""

    def role(self, warp: int) -> str:
        return next((name for begin, end, name in self.roles if begin <= warp < end), "")


def _lookup(ranges: tuple[tuple[int, int, str, int], ...], offset: int) -> str:
    for begin, end, name, step in ranges:
        if begin <= offset < end:
            return f"{name}[{(offset - begin) // step}]"
    return ""


def of_kernel(path: Path) -> Names:
    """Read the tables STORAGE and BARRIERS and the dispatch on ``block.warp`` of an emitted kernel; nothing of it is executed."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    tables = {
        x.targets[0].id: x.value
        for x in tree.body
        if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Name) and isinstance(x.value, ast.Dict)
    }
    buffers, end = [], 0
    for name, fields in _calls(tables.get("STORAGE")):
        offset, stride, stages = fields.get("offset", 0), fields.get("stride", 0), fields.get("stages", 1)
        buffers.append((offset, offset + stride * stages, name, stride))
        end = max(end, offset + stride * stages)
    # barriers are behind all buffers, or at the beginning of a place of their own
    end = next((begin for begin, _, name, _ in buffers if name == FRAME), end)
    buffers = [b for b in buffers if b[2] != FRAME]
    barriers, named = [], []
    for name, fields in _calls(tables.get("BARRIERS")):
        if "number" in fields:
            named.append((fields["number"], name))
            continue
        size = 8 * fields.get("slots", 1)
        barriers.append((end, end + size, name, 8))
        end += size
    return Names(tuple(buffers), tuple(barriers), _roles(tree), tuple(named), path.name, tuple(text.splitlines()))


def _calls(table: ast.expr | None) -> list[tuple[str, dict[str, int]]]:
    found = []
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Call):
                fields = {
                    k.arg: k.value.value
                    for k in value.keywords
                    if k.arg and isinstance(k.value, ast.Constant) and isinstance(k.value.value, int)
                }
                found.append((str(key.value), fields))
    return found


def _roles(tree: ast.Module) -> tuple[tuple[int, int, str], ...]:
    """Roles by first warp from the table ROLES, and single warps from tests such as ``block.warp == 9``."""
    starts: dict[int, str] = {}
    single: set[int] = set()
    for x in tree.body:
        if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "ROLES":
            starts |= {first: name for name, (_, first) in ast.literal_eval(x.value).items()}
    for test in (x for x in ast.walk(tree) if isinstance(x, ast.If)):
        match = re.fullmatch(r"block\.warp == (\d+)", ast.unparse(test.test))
        if match is not None:
            single.add(int(match[1]))
        if match is not None and int(match[1]) not in starts:
            starts[int(match[1])] = next((_called(s) for s in test.body if _called(s)), "")
    firsts = sorted(starts)
    following = [*firsts[1:], 1 << 10]
    return tuple((a, a + 1 if a in single else b, starts[a]) for a, b in zip(firsts, following, strict=True))


def _called(statement: ast.stmt) -> str:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name
    return ""
