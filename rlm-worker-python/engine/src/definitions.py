"""The definitions of the session, for processes that `multiprocessing` starts anew: their `__main__` is another module.

They get functions and classes of cells, and the names that those use, pickled as a saved session is (`saving.py`).
All of it goes with the description of the new process, and is loaded when that is unpickled. What cannot be sent fails
where it is used, with the reason: a process that ends before would leave its pool waiting.
"""

import sys
from io import BytesIO
from pickle import PicklingError
from types import CodeType, FunctionType

# Most bytes of all values, pickled.
MOST_BYTES = 16 << 20

# Runs in the new process.
IN_CHILD = """
def define(path, directory, loading, state, names, missing):
    import io, linecache, os, sys, types

    sys.path[:] = path
    os.chdir(directory)
    main, new = types.ModuleType("__main__"), types.ModuleType("rlm_saved")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    exec(compile(loading, "<rlm>", "exec"), new.__dict__)
    new.Missing.text = (
        "%s is not in this process: %s. "
        "Give it to the function as an argument, or use multiprocessing.get_context('fork')."
    )
    try:
        for filename, lines in new.load(io.BytesIO(state), main.__dict__, {}).items():
            linecache.cache[filename] = sum(map(len, lines)), None, lines, filename
    except Exception as error:
        new.missing.update(dict.fromkeys(names, new.described(error)))

    def absent(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return new.absent(name, missing.get(name, "no function or class of a cell uses it"))()

    for name, why in [*missing.items(), *new.missing.items()]:
        main.__dict__.setdefault(name, new.absent(name, why)())
    main.__getattr__ = absent


define(**given)
"""


class Bounded:
    """Counts the bytes of pickles, up to a bound."""

    def __init__(self):
        self.written = 0

    def write(self, data):
        self.written += len(data)
        if self.written > MOST_BYTES:
            raise PicklingError("the values that functions use have over %d MiB" % (MOST_BYTES >> 20))
        return len(data)


def is_definition(value, is_importable):
    """True for a function or class of a cell, also within a wrapper such as that of `lru_cache`."""
    defined = getattr(value, "__wrapped__", value) if callable(value) else value
    return issubclass(type(defined), (FunctionType, type)) and not is_importable(defined)


def used_names(code):
    """The global names that code may use: an attribute may have the same name."""
    inner = (const for const in code.co_consts if type(const) is CodeType)
    return set(code.co_names).union(*map(used_names, inner))


class Definitions:
    """The definitions of a namespace. It is unpickled by loading them."""

    def __init__(self, namespace, cells, path, directory, loading, new, saving):
        values, missing, files, bounded = {}, {}, set(), Bounded()
        names = [name for name, value in list(namespace.items()) if is_definition(value, saving["is_importable"])]
        for name in names:
            before = bounded.written
            saver = saving["Saver"](bounded, namespace, {}, new)
            try:
                saver.dump(namespace[name])
            except Exception as error:
                missing[name], bounded.written = new.described(error), before
                continue
            values[name] = namespace[name]
            files.update(code.co_filename for code in saver.codes)
            used = set().union(*map(used_names, saver.codes))
            names += sorted(used.intersection(namespace).difference(names))
        state = BytesIO()
        sources = {name: lines for name, lines in cells.items() if name in files}
        saving["write"](state, values, sources, namespace, {}, new)
        self.given = {
            "path": path,
            "directory": directory,
            "loading": loading,
            "state": state.getvalue(),
            "names": list(values),
            "missing": missing,
        }

    def __reduce__(self):
        return exec, (IN_CHILD, {"given": self.given})


def send_definitions(spawn, namespace, cells, loading, make_new, saving):
    """Lets `multiprocessing.spawn` send the definitions. `cells` gives the lines of each cell by its file name."""
    describe = spawn.get_preparation_data

    def get_preparation_data(name):
        data = describe(name)
        # The server that forks processes asks for its own description so.
        if name != "ignore":
            new = sys.modules["rlm_saved"] = make_new()
            try:
                arguments = data["sys_path"], data["dir"], loading, new, saving
                data["definitions"] = Definitions(namespace, cells(), *arguments)
            finally:
                sys.modules.pop("rlm_saved", None)
        return data

    spawn.get_preparation_data = get_preparation_data
