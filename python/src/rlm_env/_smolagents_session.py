"""The part of the smolagents executor that runs in the session."""

# Defines the tools, which go through one root tool, and loads the variables.
SETUP = '''
class _rlm_smolagents:
    class Final(BaseException):
        """Ends the code that has given its final answer."""

    def make(name):
        def tool(*args, **kwargs):
            if name != "final_answer":
                return rlm_smolagents_call(name, args, kwargs)
            try:
                rlm_smolagents_call(name, args, kwargs)
            except Exception as error:
                if isinstance(error, RuntimeError) and "is refused" not in str(error):
                    raise
                # A value that cannot leave the session.
                rlm_smolagents_call(name, [repr(value) for value in [*args, *kwargs.values()]], {})
            raise _rlm_smolagents.Final

        tool.__name__ = tool.__qualname__ = name
        return tool

    def configure(names):
        globals().update((name, _rlm_smolagents.make(name)) for name in names)
'''
