# ruff: noqa
import sys, traceback, inspect

assert a["x"] is shared is b[0] is b[1] is sq.__defaults__[0] is annotated.attr
assert cyc[0] is cyc
assert bump() == 1 and bump() == 2 and count == 2
assert fact(5) == 120 and part() == 120 and wrapped(4) == 24
assert up() == 2 and get() == 2
assert rc(4) == 4 and sq(2)[0] == 4 and sq(2)[2] == 3
assert cached(1) == 3 and cached.cache_info().maxsize == 32
assert decorated(1) == (1, 1) and decorated(1) == (1, 2) and decorated.__name__ == "decorated"
assert p == Point(3, 4) and p.norm() == 25 and repr(p) == "Point(x=3, y=4, tags=[])"
assert [f.name for f in dataclasses.fields(p)] == ["x", "y", "tags"] and dataclasses.replace(p, x=1).x == 1
assert fr < Fr(2) and hash(fr) == hash(Fr(1))
try:
    fr.a = 3
    assert 0
except dataclasses.FrozenInstanceError:
    pass
assert not hasattr(fr, "__dict__")
assert (
    col is Colour.BLUE
    and Colour("b") is col
    and Colour.ALIAS is Colour.RED
    and col.describe() == "blue"
    and Colour(99) is Colour.RED
)
assert colours[Colour.RED] == "r" and Planet.EARTH.mass == 5.9 and list(Colour) == [Colour.RED, Colour.BLUE]
assert rw == Perm.R | Perm.W and Perm.R in rw and Num.ONE == 1 and StrE.A == "aa" and StrE("aa") is StrE.A
assert (
    nt == NT(1)
    and nt.total() == 1
    and nt._replace(a=2).a == 2
    and old._asdict() == {"u": 1, "v": 2}
    and type(old) is Old
)
assert TD(k=1) == {"k": 1} and TD.__total__ is False and TD.__annotations__["k"] in (int,)
assert box.v == 4 and Box.__parameters__ == (T,) and box.__orig_class__.__args__ == (int,)
assert isinstance(impl, Sup2) and isinstance(impl, Abs) and impl.go() == "went"
try:
    Abs()
    assert 0
except TypeError:
    pass
try:
    Sup()
    assert 0
except TypeError:
    pass
assert Meta.made == ["WithMeta"] and wm.by_meta and WithMeta().by_meta


class M2(metaclass=Meta):
    pass


assert Meta.made == ["WithMeta", "M2"]
assert Base.registry == [("Child", "t")], Base.registry


class C2(Base, tag="u"):
    pass


assert Base.registry[-1] == ("C2", "u")
assert ch.twice == 2 and ch.st() == "st" and ch.cl() == "Child" and ch.cp == "cp1" and Child().inited and inner.z == 9
ch.twice = 10
assert ch.c == 5
assert sl.p == 1 and sl.q() == 2 and not hasattr(sl, "__dict__")
weakref.ref(sl)
assert node.next is node and node.me is Node is type(node)
assert err.b == 3 and err.args == ("x",) and isinstance(err, Err)
assert asyncio.run(co(1)) == 2
with cm() as v:
    assert v == "in"
assert list(gen()) == [1] and "g" not in globals()
assert out is sys.stdout and missing is dataclasses.MISSING and rx.match("aa") and ig([1, 2]) == 2
assert bm() == 25 and bm.__self__ is p
assert glob is globals() is globlist[0]
assert eval(code_obj) == 2 and mod.v == 3 and wd[node] == "n" and UserId(4) == 4
assert sd(1) == "int" and sd("x") == "obj"
assert dd["b"] == [] and od["a"] == 1 and dq.maxlen == 3
assert typ[1] is type(None) and typ[2] is type(fact) and typ[6] == Box[int]
assert (
    env is os.environ
    and big == 10**100
    and annotated.__doc__ == "doc"
    and typing.get_type_hints(annotated)["x"] is Point
)
assert later.cls_cell() is Later and "Later" in later.with_super() and typing.get_type_hints(Later)["nxt"] is Later
try:
    raiser()
except ValueError as e:
    assert traceback.extract_tb(e.__traceback__)[-1].filename == "<cell 1>"
assert ud.d1 == "d1" and Desc.names == ["d1"]
assert md.parseString("<a/>") and inst_method_closure() is shared and dpt["a"] == 1
assert Point.__eq__.__globals__ is globals()
assert Point.__module__ == "__main__" and Child.Inner.__qualname__ == "Child.Inner"
if np is not None:
    assert arr.sum() == 10 and f64 == 2.5 and type(f64) is np.float64 and dt == np.int32 and npf is np.sin
