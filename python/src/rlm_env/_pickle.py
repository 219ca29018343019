"""Pickles as plain data: a reader that looks nothing up and calls nothing, and a writer of what sessions read.

A pickle is a program for a small stack machine, and `pickle.loads` lets that program call anything. The machine here
can only build None, bool, int, float, str, bytes, bytearray, tuple, list, dict, set and frozenset. Anything else is
refused, by an error that names it. The limits are those of the reader in `rlm-core/src/pickle`, which is as strict.
"""

from __future__ import annotations

import codecs
import pickle
import re
import struct
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 200
"""Levels of containers."""

MAX_KEY_PARTS = 10_000
"""Values in a key of a dict or an element of a set, each counted as often as it occurs."""

MAX_INT_BYTES = 4096
"""Size of an int."""

_MAX_DIGITS = 4300
_MAX_MEMO_INDEX = 1 << 24

_MARK = object()
_PLAIN: tuple[Any, ...] = (bool, int, float, str, bytes, bytearray)


class Refused(ValueError):
    """A pickle that holds something other than plain data."""


def loads(data: bytes) -> Any:
    """The value of a pickle of protocol 0 to 5. Raises Refused."""
    machine = _Machine(data)
    try:
        value = machine.run()
    except Refused as error:
        raise Refused(f"{error}, at byte {machine.opcode_at}") from None
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise Refused(f"not a pickle ({error or type(error).__name__}), at byte {machine.opcode_at}") from None
    _check(value)
    return value


