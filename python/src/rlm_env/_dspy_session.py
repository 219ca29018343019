"""The part of the dspy interpreter that runs in the session."""

# Defines the tools and SUBMIT in the session. Both go through one root tool, so any tool can be added at any time.
SETUP = '''
class _rlm_dspy:
    class Submission(BaseException):
        """Ends the code that has called SUBMIT."""

    names = ()

    def make(name):
        def tool(*args, **kwargs):
            return rlm_dspy_call(name, args, kwargs)

        tool.__name__ = tool.__qualname__ = name
        return tool

    def configure(names, fields):
        space = globals()
        for name in _rlm_dspy.names:
            space.pop(name, None)
        _rlm_dspy.names = names
        space.update((name, _rlm_dspy.make(name)) for name in names)

        def SUBMIT(*args, **kwargs):
            if fields is None:
                if len(args) != 1 or kwargs:
                    raise TypeError("SUBMIT takes one value")
                values = {"output": args[0]}
            elif args and kwargs:
                raise TypeError("SUBMIT takes positional or keyword values, not both")
            else:
                values = dict(zip(fields, args)) if args else kwargs
                if set(values) != set(fields) or len(args) > len(fields):
                    raise TypeError(f"SUBMIT takes the fields {', '.join(fields)}")
            rlm_dspy_call("SUBMIT", (_rlm_dspy.text(values),), {})
            raise _rlm_dspy.Submission

        space["SUBMIT"] = SUBMIT

    def text(values):
        import json

        for name, value in values.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                values[name] = repr(value)
        return json.dumps(values)
'''
