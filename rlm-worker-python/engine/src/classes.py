"""The files of classes that cells have defined, for `inspect`: `__main__` does not have one."""

import re


def add_classes(inspect, sources, is_cell):
    """Lets `inspect` find the file of a class that a cell defined: `__main__` does not have one."""
    getfile = inspect.getfile

    def getfile_of_cells(object):
        if isinstance(object, type) and object.__module__ == "__main__":
            is_head = re.compile(r"\s*class\s+" + re.escape(object.__name__) + r"\b").match
            # Available from 3.13 on: the line of the first decorator, or of `class` without one.
            first = vars(object).get("__firstlineno__")

            def may_define(filename):
                lines = sources[filename][2]
                if first is not None:
                    lines = lines[first - 1 :]
                    if not any(line.lstrip().startswith("@") or is_head(line) for line in lines[:1]):
                        return False
                return any(map(is_head, lines))

            # A method may come from another cell, by assignment or through its decorator.
            methods = (getattr(value, "__code__", None) for value in vars(object).values())
            files = {getattr(code, "co_filename", "") for code in methods}

            def likely_first(name):
                return name in files, len(name), name

            for filename in sorted(filter(is_cell, sources), key=likely_first, reverse=True):
                if may_define(filename):
                    return filename
        return getfile(object)

    inspect.getfile = getfile_of_cells
