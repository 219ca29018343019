"""Root tools as functions, loaded only if a session has some.

Everything it needs from Python is looked up here, before the first cell, so that cells cannot affect it.
"""

FROM_PICKLES = "refused in a result: only plain data is read"


def bounded(kind):
    """The type, except that it refuses a length as its argument, which a pickle could use to fill the memory."""

    def make(*args):
        if args and isinstance(args[0], int):
            raise ValueError(f"{kind.__name__} of a length is {FROM_PICKLES}")
        return kind(*args)

    return make


def pickling():
    from _codecs import encode
    from _io import BytesIO
    from _pickle import Unpickler, dumps

    def encode_latin1(text, encoding="latin1"):
        # Protocols below 3 write bytes this way.
        if encoding != "latin1":
            raise ValueError(f"the encoding {encoding} is {FROM_PICKLES}")
        return encode(text, encoding)

    plain = {("_codecs", "encode"): encode_latin1}
    for module in "builtins", "__builtin__":
        plain[module, "set"] = set
        plain[module, "frozenset"] = frozenset
        plain[module, "bytes"] = bounded(bytes)
        plain[module, "bytearray"] = bounded(bytearray)

    class PlainUnpickler(Unpickler):
        def find_class(self, module, name):
            try:
                return plain[module, name]
            except KeyError:
                raise ValueError(f"global {module}.{name} is {FROM_PICKLES}") from None

    def loads(data):
        return PlainUnpickler(BytesIO(data)).load()

    return dumps, loads


def json():
    # The C parts: cells that change builtins or modules do not affect them.
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    class Context:
        strict = True
        # `array_hook` is asked for from 3.15 on.
        object_hook = object_pairs_hook = array_hook = None
        parse_float, parse_int = float, int
        parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.get

    def refuse(value):
        raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")

    def dumps(value):
        encode = make_encoder({}, refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
        return "".join(encode(value, 0))

    scan = make_scanner(Context)

    def loads(text):
        value, _ = scan(text, 0)
        return value

    return dumps, loads


def add(namespace, names, call):
    """Adds a function for each tool to the namespace; `call` takes a name, positional and keyword arguments."""
    for name in names:
        namespace[name] = function(name, call)


def function(name, call):
    def tool(*args, **kwargs):
        return call(name, args, kwargs)

    # Belongs to the session's module, so that it can be pickled by name.
    tool.__module__ = "__main__"
    tool.__name__ = tool.__qualname__ = name
    tool.__doc__ = f"The root tool {name}: it runs on the host."
    return tool