class _Machine:
    """The stack machine of pickles, without any opcode that could do something."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.opcode_at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            self.opcode_at = self.at
            opcode = self.take(1)
            if opcode == pickle.STOP:
                break
            operation = _OPERATIONS.get(opcode)
            if operation is None:
                raise Refused(f"the opcode {opcode!r}: only plain data is read")
            operation(self)
        if len(self.stack) != 1 or self.at != len(self.data):
            raise Refused(
                f"{len(self.stack)} values and {len(self.data) - self.at} further bytes at the end, not 1 and 0"
            )
        return self.stack[0]

    def take(self, count: int) -> bytes:
        """The next bytes. A length is trusted only once that many bytes are there."""
        part = self.data[self.at : self.at + count]
        if len(part) < count or count < 0:
            raise Refused("the pickle ends too early")
        self.at += count
        return part

    def integer(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        return self.take(end + 1 - self.at)[:-1]

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise Refused("too few values on the stack")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        if any(item is _MARK for item in items):
            raise Refused("a mark where a value is expected")
        return items

    def pop_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise Refused("no mark on the stack")

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise Refused(f"no {kind.__name__} on the stack")
        return self.stack[-1]

    def fill(self, items: list[Any]) -> None:
        if len(items) % 2:
            raise Refused("a key without a value")
        self.top(dict).update(zip(_hashables(items[::2]), items[1::2], strict=True))

    def protocol(self) -> None:
        if (protocol := self.integer(1)) > 5:
            raise Refused(f"protocol {protocol}: expected 0 to 5")

    def decimal(self, line: bytes) -> int:
        if re.fullmatch(rb"-?[0-9]{1,%d}" % _MAX_DIGITS, line) is None:
            raise Refused(f"{line[:20]!r} is not a decimal int of at most {_MAX_DIGITS} digits")
        return int(line)

    def text_integer(self) -> None:
        line = self.line()
        # Protocol 0 writes bools this way.
        self.stack.append(line == b"01" if line in (b"00", b"01") else self.decimal(line))

    def text_float(self) -> None:
        line = self.line()
        if b"_" in line or len(line) > _MAX_DIGITS:
            raise Refused(f"{line[:20]!r} is not a float")
        self.stack.append(float(line))

    def frame(self) -> None:
        if self.integer(8) > len(self.data) - self.at:
            raise Refused("the pickle ends too early")

    def remember(self, index: int) -> None:
        if not 0 <= index <= _MAX_MEMO_INDEX:
            raise Refused(f"memo index {index} over the limit of {_MAX_MEMO_INDEX}")
        self.memo[index] = self.stack[-1]

    def string(self) -> None:
        line = self.line().strip()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
            raise Refused("a string without quotes")
        self.stack.append(codecs.escape_decode(line[1:-1])[0].decode("ascii"))

    def find_global(self, module: str, name: str) -> None:
        if module in ("builtins", "__builtin__") and name in ("set", "frozenset", "bytes", "bytearray"):
            self.stack.append(_Global(name))
        elif (module, name) == ("_codecs", "encode"):
            self.stack.append(_Global(name))
        else:
            raise Refused(f"the global {module}.{name}: only plain data is read")

    def reduce(self) -> None:
        function, arguments = self.pop(2)
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise Refused("a call: only plain data is read")
        self.stack.append(_call(function.name, arguments))


_Operation = Callable[[_Machine], object]


def _constant(value: Any) -> _Operation:
    return lambda machine: machine.stack.append(value)


def _number(size: int, signed: bool = False) -> _Operation:
    return lambda machine: machine.stack.append(machine.integer(size, signed))


def _long(size: int) -> _Operation:
    def operation(machine: _Machine) -> None:
        if (length := machine.integer(size)) > MAX_INT_BYTES:
            raise Refused(f"an int of {length} bytes: at most {MAX_INT_BYTES} are read")
        machine.stack.append(int.from_bytes(machine.take(length), "little", signed=True))

    return operation


def _sized(size: int, decode: Callable[[bytes], Any]) -> _Operation:
    return lambda machine: machine.stack.append(decode(machine.take(machine.integer(size))))


def _new(kind: Callable[[], Any]) -> _Operation:
    return lambda machine: machine.stack.append(kind())


def _of_mark(kind: Callable[[list[Any]], Any]) -> _Operation:
    return lambda machine: machine.stack.append(kind(machine.pop_mark()))


def _of(count: int) -> _Operation:
    return lambda machine: machine.stack.append(tuple(machine.pop(count)))


def _remember(index: Callable[[_Machine], int]) -> _Operation:
    return lambda machine: machine.remember(index(machine))


def _recall(index: Callable[[_Machine], int]) -> _Operation:
    return lambda machine: machine.stack.append(machine.memo[index(machine)])


def _dict_of_mark(machine: _Machine) -> None:
    items = machine.pop_mark()
    machine.stack.append({})
    machine.fill(items)


def _extend(kind: type, method: str, items: Callable[[_Machine], list[Any]]) -> _Operation:
    def operation(machine: _Machine) -> None:
        added = items(machine)
        getattr(machine.top(kind), method)(added)

    return operation


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _ascii(data: bytes) -> str:
    return data.decode("ascii")


_OPERATIONS: dict[bytes, _Operation] = {
    pickle.PROTO: _Machine.protocol,
    pickle.FRAME: _Machine.frame,
    pickle.NONE: _constant(None),
    pickle.NEWTRUE: _constant(True),
    pickle.NEWFALSE: _constant(False),
    pickle.INT: _Machine.text_integer,
    pickle.LONG: lambda machine: machine.stack.append(machine.decimal(machine.line().removesuffix(b"L"))),
    pickle.BININT: _number(4, signed=True),
    pickle.BININT1: _number(1),
    pickle.BININT2: _number(2),
    pickle.LONG1: _long(1),
    pickle.LONG4: _long(4),
    pickle.FLOAT: _Machine.text_float,
    pickle.BINFLOAT: lambda machine: machine.stack.append(struct.unpack(">d", machine.take(8))[0]),
    pickle.STRING: _Machine.string,
    pickle.BINSTRING: _sized(4, _ascii),
    pickle.SHORT_BINSTRING: _sized(1, _ascii),
    pickle.UNICODE: lambda machine: machine.stack.append(machine.line().decode("raw-unicode-escape")),
    pickle.BINUNICODE: _sized(4, _utf8),
    pickle.SHORT_BINUNICODE: _sized(1, _utf8),
    pickle.BINUNICODE8: _sized(8, _utf8),
    pickle.BINBYTES: _sized(4, bytes),
    pickle.SHORT_BINBYTES: _sized(1, bytes),
    pickle.BINBYTES8: _sized(8, bytes),
    pickle.BYTEARRAY8: _sized(8, bytearray),
    pickle.MARK: _constant(_MARK),
    pickle.POP: lambda machine: machine.stack.pop(),
    pickle.POP_MARK: _Machine.pop_mark,
    pickle.DUP: lambda machine: machine.stack.append(machine.stack[-1]),
    pickle.EMPTY_TUPLE: _new(tuple),
    pickle.TUPLE: _of_mark(tuple),
    pickle.TUPLE1: _of(1),
    pickle.TUPLE2: _of(2),
    pickle.TUPLE3: _of(3),
    pickle.EMPTY_LIST: _new(list),
    pickle.LIST: _of_mark(list),
    pickle.APPEND: _extend(list, "extend", lambda machine: machine.pop(1)),
    pickle.APPENDS: _extend(list, "extend", _Machine.pop_mark),
    pickle.EMPTY_DICT: _new(dict),
    pickle.DICT: _dict_of_mark,
    pickle.SETITEM: lambda machine: machine.fill(machine.pop(2)),
    pickle.SETITEMS: lambda machine: machine.fill(machine.pop_mark()),
    pickle.EMPTY_SET: _new(set),
    pickle.ADDITEMS: _extend(set, "update", lambda machine: _hashables(machine.pop_mark())),
    pickle.FROZENSET: lambda machine: machine.stack.append(frozenset(_hashables(machine.pop_mark()))),
    pickle.PUT: _remember(lambda machine: machine.decimal(machine.line())),
    pickle.BINPUT: _remember(lambda machine: machine.integer(1)),
    pickle.LONG_BINPUT: _remember(lambda machine: machine.integer(4)),
    pickle.MEMOIZE: _remember(lambda machine: len(machine.memo)),
    pickle.GET: _recall(lambda machine: machine.decimal(machine.line())),
    pickle.BINGET: _recall(lambda machine: machine.integer(1)),
    pickle.LONG_BINGET: _recall(lambda machine: machine.integer(4)),
    pickle.GLOBAL: lambda machine: machine.find_global(_utf8(machine.line()), _utf8(machine.line())),
    pickle.STACK_GLOBAL: lambda machine: machine.find_global(*machine.pop(2)),
    pickle.REDUCE: _Machine.reduce,
}


class _Global:
    """One of the few globals that pickles of plain data need."""

    def __init__(self, name: str) -> None:
        self.name = name


def _call(name: str, arguments: tuple[Any, ...]) -> Any:
    kinds = tuple(type(argument) for argument in arguments)
    if name == "encode":
        if kinds == (str, str) and arguments[1] in ("latin1", "latin-1"):
            return arguments[0].encode("latin-1")
    elif name in ("set", "frozenset"):
        kind: Any = set if name == "set" else frozenset
        if not kinds:
            return kind()
        if len(kinds) == 1 and kinds[0] in (list, tuple, set, frozenset):
            return kind(_hashables(list(arguments[0])))
    else:
        octets: Any = bytes if name == "bytes" else bytearray
        if not kinds:
            return octets()
        if len(kinds) == 1 and kinds[0] in (bytes, bytearray, list, tuple):
            return octets(arguments[0])
        if kinds == (str, str) and arguments[1] in ("latin1", "latin-1"):
            return octets(arguments[0].encode("latin-1"))
    raise Refused(f"a call of {name} that no pickle of plain data has")


def _hashables(values: list[Any]) -> list[Any]:
    """Values that are to be hashed. Python hashes what they contain without a limit on depth or time."""
    for value in values:
        if type(value) not in _PLAIN:
            rest, parts = [(value, 1)], 0
            while rest:
                part, depth = rest.pop()
                parts += 1
                if depth > MAX_DEPTH or parts > MAX_KEY_PARTS:
                    raise Refused(f"a key of more than {MAX_DEPTH} levels or {MAX_KEY_PARTS} parts")
                if isinstance(part, (tuple, frozenset)):
                    rest.extend((child, depth + 1) for child in part)
    return values


_CONTAINERS = (dict, list, tuple, set, frozenset)


def _check(value: object) -> None:
    """Refuses globals and marks as values, structures that contain themselves, and deep ones."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        below: dict[int, Any] = {}
        for container in level:
            parts = container.items() if isinstance(container, dict) else (container,)
            for child in (child for part in parts for child in part):
                if isinstance(child, _CONTAINERS):
                    below[id(child)] = child
                elif child is _MARK or isinstance(child, _Global):
                    raise Refused("a global or a mark as a value")
        if not below:
            return
        level = list(below.values())
    raise Refused(f"more than {MAX_DEPTH} levels of containers, or one that contains itself")


