"""Saves a namespace as a pickle, object by object.

Functions and classes of cells go by value: as code, and as attributes. The namespace goes as itself, so a function has
it as its globals again; what the host gives goes by name. Shared objects stay shared. What cannot go is left out.

Names defined here and used by `loading.py` stand in its module `rlm_saved`, which is there while a session is saved.
"""

import functools
import sys
import typing
import weakref
from enum import EnumMeta
from marshal import dumps
from pickle import Pickler
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)

# Names of a module that a new one has by itself.
OWN_NAMES = {"__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__"}

# Attributes that a class gets when it is made.
IN_BODY = ["__module__", "__qualname__", "__slots__", "__orig_bases__", "__class__"]
MADE = {"__dict__", "__weakref__", "_abc_impl", "__annotations_cache__", *IN_BODY}
OF_FUNCTIONS = [
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__defaults__",
    "__kwdefaults__",
    "__type_params__",
]

FIRST = (FunctionType, ModuleType, type)
PLAIN = (bool, bytes, complex, float, int, str, type(None))

HEAP_TYPE = 1 << 9
MOST_REASON = 300

STATIC_TYPES = {value: name for name, value in vars(sys.modules["types"]).items() if type(value) is type}


class Home:
    """Stands for the namespace in the first pickle."""


class Empty:
    """Stands for a cell of a closure without its contents."""

    def __init__(self, cell):
        self.cell = cell


