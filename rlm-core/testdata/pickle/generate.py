"""Writes cases.json: plain values as CPython pickles them in every protocol, with their repr.

Run it from anywhere with any CPython from 3.8 on: python3 generate.py
"""

import base64
import json
import pickle
from pathlib import Path

PROTOCOLS = range(6)


def cases():
    yield "none", None
    yield "true", True
    yield "false", False
    for power in (0, 7, 8, 15, 16, 31, 32, 63, 64, 65, 200, 2100):
        for off in (-1, 0, 1):
            yield f"2**{power}{off:+}", 2**power + off
            yield f"-(2**{power}{off:+})", -(2**power + off)
    for text in ("0.0", "-0.0", "1.5", "-1e300", "5e-324", "1e16", "1e-05", "0.1", "nan", "inf", "-inf"):
        yield f"float {text}", float(text)

    yield "empty str", ""
    yield "str", "text"
    yield "str that pickles escape", "a\\b\n\r\0\x1a\\u0041'\"\t\x7f\x80\xad"
    yield "str with quote", "it's"
    yield "str of every plane", "é ß – 漢字 \U0001f600 e\u0301 \u200b\u2028\ufeff\U000e0001"
    yield "str of 255 bytes", "x" * 255
    yield "str of 256 bytes", "x" * 256
    yield "empty bytes", b""
    yield "bytes", b"bytes\0\xff'\n\\"
    yield "every byte", bytes(range(256))
    yield "empty bytearray", bytearray()
    yield "bytearray", bytearray(b"ab\xe9\0'\"")

    for length in (0, 1, 2, 3, 4, 5):
        yield f"tuple of {length}", tuple(range(length))
        yield f"list of {length}", list(range(length))
        yield f"dict of {length}", {f"key {number}": number for number in range(length)}
        yield f"set of {length}", set(range(length))
        yield f"frozenset of {length}", frozenset(range(length))
    yield "list over two batches", [None] * 1001
    yield "dict over two batches", {number: None for number in range(1001)}
    yield "set over two batches", set(range(1001))

    yield "dict order", {"z": 1, "a": 2, "m": 3, "b": {"y": 1, "x": 2}}
    yield "keys that are no str", {None: 1, True: 2, 0: 3, 1.5: 4, b"b": 5, (1, ("a",)): 6, frozenset({7}): 7}
    yield "nested", {"rows": [{"id": 1, "tags": ("a", b"b")}, {"id": 2, "tags": ()}], "none": [None, [[]], {}]}
    yield "set of tuples", {(1, "a", None, frozenset({b"x"}))}
    yield "deep", deep(150)

    rows = [{"a": 1}, {"b": [2]}]
    yield "shared at two levels", {"x": rows, "y": list(rows)}
    a = []
    b = [a, a]
    yield "shared and shared again", [b, b]
    a.append(1)
    yield "shared str, bytes, tuple, set", [["s" * 9, b"b" * 9, (1, a), {2}, frozenset({3}), bytearray(b"c")]] * 2
    yield "shared key", [{"long key " * 9: 1}, {"long key " * 9: 2}]
    yield "shared large int", [2**100] * 2


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def case(name, value, shown=None):
    pickles = [base64.b64encode(pickle.dumps(value, protocol)).decode() for protocol in PROTOCOLS]
    return {"name": name, "repr": repr(value) if shown is None else shown, "pickles": pickles}


def main():
    written = [case(name, value) for name, value in cases()]
    # Lone surrogates: read as U+FFFD.
    written.append(case("surrogates", ["a\ud800b", "\udfff\ud800"], repr(["a\ufffdb", "\ufffd\ufffd"])))
    lines = ",\n".join(json.dumps(case) for case in written)
    Path(__file__).with_name("cases.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
