# Calls that behave differently in a file: they await, change how later ones are compiled, or end with a value,
# which is printed as in the session.
__rlm_flags = 0
__rlm_loop = None


def __rlm_cell(number, source):
    global __rlm_flags, __rlm_loop
    import ast
    import asyncio
    import linecache

    name = f"<call {number}>"
    source = source[1:]
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    tree = __rlm_builtins.compile(
        source, name, "exec", __rlm_flags | ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    parts = [(tree, "exec")]
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        parts.append((ast.Expression(tree.body.pop().value), "eval"))
    value = None
    for part, mode in parts:
        code = __rlm_builtins.compile(part, name, mode, __rlm_flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        __rlm_flags |= code.co_flags & __rlm_all_flags
        value = __rlm_builtins.eval(code, globals())
        if code.co_flags & 0x80:  # CO_COROUTINE
            if __rlm_loop is None:
                __rlm_loop = asyncio.new_event_loop()
            value = __rlm_loop.run_until_complete(value)
    if value is not None:
        __rlm_builtins.print(__rlm_builtins.repr(value), flush=True)
        if hasattr(__rlm_builtins, "_"):
            __rlm_builtins.__ = __rlm_builtins._
        __rlm_builtins._ = value


def __rlm_future():
    import __future__

    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags


__rlm_all_flags = __rlm_future()
