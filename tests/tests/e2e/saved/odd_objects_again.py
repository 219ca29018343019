# ruff: noqa
assert fib(20) == 6765
assert ok2[0] is ok is uses() is K().m() and uses2[0] is uses is uses2[1]["f"]
for n in "evil ex deep mem gg coro sk tb fr mv th loc".split():
    assert n not in globals(), n
assert hg.zip == "zip"
try:
    uc()
    assert 0
except NameError:
    pass
assert ab.b.a is ab and A.instance is ab and f.self is f and f.cls is A
assert kw(b=1) == [1] and K.k is K and K.__dict__["n"] is K.__dict__["m"]
assert len(sq) == 2
assert mp == {"a": 1} and mp.x == 5 and l[1] is l and hs[Hashed(1)] == "a" and rd[0].n == 7
assert lib[0] == decimal.Decimal("1.5") and log.name == "x" and sio.read() == "bc"
assert str(exc) == "division by zero"
