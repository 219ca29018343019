# The session's initial state. The script's own names start with __rlm.
import builtins as __rlm_builtins
import os as __rlm_os
import sys as __rlm_sys

__rlm_root = __rlm_os.getcwd()
__rlm_fds = [__rlm_os.open(__rlm_os.devnull, __rlm_os.O_RDONLY), __rlm_os.dup(1), __rlm_os.dup(2)]
__rlm_sys.stdin = open(__rlm_fds[0], encoding="utf-8", closefd=False)
for __rlm_stream in (__rlm_sys.stdout, __rlm_sys.stderr):
    __rlm_stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
__rlm_std = (__rlm_sys.stdin, __rlm_sys.stdout, __rlm_sys.stderr)
__rlm_sys.path[:] = [p for p in __rlm_sys.path if p and p != __rlm_os.path.dirname(__rlm_os.path.abspath(__file__))]
__rlm_sys.path.append(__rlm_root)
__rlm_sys.argv = [""]


def __rlm_streams():
    """Restores the standard streams, as the session did before each call."""
    for stream in (__rlm_sys.stdout, __rlm_sys.stderr, *__rlm_std[1:]):
        try:
            stream.flush()
        except Exception:
            pass
    for fd, kept in enumerate(__rlm_fds):
        __rlm_os.dup2(kept, fd)
    __rlm_sys.stdin, __rlm_sys.stdout, __rlm_sys.stderr = __rlm_std


def __rlm_json(text):
    import json

    limit = getattr(__rlm_sys, "get_int_max_str_digits", lambda: None)()
    if limit is not None:
        __rlm_sys.set_int_max_str_digits(0)
    try:
        return json.loads(text)
    finally:
        if limit is not None:
            __rlm_sys.set_int_max_str_digits(limit)


def __rlm_display(*objects):
    for value in objects:
        __rlm_builtins.print(__rlm_builtins.repr(value))


__rlm_builtins.display = __rlm_display


def __rlm_begin():
    """Begins a fresh namespace."""
    names = globals()
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
    __rlm_os.chdir(__rlm_root)
    names["answer"] = {"ready": False, "content": ""}
    names["extra_data"] = __rlm_root
    names["fs_metadata"] = __rlm_json(__rlm_metadata)
    for name in __rlm_tools:
        names[name] = __rlm_tool(name)
    names.update(__rlm_finals)
