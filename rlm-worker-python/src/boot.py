# The program of `python3 -I -i -c`, with the paths of the engine and its pipes as arguments. Every Python must be able
# to parse it, so that one that is too old can say so, and it leaves no name behind in `__main__`. The engine becomes
# the interactive hook, because Python calls that from C: none of our frames are below a cell's.
def boot():
    import posix
    import sys

    def refuse(reason):
        sys.stderr.write(reason + "\n")
        sys.stderr.flush()
        posix._exit(1)

    version = "%d.%d.%d" % tuple(sys.version_info[:3])
    if sys.version_info < (3, 10):
        reason = "CPython 3.10 or newer is needed, this is " + version
        try:
            posix.stat(sys.argv[1].rpartition("/")[0] + "/python/bin/python3")
            reason += "; --python=builtin is a newer one"
        except OSError:
            pass
        refuse(reason)
    if sys.implementation.name != "cpython":
        refuse("CPython is needed, this is %s %s" % (sys.implementation.name, version))
    if "t" in sys.abiflags:
        refuse("a CPython with a GIL is needed, this is the free-threaded " + version)
    import _imp
    from _frozen_importlib import ModuleSpec

    try:
        engine = _imp.create_dynamic(ModuleSpec("rlm_cell_engine", None, origin=sys.argv[1]))
        _imp.exec_dynamic(engine)
    except ImportError as error:
        refuse("the cell engine cannot be loaded: %s" % error)
    sys.__interactivehook__ = engine.serve


boot()
del boot