class Saver(Pickler):
    def __init__(self, file, namespace, given, new):
        super().__init__(file, 5)
        self.namespace, self.new = namespace, new
        self.given = {id(value): name for name, value in given.items()}
        self.cells, self.reducers, self.codes = {}, {}, []
        stand_in = Home()
        self.dump(stand_in)
        # The namespace takes its place in the memo.
        memo = self.memo.copy()
        memo[id(namespace)] = memo.pop(id(stand_in))[0], namespace
        self.memo = memo

    def reducer_override(self, value):
        kind = type(value)
        found = self.reducers.get(id(kind))
        if found is None:
            found = self.reducers[id(kind)] = kind, self.reducer(kind)
        reduce = found[1]
        return NotImplemented if reduce is None else reduce(value)

    def reducer(self, kind):
        """The way to reduce the objects of this type; None for that of `pickle`."""
        by_type = {
            Home: lambda _value: (self.new.home, ()),
            Empty: lambda _value: (CellType, ()),
            FunctionType: self.function,
            BuiltinFunctionType: self.builtin_function,
            CellType: self.cell,
            CodeType: self.code,
            MappingProxyType: lambda proxy: (MappingProxyType, (dict(proxy),)),
            classmethod: lambda method: (classmethod, (method.__func__,)),
            staticmethod: lambda method: (staticmethod, (method.__func__,)),
            property: lambda value: (property, (value.fget, value.fset, value.fdel, value.__doc__)),
            functools._lru_cache_wrapper: self.lru_cache,
            functools.cached_property: self.cached_property,
            typing.TypeVar: self.type_variable,
            typing.ParamSpec: self.type_variable,
            typing.NewType: lambda value: (typing.NewType, (value.__name__, value.__supertype__)),
            weakref.WeakKeyDictionary: lambda value: (self.new.weak, (type(value), dict(value))),
            weakref.WeakValueDictionary: lambda value: (self.new.weak, (type(value), dict(value))),
            weakref.WeakSet: lambda value: (self.new.weak, (type(value), list(value))),
        }
        for known, reduce in by_type.items():
            if kind is known:
                return reduce
        if issubclass(kind, ModuleType):
            return self.module
        if issubclass(kind, type):
            return self.kind
        if issubclass(type(kind), EnumMeta):
            return None if is_importable(kind) else self.member
        return self.constants(kind)

    def constants(self, kind):
        """Objects like `dataclasses.MISSING` are known by their identity: those of their type's module go by name."""
        of_module = vars(kind).get("__module__")
        module = sys.modules.get(of_module) if type(of_module) is str and of_module != "__main__" else None
        names = {}
        if type(module) is ModuleType:
            names = {id(value): (of_module, name) for name, value in vars(module).items() if type(value) is kind}
        for name in ("stdin", "stdout", "stderr"):
            if type(getattr(sys, name, None)) is kind:
                names[id(getattr(sys, name))] = "sys", name
        if not names:
            return None
        return lambda value: (self.new.constant, names[id(value)]) if id(value) in names else NotImplemented

    def function(self, value):
        if id(value) in self.given:
            return self.new.given_by_host, (self.given[id(value)],)
        if is_importable(value):
            return NotImplemented
        scope = value.__globals__
        if scope is not self.namespace:
            name = scope.get("__name__")
            module = sys.modules.get(name) if type(name) is str else None
            if module is not None and vars(module) is scope:
                scope = Call(self.new.module_names, name)
        cells, contents = None, []
        if value.__closure__ is not None:
            cells = tuple(map(self.empty, value.__closure__))
            for empty, name in zip(cells, value.__code__.co_freevars):
                try:
                    held = empty.cell.cell_contents
                except ValueError:
                    continue
                if name == "__classdict__" and type(held) is dict:
                    # From 3.14 on, the names of a class for its annotations: its own namespace.
                    held = {name: part for name, part in held.items() if name not in MADE and not is_made(part)}
                contents.append((empty, held))
        attributes = {name: getattr(value, name) for name in OF_FUNCTIONS if getattr(value, name, None)}
        # From 3.14 on, annotations are computed when they are read.
        lazy = getattr(value, "__annotate__", None)
        if lazy is not None:
            attributes["__annotate__"] = lazy
        elif value.__annotations__:
            attributes["__annotations__"] = value.__annotations__
        attributes.setdefault("__module__", value.__module__)
        attributes.update(vars(value))
        return (
            self.new.function,
            (value.__code__, scope, cells),
            (attributes, contents),
            None,
            None,
            self.new.set_function,
        )

    def builtin_function(self, value):
        return (self.new.given_by_host, (self.given[id(value)],)) if id(value) in self.given else NotImplemented

    def code(self, value):
        self.codes.append(value)
        return self.new.code, (dumps(value),)

    def empty(self, cell):
        if id(cell) not in self.cells:
            self.cells[id(cell)] = Empty(cell)
        return self.cells[id(cell)]

    def cell(self, value):
        try:
            contents = value.cell_contents
        except ValueError:
            return self.new.same, (self.empty(value),)
        return self.new.same, (self.empty(value),), contents, None, None, self.new.fill

    def module(self, value):
        name = vars(value).get("__name__")
        if vars(value) is self.namespace:
            return self.new.main, ()
        if type(name) is str and sys.modules.get(name) is value:
            inner = [other for other in list(sys.modules) if other.startswith(name + ".")]
            return self.new.module, (name, inner)
        state = {name: part for name, part in vars(value).items() if name not in OWN_NAMES}
        return self.new.new_module, (name,), state

    def kind(self, value):
        """A class."""
        if is_importable(value) or any(value is type(single) for single in (None, Ellipsis, NotImplemented)):
            return NotImplemented
        if not value.__flags__ & HEAP_TYPE:
            found = STATIC_TYPES.get(value)
            return (self.new.constant, ("types", found)) if found else NotImplemented
        own = vars(value)
        body = {name: own[name] for name in IN_BODY if name in own}
        body["__qualname__"] = value.__qualname__
        attributes = {}
        for name, attribute in own.items():
            if name not in MADE and not (is_made(attribute) and attribute.__objclass__ is value):
                attributes["__annotate__" if name == "__annotate_func__" else name] = attribute
        made = type(value), value.__name__, value.__bases__, body
        if not issubclass(type(value), EnumMeta):
            return self.new.new_class, made, attributes, None, None, self.new.set_class
        members = {name: member._value_ for name, member in value._member_map_.items()}
        states = {name: dict(vars(member)) for name, member in value._member_map_.items()}
        attributes = {
            name: attribute
            for name, attribute in attributes.items()
            if name not in members and name != "__new__" and (not is_sunder(name) or name == "_missing_")
        }
        return self.new.new_enum, (*made, members), (attributes, states), None, None, self.new.set_enum

    def member(self, value):
        """A member of an enumeration; a combination of several flags has no name."""
        kind = type(value)
        name = getattr(value, "_name_", None)
        if kind._member_map_.get(name) is value:
            return self.new.member, (kind, name)
        return kind, (value._value_,)

    def lru_cache(self, value):
        if is_importable(value):
            return NotImplemented
        settings = value.cache_parameters()
        return self.new.lru_cache, (value.__wrapped__, settings), vars(value), None, None, self.new.set_attributes

    def cached_property(self, value):
        # Before 3.12 it has a lock.
        state = {name: part for name, part in vars(value).items() if name != "lock"}
        return functools.cached_property, (value.func,), state, None, None, self.new.set_attributes

    def type_variable(self, value):
        if is_importable(value):
            return NotImplemented
        kind = type(value)
        settings = {"covariant": value.__covariant__, "contravariant": value.__contravariant__}
        if getattr(value, "__infer_variance__", False):
            settings = {"infer_variance": True}
        if value.__bound__ is not None:
            settings["bound"] = value.__bound__
        made = self.new.type_variable, (kind, value.__name__, getattr(value, "__constraints__", ()), settings)
        return (*made, {"__module__": value.__module__}, None, None, self.new.set_attributes)


