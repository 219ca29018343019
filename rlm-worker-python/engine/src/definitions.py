"""The definitions of the session, for processes that `multiprocessing` starts anew: their `__main__` is another module.

They get functions and classes of cells as sources, and pickles of the values that those use. Of the cells only
definitions run there: `def`, `class`, and assignments of a lambda or a class. All of it goes with the description of
the new process, and runs when that is unpickled. What cannot be sent fails where it is used, with the reason: a process
that ends before would leave its pool waiting.
"""

import ast
import io
import pickle
from symtable import symtable
from types import FunctionType, ModuleType

# Most bytes of all values, pickled.
MOST_BYTES = 16 << 20

# Runs in the new process.
IN_CHILD = """
def define(path, directory, flags, modules, values, sources, definitions, missing):
    import importlib, linecache, os, pickle, sys, types

    sys.path[:] = path
    os.chdir(directory)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    namespace = main.__dict__

    def attempt(name, act, *arguments):
        try:
            namespace[name] = act(*arguments)
        except Exception as error:
            missing[name] = "%s: %s" % (type(error).__name__, error)
        else:
            missing.pop(name, None)

    def run(name, source, filename):
        exec(compile(source, filename, "exec", flags, True), namespace)
        return namespace[name]

    for name, module in modules.items():
        attempt(name, importlib.import_module, module)
    for name, value in values.items():
        attempt(name, pickle.loads, value)
    for filename, lines in sources.items():
        linecache.cache[filename] = sum(map(len, lines)), None, lines, filename
    for name, source, filename in definitions:
        attempt(name, run, name, source, filename)
    # Objects of the classes, which are there now.
    for name in [name for name in values if name in missing]:
        attempt(name, pickle.loads, values[name])

    class Missing:
        def __init__(self, name):
            self.__dict__["name"] = name

    def fail(self, *args, **kwargs):
        name = self.__dict__["name"]
        why = missing.get(name, "no def or class at the beginning of a line of a cell defines it")
        advice = "Give it to the function as an argument, or use multiprocessing.get_context('fork')."
        raise NameError("%s is not in this process: %s. %s" % (name, why, advice))

    uses = "call getattr setattr enter exit aenter aexit await iter next aiter anext len bool contains getitem setitem"
    uses += " delitem eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow"
    uses += " rpow matmul rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift neg pos abs invert int float"
    uses += " index str format"
    for use in uses.split():
        setattr(Missing, "__%s__" % use, fail)

    def absent(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(name)

    namespace.update({name: Missing(name) for name in missing})
    main.__getattr__ = absent


define(**given)
"""


class Bounded(io.BytesIO):
    """A buffer with a bound."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def write(self, data):
        if self.tell() + len(data) > self.most:
            raise pickle.PicklingError("the values that functions use have over %d MiB" % (MOST_BYTES >> 20))
        return super().write(data)


def defined_name(statement):
    """The name that a statement may define, and whether by assignment."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return statement.name, False
    if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.Lambda, ast.Call)):
        target, *others = statement.targets
        if isinstance(target, ast.Name) and not others:
            return target.id, True
    return None, False


def is_definition(value, is_assigned):
    if not is_assigned:
        return callable(value)
    if type(value) is FunctionType:
        return value.__name__ == "<lambda>"
    return isinstance(value, type) and value.__module__ == "__main__"


def used_names(table):
    """The names of `__main__` that the code of a table of symbols uses."""
    is_module = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (is_module or symbol.is_global())
    }
    return names.union(*map(used_names, table.get_children()))


# The definitions in the source of each cell: name, whether by assignment, source, names that it uses.
known = {}


def definitions_of(filename, lines):
    if filename not in known:
        known[filename] = found = []
        statements = ast.parse("".join(lines)).body
        for statement in statements:
            name, is_assigned = defined_name(statement)
            if name is None:
                continue
            first = min(part.lineno for part in [statement, *getattr(statement, "decorator_list", ())])
            source = "".join(lines[first - 1 : statement.end_lineno])
            if any(
                other is not statement and other.lineno <= statement.end_lineno and first <= other.end_lineno
                for other in statements
            ):
                source = ast.unparse(statement)
            used = used_names(symtable(source, filename, "exec"))
            # Tracebacks name its line in the cell.
            found.append((name, is_assigned, "\n" * (first - 1) + source, used))
    return known[filename]


class Definitions:
    """The definitions of a namespace. It is unpickled by running them."""

    def __init__(self, namespace, cells, path, directory):
        for filename in known.keys() - cells.keys():
            del known[filename]
        latest, used, sources = {}, set(), {}
        for filename, lines in cells.items():
            for name, is_assigned, source, uses in definitions_of(filename, lines):
                # Behind the older ones, which it may use.
                latest.pop(name, None)
                if name in namespace and is_definition(namespace[name], is_assigned):
                    latest[name] = name, source, filename
                    sources[filename] = lines
                    used |= uses
        modules, values, missing, room = {}, {}, {}, MOST_BYTES
        for name in sorted(used.intersection(namespace).difference(latest)):
            value = namespace[name]
            if type(value) is ModuleType:
                modules[name] = value.__name__
                continue
            pickled = Bounded(room)
            try:
                pickle.Pickler(pickled).dump(value)
            except Exception as error:
                missing[name] = "%s: %s" % (type(error).__name__, error)
            else:
                values[name] = pickled.getvalue()
                room -= len(values[name])
        self.given = {
            "path": path,
            "directory": directory,
            # The flag of `from __future__ import annotations`.
            "flags": getattr(namespace.get("annotations"), "compiler_flag", 0),
            "modules": modules,
            "values": values,
            "sources": sources,
            "definitions": list(latest.values()),
            "missing": missing,
        }

    def __reduce__(self):
        return exec, (IN_CHILD, {"given": self.given})


def send_definitions(spawn, namespace, cells):
    """Lets `multiprocessing.spawn` send the definitions. `cells` gives the lines of each cell by its file name."""
    describe = spawn.get_preparation_data

    def get_preparation_data(name):
        data = describe(name)
        # The server that forks processes asks for its own description so.
        if name != "ignore":
            data["definitions"] = Definitions(namespace, cells(), data["sys_path"], data["dir"])
        return data

    spawn.get_preparation_data = get_preparation_data
