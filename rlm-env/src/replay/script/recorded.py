# Recorded replies of root tools, by arguments.
__rlm_lock = __import__("threading").Lock()


def __rlm_tool(name):
    def tool(*args, **kwargs):
        if name in ("rlm_query", "rlm_query_batch", "rlm_query_batched"):
            args = [__rlm_relative(value) if at == 1 else __rlm_portable(value) for at, value in enumerate(args)]
            kwargs = __rlm_portable(kwargs)
        by_place = [repr(value) for value in args]
        by_name = sorted((repr(key), repr(value)) for key, value in kwargs.items())
        key = f"{name}({', '.join(by_place + [f'{key}={value}' for key, value in by_name])})"
        with __rlm_lock:
            left = __rlm_recorded.get(key)
            if not left:
                missing = "has no recorded reply left" if left == [] else "is not in the recording"
                raise RuntimeError(f"{key[:200]}{'…' if len(key) > 200 else ''} {missing}")
            error, lines, value = left.pop(0)
        if error is not None:
            raise RuntimeError(error)
        for line in lines:
            __rlm_builtins.print(line)
        if isinstance(value, __rlm_literal):
            return __rlm_builtins.eval(value, dict(__rlm_literal_names))
        return value

    tool.__name__ = tool.__qualname__ = name
    return tool


__rlm_root = __import__("os").getcwd()


def __rlm_portable(value):
    """Questions, or the options of one, with files relative to the script's directory, as recordings have them."""
    if isinstance(value, list):
        return [__rlm_portable(one) for one in value]
    if isinstance(value, dict):
        parts = {"files": __rlm_relative, "questions": __rlm_portable}
        return {key: parts[key](one) if key in parts else one for key, one in value.items()}
    return value


def __rlm_relative(files):
    """A path, or a list of paths."""
    if isinstance(files, list):
        return [__rlm_relative(file) for file in files]
    if isinstance(files, str) and f"{files}/".startswith(f"{__rlm_root}/"):
        return files[len(__rlm_root) :].strip("/")
    return files


class __rlm_literal(str):
    """A value as a Python literal."""


__rlm_literal_names = {
    "__builtins__": {},
    "nan": float("nan"),
    "inf": float("inf"),
    "set": set,
    "frozenset": frozenset,
    "bytearray": bytearray,
}
