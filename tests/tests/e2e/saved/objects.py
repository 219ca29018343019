# ruff: noqa
import os.path, json, collections as c, functools, dataclasses, enum, typing, abc, contextlib, asyncio, threading, re, operator, weakref, xml.dom.minidom as md
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict, Generic, TypeVar, Protocol

shared = [1, 2]
a = {"x": shared}
b = (shared, shared)
cyc = []
cyc.append(cyc)
count = 0


def bump():
    global count
    count += 1
    return count


def fact(n):
    return 1 if n < 2 else n * fact(n - 1)


def counter():
    n = 0

    def up():
        nonlocal n
        n += 1
        return n

    def get():
        return n

    return up, get


up, get = counter()
up()


def rec_closure():
    def f(n):
        return 0 if n == 0 else 1 + f(n - 1)

    return f


rc = rec_closure()
sq = lambda x, y=shared, *, k=3: (x * x, y, k)


@functools.lru_cache(maxsize=32)
def cached(n):
    return n + count


@functools.wraps(fact)
def wrapped(n):
    return fact(n)


def deco(f):
    calls = []

    @functools.wraps(f)
    def inner(*args):
        calls.append(args)
        return f(*args), len(calls)

    return inner


@deco
def decorated(x):
    return x


part = functools.partial(fact, 5)


@dataclass
class Point:
    x: int
    y: int = 2
    tags: list = field(default_factory=list)

    def norm(self) -> "Point":
        return self.x**2 + self.y**2


@dataclass(frozen=True, slots=True, order=True)
class Fr:
    a: int
    b: str = "b"


p = Point(3, 4)
fr = Fr(1)


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"
    ALIAS = 1

    def describe(self):
        return self.name.lower()

    @classmethod
    def _missing_(cls, v):
        return cls.RED


class Planet(enum.Enum):
    EARTH = (5.9, 6.3)

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()


class Num(enum.IntEnum):
    ONE = 1


class StrE(str, enum.Enum):
    A = "aa"


col = Colour.BLUE
rw = Perm.R | Perm.W
colours = {Colour.RED: "r"}


class NT(NamedTuple):
    a: int
    b: str = "x"

    def total(self):
        return self.a


nt = NT(1)
Old = c.namedtuple("Old", "u v")
old = Old(1, 2)


class TD(TypedDict, total=False):
    k: int


T = TypeVar("T", bound=int)


class Box(Generic[T]):
    def __init__(self, v):
        self.v = v


box = Box[int](4)


class Sup(Protocol):
    def close(self) -> None: ...


@typing.runtime_checkable
class Sup2(Protocol):
    def close(self) -> None: ...


class Abs(abc.ABC):
    @abc.abstractmethod
    def go(self): ...


class Impl(Abs):
    def go(self):
        return "went"

    def close(self):
        pass


impl = Impl()


class Meta(type):
    made = []

    def __new__(m, name, bases, ns, **kw):
        cls = super().__new__(m, name, bases, ns)
        Meta.made.append(name)
        return cls

    def __call__(cls, *a, **k):
        o = super().__call__(*a, **k)
        o.by_meta = True
        return o


class WithMeta(metaclass=Meta):
    pass


wm = WithMeta()


class Base:
    registry = []

    def __init_subclass__(cls, tag="none", **kw):
        Base.registry.append((cls.__name__, tag))

    def __init__(self):
        self.inited = True


class Child(Base, tag="t"):
    def __init__(self):
        super().__init__()
        self.c = 1

    @property
    def twice(self):
        return self.c * 2

    @twice.setter
    def twice(self, v):
        self.c = v // 2

    @staticmethod
    def st():
        return "st"

    @classmethod
    def cl(cls):
        return cls.__name__

    @functools.cached_property
    def cp(self):
        return "cp%d" % self.c

    def __getstate__(self):
        return {"c": self.c}

    def __setstate__(self, s):
        self.c = bump_free(s["c"])

    class Inner:
        z = 9


def bump_free(x):
    return x


ch = Child()
inner = Child.Inner()


class Slot:
    __slots__ = ("p", "__q", "__weakref__")

    def __init__(self):
        self.p = 1
        self.__q = 2

    def q(self):
        return self.__q


sl = Slot()


class Node:
    def __init__(self):
        self.next = self
        self.me = Node


node = Node()


class Err(Exception):
    def __init__(self, a, b=None):
        super().__init__(a)
        self.b = b


err = Err("x", 3)


async def co(x):
    await asyncio.sleep(0)
    return x + 1


@contextlib.contextmanager
def cm():
    yield "in"


def gen():
    yield 1


g = gen()
lock = threading.Lock()
fh = open("/dev/null")
out = __import__("sys").stdout
missing = dataclasses.MISSING
rx = re.compile("a+")
ig = operator.itemgetter(1)
bm = p.norm
glob = globals()
globlist = [globals()]
code_obj = compile("1+1", "<cell 1>", "eval")
mod = types_mod = __import__("types").ModuleType("dyn")
mod.v = 3
wd = weakref.WeakKeyDictionary()
wd[node] = "n"
UserId = typing.NewType("UserId", int)


@functools.singledispatch
def sd(x):
    return "obj"


@sd.register(int)
def _sd_int(x):
    return "int"


dd = c.defaultdict(list)
dd["a"].append(1)
od = c.OrderedDict(a=1)
dq = c.deque([1], 3)
typ = [int, type(None), type(fact), list[int], typing.Optional[int], int | str, Box[int], dict]
env = os.environ
big = 10**100


def annotated(x: "Point", y: int = 3) -> "list[Point]":
    "doc"
    return x


annotated.attr = shared


class Later:
    nxt: "Later"
    val: int = 0

    def with_super(self):
        return super().__repr__()

    def cls_cell(self):
        return __class__


later = Later()


def raiser():
    raise ValueError("boom")


import random as rnd

rint = rnd.random


class Desc:
    def __set_name__(self, o, n):
        self.n = n
        Desc.names = getattr(Desc, "names", []) + [n]

    def __get__(self, i, o):
        return self.n


class UsesDesc:
    d1 = Desc()


ud = UsesDesc()
dpt = c.ChainMap({"a": 1})
x: int = 5
inst_method_closure = (lambda s: lambda: s)(shared)
try:
    import numpy as np

    arr = np.arange(5)
    arr2 = arr[1:3]
    f64 = np.float64(2.5)
    dt = np.dtype("int32")
    npf = np.sin
except ImportError:
    np = None
