"""The completion of code that is being typed."""


def complete(namespace, code):
    """The name at the end of the code, and the names of the session that begin with it.

    Of the session's code only the `__dir__` of an object runs: no property is read, and no `__getattr__` is asked.
    """
    from keyword import kwlist
    from re import search

    match = search(r"(?:[^\W\d]\w*\.)*(?:[^\W\d]\w*)?$", code)
    *path, name = match[0].split(".")
    names = {**__builtins__, **namespace}
    if code.endswith(".", 0, match.start()):
        # An attribute of something that only running the code could tell.
        found = ()
    elif path:
        value = names[path[0]]
        for attribute in path[1:]:
            value = static_attribute(value, attribute)
        found = dir(value)
    else:
        found = [*names, *kwlist]
    found = {word for word in found if type(word) is str and word.isidentifier() and word.startswith(name)}
    if not name.startswith("_"):
        found = {word for word in found if not word.startswith("_")}
    return name, sorted(found)


def static_attribute(value, name):
    """An attribute that can be read without running code of the session. Raises AttributeError without one."""
    from inspect import getattr_static
    from types import FunctionType, GetSetDescriptorType, MemberDescriptorType

    found = getattr_static(value, name)
    kind = type(found)
    if kind in (GetSetDescriptorType, MemberDescriptorType):
        return found.__get__(value, type(value))
    if kind in (classmethod, staticmethod):
        return found.__func__
    if kind is not FunctionType and getattr_static(kind, "__get__", None):
        raise AttributeError(name)
    return found
