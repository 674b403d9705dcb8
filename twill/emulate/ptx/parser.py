"""From PTX text to `Module`. Reads what NVVM prints for CuTe DSL kernels, inline assembly with scopes of its own included."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from twill.emulate.errors import EmulationError
from twill.emulate.ptx.syntax import (
    Immediate,
    Instruction,
    Kernel,
    Location,
    Memory,
    Module,
    Negated,
    Operand,
    Pair,
    Parameter,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)  # fmt: skip

__all__ = ["parse"]

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8,
         "s64": 8, "f64": 8}  # fmt: skip
SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]$|%(laneid|warpid|nwarpid|smid|"
                     r"nsmid|cluster_ctarank|cluster_nctarank|clock|clock64|globaltimer|is_explicit_cluster|dynamic_smem_size|"
                     r"total_smem_size)$")  # fmt: skip
LABEL = re.compile(r"\s*([A-Za-z_$%][\w$]*)\s*:(?!:)")
ENTRY = re.compile(r"\.(?:visible|weak)?\s*\.?entry\s+([\w$]+)\s*\((.*?)\)(.*?)\{", re.S)
PARAM = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?")
SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\]")
REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')


def parse(text: str) -> Module:
    """Read a PTX file.

    Raises
    ------
    EmulationError : the text is not PTX as understood here; says which line.
    """
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    target, version = re.search(r"\.target\s+(\w+)", text), re.search(r"\.version\s+([\d.]+)", text)
    if target is None or version is None:
        raise EmulationError("no .version and .target: this is no PTX file", "give the PTX that the compiler kept")
    files = {int(number): name for number, name in FILE.findall(text)}
    kernels = []
    for entry in ENTRY.finditer(text):
        end = _closing(text, entry.end() - 1)
        outer = {name: (int(align), int(size or 0)) for align, name, size in SHARED.findall(text)}
        body = _Body(files, outer, {p.name for p in _parameters(entry[2])})
        body.read(text[entry.end() : end], 1 + text.count("\n", 0, entry.end()))
        kernels.append(_kernel(entry, body, outer))
    if not kernels:
        raise EmulationError("the PTX has no .entry", "give the PTX of a kernel")
    return Module(target[1], version[1], tuple(kernels))


def _kernel(entry: re.Match[str], body: _Body, shared: dict[str, tuple[int, int]]) -> Kernel:
    directives = {
        name: tuple(int(x) for x in re.findall(r"\d+", values)) for name, values in re.findall(r"\.(\w+)((?:\s*,?\s*\d+)*)", entry[3])
    }
    labels = body.labels
    return Kernel(
        entry[1], _parameters(entry[2]), tuple(body.instructions), labels, body.registers, directives, shared,
    )  # fmt: skip


def _closing(text: str, opening: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise EmulationError("a brace is never closed", "the PTX file seems to be cut off")


def _parameters(text: str) -> tuple[Parameter, ...]:
    found, offset = [], 0
    for align, kind, name, count in PARAM.findall(text):
        size = SIZES[kind] * int(count or 1)
        step = max(int(align or 1), SIZES[kind])
        offset = -(-offset // step) * step
        found.append(Parameter(name, offset, size))
        offset += size
    return tuple(found)


@dataclass
class _Body:
    """The statements of an entry as they are read; names of inner scopes get a suffix."""

    files: dict[int, str]
    shared: dict[str, tuple[int, int]]
    parameters: set[str]
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    _scopes: list[dict[str, str]] = field(default_factory=lambda: [{}])
    _made: int = 0
    _location: Location | None = None

    def read(self, text: str, line: int) -> None:
        self._declare_labels_of_scope(text, 0)
        breaks = [match.start() for match in re.finditer("\n", text)]
        for statement, at in _statements(text):
            self._statement(statement, line + bisect_left(breaks, at), text, at)

    def _declare_labels_of_scope(self, text: str, begin: int) -> None:
        """Labels may be used before they are seen: bind those of the scope that begins here."""
        depth = 0
        for statement, _ in _statements(text, begin):
            if statement == "{":
                depth += 1
            elif statement == "}":
                depth -= 1
                if depth < 0:
                    return
            elif depth == 0 and statement.endswith(":"):
                name = statement[:-1]
                inner = len(self._scopes) > 1
                self._scopes[-1][name] = f"{name}@{self._made}" if inner else name

    def _statement(self, statement: str, line: int, text: str, at: int) -> None:
        if statement == "{":
            self._made += 1
            self._scopes.append({})
            self._declare_labels_of_scope(text, at + 1)
        elif statement == "}":
            self._scopes.pop()
        elif statement.endswith(":"):
            self.labels[self._resolve(statement[:-1])] = len(self.instructions)
        elif statement.startswith(".loc"):
            fields = statement.split()
            self._location = Location(self.files.get(int(fields[1]), "?"), int(fields[2]), int(fields[3]))
        elif statement.startswith(".reg"):
            self._registers(statement)
        elif statement.startswith((".pragma", ".file", ".shared")):
            pass
        elif statement.startswith("."):
            raise EmulationError(f"PTX line {line}: directive {statement.split()[0]!r} is not known", "extend twill/emulate/ptx/parser.py")
        else:
            self.instructions.append(self._instruction(statement, line))

    def _registers(self, statement: str) -> None:
        match = REG.match(statement)
        assert match is not None
        for item in match[2].split(","):
            name = item.strip()
            if counted := re.match(r"(.*)<(\d+)>$", name):
                for i in range(int(counted[2])):
                    self.registers[f"{counted[1]}{i}"] = match[1]
            elif len(self._scopes) > 1:
                unique = f"{name}@{self._made}"
                self._scopes[-1][name] = unique
                self.registers[unique] = match[1]
            else:
                self.registers[name] = match[1]

    def _resolve(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _instruction(self, statement: str, line: int) -> Instruction:
        guard, negated = None, False
        if match := re.match(r"@(!?)([\w%$]+)\s+", statement):
            guard, negated, statement = Register(self._resolve(match[2])), match[1] == "!", statement[match.end() :]
        opcode, _, rest = statement.partition(" ") if not re.search(r"\s", statement) else re.split(r"(\s)", statement, maxsplit=1)
        label = None
        operands: tuple[Operand, ...] = ()
        if opcode in ("bra", "bra.uni"):
            label = self._resolve(rest.strip())
        else:
            operands = tuple(self._operand(x, line) for x in _split(rest))
        return Instruction(opcode, operands, line, guard, negated, self._location, label)

    def _operand(self, text: str, line: int) -> Operand:
        text = text.strip()
        if text.startswith("{"):
            return Vector(tuple(self._operand(x, line) for x in _split(text[1:-1])))
        if text.startswith("["):
            parts = _split(text[1:-1])
            base = self._operand(parts[0], line)
            offset = 0
            if isinstance(base, Pair):
                raise EmulationError(f"PTX line {line}: address {text!r} is not understood", "extend twill/emulate/ptx/parser.py")
            if isinstance(base, Vector):
                register, distance = base.items
                assert isinstance(distance, Immediate)
                base, offset = register, distance.bits
            coordinates: tuple[Operand, ...] = ()
            for part in parts[1:]:
                inner = self._operand(part, line)
                coordinates = (*coordinates, *(inner.items if isinstance(inner, Vector) else (inner,)))
            return Memory(base, offset, coordinates)
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._operand(first, line), self._operand(second, line))
        return self._scalar(text, line)

    def _scalar(self, text: str, line: int) -> Operand:
        if text == "_":
            return Sink()
        if text.startswith("!"):
            return Negated(Register(self._resolve(text[1:].strip())))
        if re.match(r"0[fF][0-9a-fA-F]{8}$", text) or re.match(r"0[dD][0-9a-fA-F]{16}$", text):
            return Immediate(int(text[2:], 16))
        if re.match(r"-?(0[xX][0-9a-fA-F]+|\d+)[uU]?$", text):
            return Immediate(int(text.rstrip("uU"), 0))
        if SPECIAL.match(text):
            return Special(text)
        if match := re.match(r"([%\w$.]+)\s*\+\s*(-?0x[0-9a-fA-F]+|-?\d+)$", text):
            base = self._scalar(match[1], line)
            if isinstance(base, Symbol):
                return Symbol(base.name, int(match[2], 0))
            return Vector((base, Immediate(int(match[2], 0))))
        name = self._resolve(text)
        if name in self.registers:
            return Register(name)
        if name in self.shared or name in self.parameters:
            return Symbol(name)
        raise EmulationError(f"PTX line {line}: operand {text!r} is not known", "extend twill/emulate/ptx/parser.py")


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets and braces."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        if c in "[{(":
            depth += 1
        elif c in "]})":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    parts.append(text[begin:])
    return [p.strip() for p in parts if p.strip()]


def _statements(text: str, at: int = 0) -> Iterator[tuple[str, int]]:
    """Statements with their offsets: ``{``, ``}``, ``label:`` or the text up to a semicolon (of ``.loc``: up to the end of line)."""
    size = len(text)
    space = re.compile(r"[\s;]*")
    while True:
        at = space.match(text, at).end()  # type: ignore[union-attr]
        if at >= size:
            return
        if text[at] in "{}":
            yield text[at], at
            at += 1
        elif label := LABEL.match(text, at):
            yield label[1] + ":", at
            at = label.end()
        else:
            stop = "\n" if text.startswith((".loc", ".file"), at) else ";"
            end = text.find(stop, at)
            end = size if end < 0 else end
            yield " ".join(text[at:end].split()), at
            at = end + 1
