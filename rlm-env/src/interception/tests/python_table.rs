//! Python snippets and their exact plans.

#[rustfmt::skip] // one line of output on a line
pub(super) const ACCEPTED: &[(&str, &[&str])] = &[
    ("info = nav_info()\n", &[
        "1:8 nav_info() -> $1",
        "info = $1\n",
    ]),
    ("info = nav_info()", &[
        "1:8 nav_info() -> $1",
        "info = $1",
    ]),
    ("info=nav_info ( )   # what is there\n", &[
        "1:6 nav_info() -> $1",
        "info=$1   # what is there\n",
    ]),
    ("ls = nav_ls('src'); print(ls)\n", &[
        "1:6 nav_ls('src') -> $1",
        "ls = $1; print(ls)\n",
    ]),
    ("a = 1; info = nav_info(); b = 2\n", &[
        "1:15 nav_info() -> $1",
        "a = 1; info = $1; b = 2\n",
    ]),
    ("x = nav_info();\n", &[
        "1:5 nav_info() -> $1",
        "x = $1;\n",
    ]),
    ("x = budget()\ny = nav_ls(scope=\"a\")\nz = budget()\n", &[
        "1:5 budget() -> $1",
        "2:5 nav_ls(scope='a') -> $2",
        "3:5 budget() -> $3",
        "x = $1\ny = $2\nz = $3\n",
    ]),
    ("text = nav_read('a.py', 2)\n", &[
        "1:8 nav_read('a.py', 2) -> $1",
        "text = $1\n",
    ]),
    ("text = nav_read(symbol_or_path='a.py', chunk_index=2,)\n", &[
        "1:8 nav_read(symbol_or_path='a.py', chunk_index=2) -> $1",
        "text = $1\n",
    ]),
    ("a = llm_batch([\"p\", 'q', r'\\n', \"\"\"t\n\"s\"\"\"])\nb = 1 / 0\n", &[
        "1:5 llm_batch(['p', 'q', '\\\\n', 't\\n\"s']) -> $1",
        "a = ($1\n)\nb = 1 / 0\n",
    ]),
    ("a = llm_batch([\n    'p',  # one\n    'q',\n])  # two\nprint(a)\n", &[
        "1:5 llm_batch(['p', 'q']) -> $1",
        "a = ($1\n\n\n)  # two\nprint(a)\n",
    ]),
    ("a = llm_batch(\r\n    ['p'],\r\n)\r\nprint(a)\r\n", &[
        "1:5 llm_batch(['p']) -> $1",
        "a = ($1\r\n\r\n)\r\nprint(a)\r\n",
    ]),
    ("a = llm_batch(['''x\r\ny\\r\rz'''])\n", &[
        "1:5 llm_batch(['x\\ny\\r\\nz']) -> $1",
        "a = ($1\r\n\r)\n",
    ]),
    ("a = llm_batch('''x\r\ny''')\n", &[
        "1:5 llm_batch('x\\ny') -> $1",
        "a = ($1\r\n)\n",
    ]),
    ("a = nav_ls(b'x\\x00\\n' b\"y\")\r\n", &[
        "1:5 nav_ls(b'x\\x00\\ny') -> $1",
        "a = $1\r\n",
    ]),
    ("x =\tnav_info(\t)\t# tab\n", &[
        "1:5 nav_info() -> $1",
        "x =\t$1\t# tab\n",
    ]),
    ("\u{c}x = nav_info()\n", &[
        "1:6 nav_info() -> $1",
        "\u{c}x = $1\n",
    ]),
    ("a = nav_ls('a' \"b\" '''c''')\n", &[
        "1:5 nav_ls('abc') -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls(1, -1, +1, - -1, 1.5, -2e3, 1e400, .5, 5.)\n", &[
        "1:5 nav_ls(1, -1, 1, 1, 1.5, -2000.0, inf, 0.5, 5.0) -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls(0xFF, 0o17, 0b101, 1_000, 0x_ff, 00, -0)\n", &[
        "1:5 nav_ls(255, 15, 5, 1000, 255, 0, 0) -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls(123456789012345678901234567890, -0x80000000000000000000)\n", &[
        "1:5 nav_ls(123456789012345678901234567890, -604462909807314587353088) -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls(None, True, False)\n", &[
        "1:5 nav_ls(None, True, False) -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls((), (1,), (1, 2), [], [[1], (2,)], {}, {1, 2})\n", &[
        "1:5 nav_ls((), (1,), (1, 2), [], [[1], (2,)], {}, {1, 2}) -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls({'b': 1, 'a': [2], 'b': 3, (1, 'x'): None})\n", &[
        "1:5 nav_ls({'b': 3, 'a': [2], (1, 'x'): None}) -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls({1: 'a', True: 'b', 1.0: 'c'})\n", &[
        "1:5 nav_ls({1: 'c'}) -> $1",
        "a = $1\n",
    ]),
    ("a = nav_ls('é\\u00e9\\N{LATIN SMALL LETTER E WITH ACUTE}\\x41\\101\\\\ud800\\\n!')\n", &[
        "1:5 nav_ls('éééAA\\\\ud800!') -> $1",
        "a = ($1\n)\n",
    ]),
    ("a = nav_ls(r'\\ud800', '\\\\ud800', b'\\ud800')\n", &[
        "1:5 nav_ls('\\\\ud800', '\\\\ud800', b'\\\\ud800') -> $1",
        "a = $1\n",
    ]),
    ("é = '日本'; a = nav_ls('日本語')\n", &[
        "1:15 nav_ls('日本語') -> $1",
        "é = '日本'; a = $1\n",
    ]),
    ("数 = nav_info()\n", &[
        "1:5 nav_info() -> $1",
        "数 = $1\n",
    ]),
    ("a = ｎａｖ_info()\n", &[
        "1:5 nav_info() -> $1",
        "a = $1\n",
    ]),
    ("a = (nav_info())\n", &[
        "1:6 nav_info() -> $1",
        "a = ($1)\n",
    ]),
    ("(a) = nav_info()\n", &[
        "1:7 nav_info() -> $1",
        "(a) = $1\n",
    ]),
    ("a = (nav_info)('x')\n", &[
        "1:5 nav_info('x') -> $1",
        "a = $1\n",
    ]),
    ("a = (\n  nav_info\n  ('x')\n)\nb = 1\n", &[
        "2:3 nav_info('x') -> $1",
        "a = (\n  ($1\n)\n)\nb = 1\n",
    ]),
    ("a = \\\n  nav_info('x')\n", &[
        "2:3 nav_info('x') -> $1",
        "a = \\\n  $1\n",
    ]),
    ("a = nav_info \\\n  ('x')\nb = 1\n", &[
        "1:5 nav_info('x') -> $1",
        "a = ($1\n)\nb = 1\n",
    ]),
    ("if True:\n    x = 1\na = nav_info()\n", &[
        "3:5 nav_info() -> $1",
        "if True:\n    x = 1\na = $1\n",
    ]),
    ("def f(p):\n    return p.budget\na = nav_info()\n", &[
        "3:5 nav_info() -> $1",
        "def f(p):\n    return p.budget\na = $1\n",
    ]),
    ("import nav_info as n, budget as b\nfrom nav_info import x\nx = nav_info()\n", &[
        "3:5 nav_info() -> $1",
        "import nav_info as n, budget as b\nfrom nav_info import x\nx = $1\n",
    ]),
    ("f(budget=3); x.budget = 4; a = budget()\n", &[
        "1:32 budget() -> $1",
        "f(budget=3); x.budget = 4; a = $1\n",
    ]),
    ("match x:\n    case A(budget=1): pass\na = budget()\n", &[
        "3:5 budget() -> $1",
        "match x:\n    case A(budget=1): pass\na = $1\n",
    ]),
    ("async def f():\n    await g()\nawait f()\na = budget()\n", &[
        "4:5 budget() -> $1",
        "async def f():\n    await g()\nawait f()\na = $1\n",
    ]),
    ("a = 1\ra = budget()\rb = 2", &[
        "2:5 budget() -> $1",
        "a = 1\ra = $1\rb = 2",
    ]),
    ("a = nav_ls('#', \"'\", '(')  # nav_ls('b')\n", &[
        "1:5 nav_ls('#', \"'\", '(') -> $1",
        "a = $1  # nav_ls('b')\n",
    ]),
    ("a = llm_batch(((((['p'])))))\n", &[
        "1:5 llm_batch(['p']) -> $1",
        "a = $1\n",
    ]),
    ("def f():\n    for i in (1, 2):\n        if i: break\n        yield i\n    return 1\nwhile True: break\na = nav_info()\n", &[
        "7:5 nav_info() -> $1",
        "def f():\n    for i in (1, 2):\n        if i: break\n        yield i\n    return 1\nwhile True: break\na = $1\n",
    ]),
    ("from m import *\na = nav_info()\n", &[
        "2:5 nav_info() -> $1",
        "from m import *\na = $1\n",
    ]),
    ("class C:\n  x: int = 1\nc = nav_info()\n", &[
        "3:5 nav_info() -> $1",
        "class C:\n  x: int = 1\nc = $1\n",
    ]),
    ("\u{feff}x = nav_info()\n", &[
        "1:5 nav_info() -> $1",
        "\u{feff}x = $1\n",
    ]),
    ("def f():\n    class A((yield), m=(yield)): pass\n    @(yield)\n    def g(x=(yield)): pass\na = nav_info()\n", &[
        "5:5 nav_info() -> $1",
        "def f():\n    class A((yield), m=(yield)): pass\n    @(yield)\n    def g(x=(yield)): pass\na = $1\n",
    ]),
    ("def f():\n    global a, b\n    a = [a for b in [b]]\n    try: pass\n    except E: pass\n    except: pass\na = nav_info()\n", &[
        "7:5 nav_info() -> $1",
        "def f():\n    global a, b\n    a = [a for b in [b]]\n    try: pass\n    except E: pass\n    except: pass\na = $1\n",
    ]),
    ("x = [await i async for i in f()]; y = (await i for i in x)\na = nav_info()\n", &[
        "2:5 nav_info() -> $1",
        "x = [await i async for i in f()]; y = (await i for i in x)\na = $1\n",
    ]),
    ("async def f():\n    async with x as y: return [i async for i in y]\nlambda: (yield)\na = nav_info()\n", &[
        "4:5 nav_info() -> $1",
        "async def f():\n    async with x as y: return [i async for i in y]\nlambda: (yield)\na = $1\n",
    ]),
    ("from __future__ import annotations\na = nav_info()\n", &[
        "2:5 nav_info() -> $1",
        "from __future__ import annotations\na = $1\n",
    ]),
    ("def f():\n    a = 1\n    def g():\n        nonlocal a\na = nav_info()\n", &[
        "5:5 nav_info() -> $1",
        "def f():\n    a = 1\n    def g():\n        nonlocal a\na = $1\n",
    ]),
    ("class A:\n    b = (await i for i in ())\na = nav_info()\n", &[
        "3:5 nav_info() -> $1",
        "class A:\n    b = (await i for i in ())\na = $1\n",
    ]),
    ("try: pass\nexcept* OSError:\n    for i in (): break\na = nav_info()\n", &[
        "4:5 nav_info() -> $1",
        "try: pass\nexcept* OSError:\n    for i in (): break\na = $1\n",
    ]),
];

#[rustfmt::skip] // one line of output on a line
pub(super) const UNTOUCHED: &[(&str, &[&str])] = &[
    ("", &[
        "untouched",
    ]),
    ("print('hello')\n", &[
        "untouched",
    ]),
    ("# nav_info()\nprint('nav_info()')\n", &[
        "untouched",
    ]),
    ("x = nav_info(\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nif True\n", &[
        "untouched",
    ]),
    ("x = nav_ls(a=1, a=2)\n", &[
        "untouched",
    ]),
    ("x = nav_ls(a=1, 2)\n", &[
        "untouched",
    ]),
    ("x = 08; y = nav_ls()\n", &[
        "untouched",
    ]),
    ("x.nav_info = f(budget=1)\n", &[
        "untouched",
    ]),
    ("\u{feff}\u{feff}x = nav_info()\n", &[
        "untouched",
    ]),
    ("x = nav_info()\0\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nreturn x\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nif x: break\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nclass A:\n    yield 1\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nnonlocal x\n", &[
        "untouched",
    ]),
    ("x = nav_infos()\n", &[
        "untouched",
    ]),
    ("x = '\\N{NO SUCH NAME}'; y = nav_info()\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nx: int = 1; global x\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f(a, a): pass\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ntry: pass\nexcept: pass\nexcept E: pass\n", &[
        "untouched",
    ]),
    ("x = nav_info()\n*x = [1]\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f(): await g()\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nclass A:\n    await g()\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nlambda: await g()\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nx = 1\nfrom __future__ import annotations\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nfrom __future__ import braces\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nmatch x:\n    case _: pass\n    case 1: pass\n", &[
        "untouched",
    ]),
    ("x = nav_info()\n[*i for i in ()] = 1\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f():\n    y = 1\n    global y\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nfor i in (): pass\nelse: break\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nwhile x: pass\nelse: continue\n", &[
        "untouched",
    ]),
    ("x = nav_info()\n@(yield)\ndef f(): pass\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nclass A((yield)): pass\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f(x=(yield)): pass\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nfor i in ():\n    def f(): break\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f(): return [(yield) for i in ()]\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nf(a=1, a=2)\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f(a):\n    global a\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nasync def f(): yield from x\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f():\n    from m import *\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nclass A:\n    x = [(y := 1) for i in ()]\n", &[
        "untouched",
    ]),
    ("x = nav_info()\n[(i := 1) for i in ()]\n", &[
        "untouched",
    ]),
    ("x = nav_info()\n__debug__ = 1\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nfor i in ():\n    class A:\n        continue\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f(): return [i async for i in x]\n", &[
        "untouched",
    ]),
    ("x = nav_info()\na, *b, *c = x\n", &[
        "untouched",
    ]),
    ("x = nav_info()\n*x\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f():\n    nonlocal a\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nclass A:\n    nonlocal a\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef a(): pass\nglobal a\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f():\n    class a: pass\n    global a\n", &[
        "untouched",
    ]),
    ("x = nav_info()\nfor i in x:\n    try: pass\n    except* E:\n        break\n", &[
        "untouched",
    ]),
    ("x = nav_info()\ndef f():\n    try: pass\n    except* E: return\n", &[
        "untouched",
    ]),
];

#[rustfmt::skip] // one line of output on a line
pub(super) const REJECTED: &[(&str, &[&str])] = &[
    ("nav_info()\n", &[
        "line 1, column 1: nav_info is called, but its value is not assigned to a name",
        "  write instead:",
        "    info = nav_info()",
    ]),
    ("nav_info();\n", &[
        "line 1, column 1: nav_info is called, but its value is not assigned to a name",
        "  write instead:",
        "    info = nav_info()",
    ]),
    ("  \nx = 1\nnav_ls(\n    'a',  # c\n)\n", &[
        "line 3, column 1: nav_ls is called, but its value is not assigned to a name",
        "  write instead:",
        "    ls = nav_ls(",
        "        'a',  # c",
        "    )",
    ]),
    ("print(len(nav_ls(\"a\")))\n", &[
        "line 1, column 11: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls = nav_ls(\"a\")",
        "    print(len(ls))",
    ]),
    ("é = '日本'; print(nav_ls('日'))\n", &[
        "line 1, column 17: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls = nav_ls('日')",
        "    print(ls)",
    ]),
    ("print(nav_ls('a'), nav_ls('b'), budget())\n", &[
        "line 1, column 7: nav_ls is called inside another expression or statement",
        "line 1, column 20: nav_ls is called inside another expression or statement",
        "line 1, column 33: budget is called inside another expression or statement",
        "  write instead:",
        "    ls = nav_ls('a')",
        "    ls_2 = nav_ls('b')",
        "    budget_value = budget()",
        "    print(ls, ls_2, budget_value)",
    ]),
    ("nav_info()['files']\n", &[
        "line 1, column 1: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info = nav_info()",
        "    info['files']",
    ]),
    ("x = nav_info()['files']\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info = nav_info()",
        "    x = info['files']",
    ]),
    ("x = nav_info().get('a') or nav_ls()\n", &[
        "line 1, column 5: nav_info is called inside another expression or statement",
        "line 1, column 28: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    info = nav_info()",
        "    ls = nav_ls()",
        "    x = info.get('a') or ls",
    ]),
    ("x = nav_read(nav_ls('a'))\n", &[
        "line 1, column 14: nav_read needs a literal as argument 1 (found: a call)",
        "line 1, column 14: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls = nav_ls('a')",
        "    x = nav_read(...)",
    ]),
    ("x = nav_read(nav_ls('a')[0], 1)\n", &[
        "line 1, column 14: nav_read needs a literal as argument 1 (found: a subscript)",
        "line 1, column 14: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls = nav_ls('a')",
        "    x = nav_read(..., 1)",
    ]),
    ("for p in nav_ls():\n    print(p)\n", &[
        "line 1, column 10: nav_ls is called in a `for` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    ls = nav_ls()",
    ]),
    ("for p in x:\n    text = nav_read(p)\n    print(text)\n", &[
        "line 2, column 12: nav_read is called in a `for` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    text = nav_read(...)",
    ]),
    ("if True:\n    x = nav_info()\n", &[
        "line 2, column 9: nav_info is called in an `if` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x = nav_info()",
    ]),
    ("if nav_info(): pass\n", &[
        "line 1, column 4: nav_info is called in an `if` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("while True:\n    nav_info()\n    break\n", &[
        "line 2, column 5: nav_info is called in a `while` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("with open('x') as f: x = nav_info()\n", &[
        "line 1, column 26: nav_info is called in a `with` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x = nav_info()",
    ]),
    ("try:\n    x = nav_info()\nexcept E:\n    pass\n", &[
        "line 2, column 9: nav_info is called in a `try` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x = nav_info()",
    ]),
    ("match nav_info():\n    case _: pass\n", &[
        "line 1, column 7: nav_info is called in a `match` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("match x:\n    case 1 if budget(): y = 1\n", &[
        "line 2, column 15: budget is called in a `match` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    budget_value = budget()",
    ]),
    ("def f():\n    return nav_info()\n", &[
        "line 2, column 12: nav_info is called in a function; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("async def f():\n    x = await nav_info()\n", &[
        "line 2, column 15: nav_info is awaited; a tool is not a coroutine",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("class A:\n    x = nav_info()\n", &[
        "line 2, column 9: nav_info is called in a class; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    x = nav_info()",
    ]),
    ("f = lambda p: nav_read('a')\n", &[
        "line 1, column 15: nav_read is called in a lambda; tools can only be called at the top level",
        "  write instead:",
        "    read = nav_read('a')",
        "    f = lambda p: read",
    ]),
    ("x = [nav_read('a') for p in y]\n", &[
        "line 1, column 6: nav_read is called in a comprehension; tools can only be called at the top level",
        "  write instead:",
        "    read = nav_read('a')",
        "    x = [read for p in y]",
    ]),
    ("x = {k: nav_read(k) for k in y}\n", &[
        "line 1, column 9: nav_read is called in a comprehension; tools can only be called at the top level",
        "  write instead:",
        "    read = nav_read(...)",
        "    x = {k: read for k in y}",
    ]),
    ("x = list(nav_read(k) for k in y)\n", &[
        "line 1, column 10: nav_read is called in a comprehension; tools can only be called at the top level",
        "  write instead:",
        "    read = nav_read(...)",
        "    x = list(read for k in y)",
    ]),
    ("x = llm_batch(p for p in y)\n", &[
        "line 1, column 15: llm_batch needs a literal as argument 1 (found: a generator)",
        "  write instead:",
        "    x = llm_batch(...)",
    ]),
    ("print(f'{nav_info()!r:>{budget()}}')\n", &[
        "line 1, column 10: nav_info is called in an f-string; tools can only be called at the top level",
        "line 1, column 25: budget is called in an f-string; tools can only be called at the top level",
        "  write instead:",
        "    info = nav_info()",
        "    budget_value = budget()",
        "    print(f'{info!r:>{budget_value}}')",
    ]),
    ("@nav_info()\ndef f(): pass\n", &[
        "line 1, column 2: nav_info is called in a decorator; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("@budget\nclass A: pass\n", &[
        "line 1, column 2: budget is used as a value; a tool can only be called",
        "  write instead:",
        "    budget_value = budget(...)",
    ]),
    ("def f(x=nav_info()): pass\n", &[
        "line 1, column 9: nav_info is called in the default of a parameter; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("def f(x: nav_info()): pass\n", &[
        "line 1, column 10: nav_info is called in an annotation; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    info = nav_info()",
    ]),
    ("def f() -> budget(): pass\n", &[
        "line 1, column 12: budget is called in an annotation; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    budget_value = budget()",
    ]),
    ("x: nav_info() = 1\n", &[
        "line 1, column 4: nav_info is called in an annotation; tools can only be called at the top level",
        "  write instead:",
        "    info = nav_info()",
        "    x: info = 1",
    ]),
    ("x: dict = nav_info()\n", &[
        "line 1, column 11: nav_info is called with an annotated target",
        "  write instead:",
        "    x = nav_info()",
    ]),
    ("x.y: dict = nav_info()\n", &[
        "line 1, column 13: nav_info is called with an annotated target",
        "  write instead:",
        "    info = nav_info()",
        "    x.y: dict = info",
    ]),
    ("a = b = nav_info()\n", &[
        "line 1, column 9: nav_info is called with several assignment targets",
        "  write instead:",
        "    a = nav_info()",
        "    b = a",
    ]),
    ("a = b[0] = nav_info()\n", &[
        "line 1, column 12: nav_info is called with several assignment targets",
        "  write instead:",
        "    info = nav_info()",
        "    a = b[0] = info",
    ]),
    ("a, b = llm_batch(['x', 'y'])\n", &[
        "line 1, column 8: llm_batch is called and its value unpacked in one statement",
        "  write instead:",
        "    batch = llm_batch(['x', 'y'])",
        "    a, b = batch",
    ]),
    ("[a, *b] = llm_batch(['x', 'y'])\n", &[
        "line 1, column 11: llm_batch is called and its value unpacked in one statement",
        "  write instead:",
        "    batch = llm_batch(['x', 'y'])",
        "    [a, *b] = batch",
    ]),
    ("x.y = nav_info()\n", &[
        "line 1, column 7: nav_info is called with a target that is not a simple name",
        "  write instead:",
        "    info = nav_info()",
        "    x.y = info",
    ]),
    ("x['y'] = nav_info()\n", &[
        "line 1, column 10: nav_info is called with a target that is not a simple name",
        "  write instead:",
        "    info = nav_info()",
        "    x['y'] = info",
    ]),
    ("x += budget()\n", &[
        "line 1, column 6: budget is called in an augmented assignment",
        "  write instead:",
        "    budget_value = budget()",
        "    x += budget_value",
    ]),
    ("(x := nav_info())\n", &[
        "line 1, column 7: nav_info is called in an assignment expression (:=)",
        "  write instead:",
        "    x = nav_info()",
    ]),
    ("if (n := nav_info()):\n    print(n)\n", &[
        "line 1, column 10: nav_info is called in an assignment expression (:=)",
        "  write before line 1, at the top level, and use the name:",
        "    n = nav_info()",
    ]),
    ("print(n := nav_info())\n", &[
        "line 1, column 12: nav_info is called in an assignment expression (:=)",
        "  write instead:",
        "    n = nav_info()",
        "    print(n)",
    ]),
    ("x = await nav_info()\n", &[
        "line 1, column 11: nav_info is awaited; a tool is not a coroutine",
        "  write instead:",
        "    x = nav_info()",
    ]),
    ("await nav_info()\n", &[
        "line 1, column 7: nav_info is awaited; a tool is not a coroutine",
        "  write instead:",
        "    info = nav_info()",
    ]),
    ("print(await budget())\n", &[
        "line 1, column 13: budget is awaited; a tool is not a coroutine",
        "  write instead:",
        "    budget_value = budget()",
        "    print(budget_value)",
    ]),
    ("path = 'a.py'\ntext = nav_read(path)\n", &[
        "line 2, column 17: nav_read needs a literal as argument 1 (found: the variable path)",
        "  write instead:",
        "    text = nav_read('a.py')",
    ]),
    ("path = 'a.py'\npath = 'b.py'\ntext = nav_read(path)\n", &[
        "line 3, column 17: nav_read needs a literal as argument 1 (found: the variable path)",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("p = 1, 2\ntext = nav_read(p, x, key=p)\n", &[
        "line 2, column 17: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    text = nav_read((1, 2), ..., key=(1, 2))",
    ]),
    ("text = nav_read(f'{x}.py')\n", &[
        "line 1, column 17: nav_read needs a literal as argument 1 (found: an f-string)",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read('a' + 'b')\n", &[
        "line 1, column 17: nav_read needs a literal as argument 1 (found: an operation)",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read(x.path, names[0], *rest)\n", &[
        "line 1, column 17: nav_read needs a literal as argument 1 (found: an attribute)",
        "  write instead:",
        "    text = nav_read(..., ..., ...)",
    ]),
    ("text = nav_read('a', chunk_index=n, **more)\n", &[
        "line 1, column 34: nav_read needs a literal as argument chunk_index (found: the variable n)",
        "  write instead:",
        "    text = nav_read('a', chunk_index=..., name=...)",
    ]),
    ("text = nav_read([1, *x], {**y})\n", &[
        "line 1, column 21: nav_read needs a literal as argument 1 (found: an unpacked iterable (*))",
        "  write instead:",
        "    text = nav_read(..., ...)",
    ]),
    ("text = nav_read({**y})\n", &[
        "line 1, column 20: nav_read needs a literal as argument 1 (found: an unpacked dict (**))",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read(...)\n", &[
        "line 1, column 17: nav_read needs a literal as argument 1 (found: `...`)",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read(-x, ~1, not 1, -True)\n", &[
        "line 1, column 17: nav_read needs a literal as argument 1 (found: the variable x)",
        "  write instead:",
        "    text = nav_read(..., ..., ..., ...)",
    ]),
    ("text = nav_read(~1)\n", &[
        "line 1, column 17: nav_read needs a literal as argument 1 (found: an operation)",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read(2j)\n", &[
        "line 1, column 17: nav_read is called with argument 1 that is or contains a complex number, which tools do not accept",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read('\\ud83d\\ude00')\n", &[
        "line 1, column 17: nav_read is called with argument 1 that contains a lone surrogate, which is not a character",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read({[]: 1})\n", &[
        "line 1, column 17: nav_read is called with argument 1 that has an unhashable list in a set or as the key of a dict",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("text = nav_read({(1, {2})})\n", &[
        "line 1, column 17: nav_read is called with argument 1 that has an unhashable set in a set or as the key of a dict",
        "  write instead:",
        "    text = nav_read(...)",
    ]),
    ("f = nav_info\n", &[
        "line 1, column 5: nav_info is used as a value; a tool can only be called",
        "  write instead:",
        "    info = nav_info(...)",
    ]),
    ("texts = list(map(nav_read, names))\n", &[
        "line 1, column 18: nav_read is used as a value; a tool can only be called",
        "  write instead:",
        "    read = nav_read(...)",
    ]),
    ("nav_info.x\n", &[
        "line 1, column 1: nav_info is used as a value; a tool can only be called",
        "  write instead:",
        "    info = nav_info(...)",
    ]),
    ("nav_info = 3\n", &[
        "line 1, column 1: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    my_nav_info = 3",
    ]),
    ("nav_info = nav_info()\n", &[
        "line 1, column 1: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    my_nav_info = nav_info()",
    ]),
    ("budget: int\n", &[
        "line 1, column 1: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    my_budget: int",
    ]),
    ("def budget(): pass\n", &[
        "line 1, column 5: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    def my_budget(): pass",
    ]),
    ("class budget: pass\n", &[
        "line 1, column 7: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    class my_budget: pass",
    ]),
    ("def f(budget, *, x=budget): return budget\n", &[
        "line 1, column 7: budget is the name of a tool and cannot be bound or deleted",
        "line 1, column 20: budget is used as a value; a tool can only be called",
        "line 1, column 36: budget is used as a value; a tool can only be called",
        "  write instead:",
        "    def f(my_budget, *, x=my_budget): return my_budget",
    ]),
    ("def f(*budget): pass\n", &[
        "line 1, column 8: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    def f(*my_budget): pass",
    ]),
    ("lambda **budget: 1\n", &[
        "line 1, column 10: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    lambda **my_budget: 1",
    ]),
    ("import x as nav_info\n", &[
        "line 1, column 13: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    import x as my_nav_info",
    ]),
    ("import nav_info.x, nav_ls\n", &[
        "line 1, column 8: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    import nav_info.x as my_nav_info, nav_ls",
        "line 1, column 20: nav_ls is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    import nav_info.x, nav_ls as my_nav_ls",
    ]),
    ("from m import budget\n", &[
        "line 1, column 15: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    from m import budget as my_budget",
    ]),
    ("for budget in x: pass\n", &[
        "line 1, column 5: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    for my_budget in x: pass",
    ]),
    ("[1 for budget in x]\n", &[
        "line 1, column 8: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    [1 for my_budget in x]",
    ]),
    ("try: pass\nexcept E as budget: pass\n", &[
        "line 2, column 13: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    except E as my_budget: pass",
    ]),
    ("with x as budget: pass\n", &[
        "line 1, column 11: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    with x as my_budget: pass",
    ]),
    ("match x:\n    case [budget, *nav_ls]: pass\n    case {'a': 1, **nav_info}: pass\n    case 1 as nav_read: pass\n", &[
        "line 2, column 11: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    case [my_budget, *nav_ls]: pass",
        "line 2, column 20: nav_ls is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    case [budget, *my_nav_ls]: pass",
        "line 3, column 21: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    case {'a': 1, **my_nav_info}: pass",
        "line 4, column 15: nav_read is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    case 1 as my_nav_read: pass",
    ]),
    ("global budget\n", &[
        "line 1, column 8: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    global my_budget",
    ]),
    ("def f():\n  def g():\n    nonlocal budget\n", &[
        "line 3, column 14: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    nonlocal my_budget",
    ]),
    ("del nav_info\n", &[
        "line 1, column 5: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    del my_nav_info",
    ]),
    ("def f[budget](): pass\n", &[
        "line 1, column 7: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    def f[my_budget](): pass",
    ]),
    ("type budget = int\n", &[
        "line 1, column 6: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    type my_budget = int",
    ]),
    ("(budget := 1)\n", &[
        "line 1, column 2: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    (my_budget := 1)",
    ]),
    ("x = 1; nav_info += 1\n", &[
        "line 1, column 8: nav_info is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    x = 1; my_nav_info += 1",
    ]),
    ("__rlm_icpt_0000002a_1 = 3\n", &[
        "line 1, column 1: __rlm_icpt_0000002a_1 is reserved, as is every name that begins with __rlm_icpt_",
        "  write instead:",
        "    value = 3",
    ]),
    ("print(__rlm_icpt_0000002a_1)\n", &[
        "line 1, column 7: __rlm_icpt_0000002a_1 is reserved, as is every name that begins with __rlm_icpt_",
        "  write instead:",
        "    print(value)",
    ]),
    ("__rlm_icpt_x = nav_info()\n", &[
        "line 1, column 1: __rlm_icpt_x is reserved, as is every name that begins with __rlm_icpt_",
        "  write instead:",
        "    value = nav_info()",
    ]),
    ("assert nav_info()\nraise nav_ls()\ndel x[budget()]\n", &[
        "line 1, column 8: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info = nav_info()",
        "    assert info",
        "line 2, column 7: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls = nav_ls()",
        "    raise ls",
        "line 3, column 7: budget is called inside another expression or statement",
        "  write instead:",
        "    budget_value = budget()",
        "    del x[budget_value]",
    ]),
    ("type X = nav_info()\n", &[
        "line 1, column 10: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info = nav_info()",
        "    type X = info",
    ]),
    ("good = nav_info()\nnav_ls()\n", &[
        "line 2, column 1: nav_ls is called, but its value is not assigned to a name",
        "  write instead:",
        "    ls = nav_ls()",
    ]),
    ("info = 1\nprint(nav_info())\n", &[
        "line 2, column 7: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info_2 = nav_info()",
        "    print(info_2)",
    ]),
    ("print(nav_info(\n  1\n), 2)\n", &[
        "line 1, column 7: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info = nav_info(",
        "      1",
        "    )",
        "    print(info, 2)",
    ]),
    ("print(\n  nav_info\n  ()\n)\n", &[
        "line 2, column 3: nav_info is called inside another expression or statement",
        "  write instead:",
        "    info = nav_info()",
        "    print(",
        "      info",
        "    )",
    ]),
    ("p = []\np.append('b')\nx = nav_read(p)\n", &[
        "line 3, column 14: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    x = nav_read(...)",
    ]),
    ("p = {}\np['k'] = 2\nx = nav_read(p)\n", &[
        "line 3, column 14: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    x = nav_read(...)",
    ]),
    ("p = {1}\np.add(2)\nx = nav_read(p)\n", &[
        "line 3, column 14: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    x = nav_read(...)",
    ]),
    ("p = (1, [2])\np[1].append(3)\nx = nav_read(p)\n", &[
        "line 3, column 14: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    x = nav_read(...)",
    ]),
    ("p = 'a'\ndef f():\n    global p\n    p = 'b'\nf()\nx = nav_read(p)\n", &[
        "line 6, column 14: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    x = nav_read(...)",
    ]),
    ("p = 'a'\nfrom m import *\nx = nav_read(p)\n", &[
        "line 3, column 14: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    x = nav_read(...)",
    ]),
    ("p = (-1, b'a', None)\nx = nav_read(p)\n", &[
        "line 2, column 14: nav_read needs a literal as argument 1 (found: the variable p)",
        "  write instead:",
        "    x = nav_read((-1, b'a', None))",
    ]),
    ("if x:\n    r = nav_ls(2)\nelse:\n    r = nav_ls(3)\n", &[
        "line 2, column 9: nav_ls is called in an `if` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    ls = nav_ls(2)",
        "line 4, column 9: nav_ls is called in an `if` statement; tools can only be called at the top level",
        "  write before line 1, at the top level, and use the name:",
        "    ls_2 = nav_ls(3)",
    ]),
    ("r = 1\nif x: r: int = nav_ls(2)\n", &[
        "line 2, column 16: nav_ls is called in an `if` statement; tools can only be called at the top level",
        "  write before line 2, at the top level, and use the name:",
        "    ls = nav_ls(2)",
    ]),
    ("print((n := nav_ls(1)), (n := nav_ls(2)))\n", &[
        "line 1, column 13: nav_ls is called in an assignment expression (:=)",
        "line 1, column 31: nav_ls is called in an assignment expression (:=)",
        "  write instead:",
        "    ls = nav_ls(1)",
        "    ls_2 = nav_ls(2)",
        "    print((n := ls), (n := ls_2))",
    ]),
    ("from json import (loads,\n   budget)\n", &[
        "line 2, column 4: budget is the name of a tool and cannot be bound or deleted",
        "  write instead:",
        "    from json import (loads,",
        "       budget as my_budget)",
    ]),
    ("if x:\n    y = (1,\n  __rlm_icpt_x); z = 2\n", &[
        "line 3, column 3: __rlm_icpt_x is reserved, as is every name that begins with __rlm_icpt_",
        "  write instead:",
        "    y = (1,",
        "      value)",
    ]),
    ("x = nav_ls(nav_ls(1))\n", &[
        "line 1, column 12: nav_ls needs a literal as argument 1 (found: a call)",
        "line 1, column 12: nav_ls is called inside another expression or statement",
        "  write instead:",
        "    ls = nav_ls(1)",
        "    x = nav_ls(...)",
    ]),
];
