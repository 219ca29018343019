# ruff: noqa
import functools, sys


class Evil:
    def __reduce__(self):
        raise RuntimeError("no way")


evil = Evil()


class Exits:
    def __reduce__(self):
        raise SystemExit(3)


ex = Exits()
deep = []
for _ in range(100000):
    deep = [deep]


class Mem:
    def __getstate__(self):
        raise MemoryError


mem = Mem()


def closure_lru():
    @functools.lru_cache
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib


fib = closure_lru()
ok = [1]
ok2 = (ok, ok)


class FakeClass:
    @property
    def __class__(self):
        raise ValueError("x")


fc = FakeClass()


class LoudMeta(type):
    def __eq__(c, o):
        raise ValueError

    def __hash__(c):
        raise ValueError


class Loud(metaclass=LoudMeta):
    pass


ld = Loud()


class HasGetattr:
    def __getattr__(self, n):
        if n.startswith("__"):
            raise AttributeError(n)
        return n


hg = HasGetattr()


def g():
    yield


gg = {"deep": [g()]}
co = g


async def main():
    pass


coro = main()
import socket

sk = socket.socket()
tb = None
try:
    1 / 0
except Exception as e:
    tb = e.__traceback__
    exc = e
fr = sys._getframe()
it = iter([1, 2, 3])
mv = memoryview(b"x")
cls_with_bad = type("Bad", (), {"attr": g()})


def uses():
    return ok


uses2 = [uses, {"f": uses}]


def unset_cell():
    if 0:
        zz = 1

    def f():
        return zz

    return f


uc = unset_cell()


class A:
    def __init__(self):
        self.b = B(self)


class B:
    def __init__(self, a):
        self.a = a


ab = A()
A.instance = ab


def f():
    pass


f.self = f
f.cls = A


def kw(*, a=[1], b):
    return a


class K:
    def m(self, x=ok):
        return x

    n = m
    alias = staticmethod(m)


K.k = K
import collections.abc


class Seq(collections.abc.Sequence):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return i


sq = Seq()


class Mapped(dict):
    extra = 1


mp = Mapped(a=1)
mp.x = 5


class L(list):
    pass


l = L([1])
l.append(l)


class Hashed:
    def __init__(self, k):
        self.k = k

    def __hash__(self):
        return hash(self.k)

    def __eq__(self, o):
        return self.k == o.k


hs = {Hashed(1): "a"}


class Red:
    def __init__(self, n):
        self.n = n

    def __reduce__(self):
        return rebuild, (self.n,)


def rebuild(n):
    return Red(helper(n))


def helper(n):
    return n * FACTOR


FACTOR = 1
rd = [Red(7)]


class SubInit(Exception):
    def __reduce__(self):
        return (SubInit, ())


import threading

th = threading.Thread(target=f)
loc = threading.local()
import decimal, datetime, fractions, uuid, pathlib, ipaddress, array

lib = [
    decimal.Decimal("1.5"),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
    fractions.Fraction(1, 3),
    uuid.UUID(int=5),
    pathlib.Path("/x"),
    array.array("i", [1]),
]
import logging

log = logging.getLogger("x")
import io

sio = io.StringIO("abc")
sio.read(1)