class Call:
    """Is a call when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def is_sunder(name):
    return name.startswith("_") and name.endswith("_") and not name.startswith("__")


def is_made(attribute):
    """True for an attribute that stands for a place in objects."""
    return type(attribute) in (GetSetDescriptorType, MemberDescriptorType)


def is_importable(value):
    """True if another interpreter finds it by its name."""
    name = getattr(value, "__module__", None)
    if type(name) is not str or name in ("__main__", "__mp_main__"):
        return False
    found = sys.modules.get(name)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


class Sink:
    """Takes a pickle that nobody reads."""

    @staticmethod
    def write(data):
        return len(data)


def write(file, values, others, namespace, given, new):
    """Writes a pickle. Functions, classes and plain values come first: others may need them when they are made."""
    saver = Saver(file, namespace, given, new)
    first = {name: value for name, value in values.items() if issubclass(type(value), FIRST) or type(value) in PLAIN}
    parts = {name: {name: value} for name, value in values.items() if name not in first}
    saver.dump(["a function or class", *parts])
    for part in (first, *parts.values(), others):
        saver.dump(part)


def why_not(values, namespace, given, new):
    """The values that cannot be saved, with the reason."""
    reasons = {}
    for name, value in values.items():
        try:
            write(Sink, {name: value}, None, namespace, given, new)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = new.described(error)
            reasons[name] = text if len(text) <= MOST_REASON else text[:MOST_REASON] + "…"
    return reasons


def counted(values):
    """The numbers of functions, classes, modules and other values."""
    counts = {"functions": 0, "classes": 0, "modules": 0, "variables": 0}
    for kind in map(type, values.values()):
        is_class, is_module = issubclass(kind, type), issubclass(kind, ModuleType)
        place = (
            "functions" if kind is FunctionType else "classes" if is_class else "modules" if is_module else "variables"
        )
        counts[place] += 1
    return counts


def save(file, namespace, given, others, results, new):
    """Saves a namespace, and what else belongs to it. Returns the numbers of what was saved, and why names were not."""
    values = {
        name: value
        for name, value in dict(namespace).items()
        if type(name) is str and name not in OWN_NAMES and not (name in given and value is given[name])
    }
    sys.modules["rlm_saved"] = new
    try:
        try:
            write(file, values, {**others, "results": results}, namespace, given, new)
            return counted(values), {}
        except KeyboardInterrupt:
            raise
        except BaseException:
            # All are tried one by one, and those that can be saved go together.
            file.seek(0)
            file.truncate()
        reasons = why_not(values, namespace, given, new)
        values = {name: value for name, value in values.items() if name not in reasons}
        lost = why_not(results, namespace, given, new)
        results = {name: value for name, value in results.items() if name not in lost}
        write(file, values, {**others, "results": results}, namespace, given, new)
        return counted(values), reasons
    finally:
        sys.modules.pop("rlm_saved", None)
