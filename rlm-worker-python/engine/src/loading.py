"""Makes the objects of a pickle of `saving.py` anew.

Pickles name these functions as those of a module `rlm_saved`. A module or a name that is not here becomes `Missing`,
which fails where it is used; everything else that fails, fails the whole.
"""

from abc import ABCMeta
from enum import EnumMeta
from importlib import import_module
from marshal import loads
from pickle import Unpickler
from sys import modules
from types import FunctionType, ModuleType

try:
    from _abc import _abc_init
except ImportError:
    _abc_init = None

# The namespace of the session, and what its host has put there, by name.
namespace = {}
given = {}

# The code that was loaded, by the name of its file.
codes = {}

# What is not here, with the reason.
missing = {}

# Attributes of classes that would act on the classes that are made after them.
late = []


class Missing:
    """Stands for an object of a module that is not here."""

    name, reason, text = "it", "unknown", "%s is not here: %s"

    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def ignore(self, *args, **kwargs):
        pass

    __init_subclass__ = __setstate__ = __setitem__ = append = extend = add = ignore

    def fail(self, *args, **kwargs):
        raise NameError(self.text % (self.name, self.reason))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.fail()


uses = "call enter exit aenter aexit await iter next aiter anext len bool contains getitem delitem lt le gt ge"
uses += " add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul and rand"
uses += " or ror xor rxor lshift rlshift rshift rrshift neg pos abs invert int float index str format"
for use in uses.split():
    setattr(Missing, "__%s__" % use, Missing.fail)


def absent(name, reason, place=None):
    """A class that stands for this name; the place is what is missing."""
    missing[place or name] = reason
    return type(name.rpartition(".")[2], (Missing,), {"name": name, "reason": reason})


def is_absent(value):
    return issubclass(type(value), Missing) or issubclass(type(value), type) and issubclass(value, Missing)


def described(error):
    text = str(error)
    return type(error).__name__ + (": " + text if text else "")


class Loader(Unpickler):
    def find_class(self, module, name):
        if module == "rlm_saved":
            return own[name]
        try:
            return super().find_class(module, name)
        except ImportError as error:
            return absent(module + "." + name, described(error), module)
        except AttributeError as error:
            return absent(module + "." + name, described(error))


def home():
    return namespace


def given_by_host(name):
    return given[name] if name in given else absent(name, "this host does not give it")()


def module(name, submodules):
    try:
        found = import_module(name)
    except Exception as error:
        return absent(name, described(error))()
    for submodule in submodules:
        if submodule not in modules:
            try:
                import_module(submodule)
            except Exception as error:
                missing[submodule] = described(error)
    return found


def new_module(name):
    return ModuleType(name)


def main():
    return modules["__main__"]


def constant(module, name):
    value = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def module_names(name):
    """The namespace of a module, for its functions that have no name."""
    return vars(import_module(name))


def code(data):
    made = loads(data)
    codes.setdefault(made.co_filename, []).append(made)
    return made


def same(value):
    return value


def fill(cell, contents):
    cell.cell_contents = contents


def function(code, scope, cells):
    return FunctionType(code, scope, None, None, cells)


def set_function(made, state):
    attributes, contents = state
    for name, value in attributes.items():
        setattr(made, name, value)
    for cell, value in contents:
        cell.cell_contents = value


def new_class(kind, name, bases, body):
    try:
        made = type.__new__(kind, name, bases, body)
        if _abc_init is not None and issubclass(kind, ABCMeta):
            _abc_init(made)
    except Exception as error:
        return absent(name, described(error))
    return made


def new_enum(kind, name, bases, body, members):
    scope = kind.__prepare__(name, bases)
    for member in members.items():
        scope.__setitem__(*member)
    made = EnumMeta.__new__(kind, name, bases, scope)
    for attribute in body.items():
        type.__setattr__(made, *attribute)
    return made


def set_class(made, state):
    for name, value in state.items():
        if name == "__init_subclass__":
            late.append((made, name, value))
            continue
        try:
            type.__setattr__(made, name, value)
        except Exception as error:
            missing["%s.%s" % (made.__name__, name)] = described(error)


def set_enum(made, state):
    attributes, members = state
    set_class(made, attributes)
    for name, attributes in members.items():
        vars(made._member_map_[name]).update(attributes)


def member(kind, name):
    return kind._member_map_[name]


def lru_cache(wrapped, settings):
    from functools import lru_cache

    return lru_cache(**settings)(wrapped)


def set_attributes(made, attributes):
    for name, value in attributes.items():
        setattr(made, name, value)


def weak(kind, items):
    return kind(items)


def type_variable(kind, name, constraints, settings):
    return kind(name, *constraints, **settings)


def load(file, into, from_host):
    """Loads a saved session into a namespace. Returns what else belongs to it."""
    global namespace
    namespace = into
    given.update(from_host)
    loader = Loader(file)
    loader.load()
    for name in loader.load():
        try:
            parts = loader.load()
        except Exception as error:
            raise ValueError("%s cannot be made again: %s" % (name, described(error))) from None
        for name, value in parts.items():
            if is_absent(value):
                missing[name] = value.reason
            else:
                into[name] = value
    others = loader.load()
    for made, name, value in late:
        type.__setattr__(made, name, value)
    return others


own = globals()