class Unsendable(TypeError):
    """A value that a session cannot hold."""


def dumps(value: object) -> bytes:
    """A pickle of plain data. Values of subclasses go as their base: a namedtuple as a tuple. Raises Unsendable."""
    return pickle.dumps(plain(value), protocol=4)


def plain(value: Any) -> Any:
    """The value as plain data. Raises Unsendable, which says where the other data is."""
    try:
        return _plain(value, {}, 0)
    except _NotPlain as error:
        path = "the result" + "".join(reversed(error.path))
        if error.kind is None:
            path = path if len(path) <= 80 else f"{path[:80]}…"
            raise Unsendable(f"{path} is nested deeper than {MAX_DEPTH} levels, or contains itself") from None
        raise Unsendable(
            f"{path} is a {error.kind.__module__}.{error.kind.__qualname__}, which a session cannot hold: "
            "return None, bool, int, float, str, bytes, or tuples, lists, dicts and sets of them"
        ) from None


class _NotPlain(Exception):
    def __init__(self, kind: type | None) -> None:
        self.kind = kind
        self.path: list[str] = []


_SCALARS: tuple[tuple[type, Any], ...] = (
    (bool, bool),
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (bytearray, lambda value: bytearray.__getitem__(value, slice(None))),
)


def _plain(value: Any, done: dict[int, Any], depth: int) -> Any:
    kind = type(value)
    if value is None or kind in _PLAIN:
        return value
    if id(value) in done:
        return done[id(value)]
    if depth > MAX_DEPTH:
        raise _NotPlain(None)
    at: Any = None
    result: Any
    try:
        if isinstance(value, dict):
            result = {}
            for at, item in dict.items(value):
                result[_plain(at, done, depth + 1)] = _plain(item, done, depth + 1)
        elif (base := _base(value)) is not None:
            items = []
            for at, item in enumerate(base.__iter__(value)):
                items.append(_plain(item, done, depth + 1))
            result = base(items)
        else:
            for scalar, convert in _SCALARS:
                if isinstance(value, scalar):
                    return convert(value)
            raise _NotPlain(kind)
    except _NotPlain as error:
        if at is not None:
            error.path.append(f"[{at!r}]" if type(at) in (str, int) else "[…]")
        raise
    done[id(value)] = result
    return result


def _base(value: object) -> Any:
    return next((base for base in (list, tuple, set, frozenset) if isinstance(value, base)), None)
