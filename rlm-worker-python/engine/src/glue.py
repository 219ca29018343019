"""The Python part of the cell engine: code that would be longer, or less exact, in Rust.

It runs in a namespace and with builtins of its own, so that cells cannot affect it. Modules are imported when a cell
first needs them: most sessions never format a traceback, and they start faster and stay smaller this way.
"""

import sys
from _ast import AST, Call, Name
from _contextvars import copy_context
from _frozen_importlib_external import PathFinder
from _io import FileIO
from _signal import set_wakeup_fd
from _thread import get_ident
from _weakref import ref


class Sources(dict):
    """The cache of `linecache`, which a cell may clear: files can be read again, cells cannot."""

    def clear(self):
        for filename in [filename for filename in self if not is_cell(filename)]:
            del self[filename]


# The sources of cells whose code is alive, as `linecache` keeps them. It becomes the cache of `linecache` itself.
sources = Sources()

# Number of living code objects of each such cell, and whether the cell defines a class.
alive = {}

# The reference and the cell of each weak reference to such code, by the identity of the reference.
cell_of = {}

# References whose code has died. They are added by `append`, in C, which no interrupt can hit.
dead = []

# Cells with a class but no living code: the class may still exist, and nothing reports it. The oldest are dropped
# first.
with_classes = {}
CLASS_CELLS = 1000

CO_OPTIMIZED = 1
CO_COROUTINE = 0x80

# Most calls that a traceback shows: more than Python's own recursion limit of 1,000.
MAX_FRAMES = 1500

HEAD = "Traceback (most recent call last):\n"


def move_to_written(tree, tree_of_written):
    """Moves each node of a cell's tree to its position in the source as written. Returns the tree.

    Both must be the same program, except that the code has names in place of calls that the host has made. Otherwise
    this returns None, and the tree is unusable.
    """
    pairs = [(tree, tree_of_written)]
    known = {}
    for node, origin in pairs:
        kind = type(node)
        of_kind = known.get(kind)
        if of_kind is None:
            of_kind = known[kind] = (kind._fields, kind._attributes) if issubclass(kind, AST) else ()
        if kind is type(origin):
            if not of_kind:
                if node != origin:
                    return None
                continue
            for field in of_kind[0]:
                ours, theirs = getattr(node, field, None), getattr(origin, field, None)
                if ours is theirs:
                    continue
                if type(ours) is not list:
                    pairs.append((ours, theirs))
                elif type(theirs) is list and len(ours) == len(theirs):
                    pairs += zip(ours, theirs)
                else:
                    return None
        elif kind is not Name or type(origin) is not Call:
            return None
        for attribute in of_kind[1]:
            setattr(node, attribute, getattr(origin, attribute))
    return tree


def add_source(filename, source):
    """Adds the source of a cell to `linecache`."""
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    sources[filename] = (len(source), None, [line + "\n" for line in lines], filename)


def keep_source(filename, codes):
    """Keeps the source of a cell for as long as code of the cell is alive."""
    codes = list(codes)
    for code in codes:
        codes.extend(const for const in code.co_consts if type(const) is type(code))
    has_class = any(not code.co_flags & CO_OPTIMIZED and code.co_name != "<module>" for code in codes)
    alive[filename] = [len(codes), has_class]
    for code in codes:
        reference = ref(code, dead.append)
        cell_of[id(reference)] = reference, filename


def is_cell(filename):
    return filename.startswith("<cell ")


def format_exception(error):
    """Formats a traceback as Python does, without our own frames."""
    from traceback import TracebackException

    chain, seen = [error], set()
    for link in chain:
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        link.__traceback__ = of_cell(link.__traceback__)
        chain += [link.__cause__, link.__context__, *(getattr(link, "exceptions", ()) or ())]
    traceback = error.__traceback__
    depth, entry = 0, traceback
    while entry is not None:
        depth, entry = depth + 1, entry.tb_next
    # The formatter would take minutes for a recursion of a million calls.
    limit = None if depth <= MAX_FRAMES else -MAX_FRAMES
    lines = list(TracebackException(type(error), error, traceback, limit=limit, compact=True).format())
    if limit is not None and HEAD in lines:
        # The last of several exceptions is the one that was not caught.
        place = len(lines) - lines[::-1].index(HEAD)
        lines.insert(place, "  [%d calls left out here]\n" % (depth - MAX_FRAMES))
    return "".join(lines).removesuffix("\n")


def of_cell(traceback):
    """The part of a traceback that belongs to a cell: from its first frame on, without our frames."""
    start, last, has_ours = None, None, False
    entry = traceback
    while entry is not None and entry.tb_frame.f_code.co_filename != "<rlm tools>":
        if entry.tb_frame.f_globals is own_globals:
            has_ours = True
        elif start is None and is_cell(entry.tb_frame.f_code.co_filename):
            start = last = entry
        elif start is not None:
            last.tb_next = last = entry
        entry = entry.tb_next
    if last is not None:
        # The frames below the call of a root tool are ours, too.
        last.tb_next = None
    return start if start is not None or has_ours else traceback


# The event loop of all cells, once one has used it: its tasks go on while cells await, and between calls.
loop = None
all_tasks = None
current_loop = None


def session_loop():
    """The event loop of the session: the one that a cell has made the current one, or a new one."""
    global loop, all_tasks
    import asyncio

    if loop is None or loop.is_closed():
        try:
            loop = current_loop()
        except Exception:
            loop = None
        if loop is None or loop.is_closed():
            loop = asyncio.new_event_loop()
        all_tasks = asyncio.all_tasks
    asyncio.set_event_loop(loop)
    return loop


def add_tasks(tasks):
    """Lets cells that do not await start tasks in the event loop of the session."""
    from functools import wraps

    get_running, set_running = tasks.events._get_running_loop, tasks.events._set_running_loop

    def in_session(start):
        @wraps(start)
        def start_in_session(*arguments, **settings):
            if get_running() is not None or get_ident() != main_thread:
                return start(*arguments, **settings)
            set_running(session_loop())
            try:
                return start(*arguments, **settings)
            finally:
                set_running(None)

        return start_in_session

    global current_loop
    current_loop = tasks.events.get_event_loop

    # `asyncio.run` leaves none, and from 3.14 on none is made.
    @wraps(current_loop)
    def get_event_loop():
        try:
            return current_loop()
        except RuntimeError:
            if get_ident() != main_thread:
                raise
            return session_loop()

    tasks.events.get_event_loop = get_event_loop
    if "asyncio" in modules:
        modules["asyncio"].get_event_loop = get_event_loop
    for name in ("create_task", "ensure_future", "gather"):
        function = in_session(getattr(tasks, name))
        setattr(tasks, name, function)
        if "asyncio" in modules:
            setattr(modules["asyncio"], name, function)


def has_tasks():
    """True if cells have left tasks that are not done."""
    return loop is not None and not loop.is_closed() and bool(all_tasks(loop))


def run_tasks(commands):
    """Runs the tasks until there is a command to read."""
    try:
        # Its number may have been that of a file which was closed without a word to the loop.
        loop.remove_reader(commands)
        loop.add_reader(commands, loop.stop)
        try:
            loop.run_forever()
        finally:
            loop.remove_reader(commands)
    except Exception:
        # The loop cannot run: the tasks wait.
        pass


async def run_parts(namespace, codes, variables):
    """Runs the parts of a cell in one task: all of them see a running loop if one of them awaits."""
    try:
        for code in codes:
            value = eval(code, namespace)
            if code.co_flags & CO_COROUTINE:
                value = await value
        return value
    finally:
        variables.update(copy_context())


def run_async(namespace, codes):
    """Runs a cell that awaits. Its context variables stay, although a task has a context of its own."""
    variables = {}
    try:
        return run_in_loop(namespace, codes, variables)
    finally:
        for variable, value in variables.items():
            if variable.get(None) is not value:
                variable.set(value)


def run_in_loop(namespace, codes, variables):
    global loop
    import asyncio

    session_loop()
    # A stop that was requested in an earlier cell must not stop the loop in this one.
    loop.call_soon(loop.stop)
    loop.run_forever()
    task = loop.create_task(run_parts(namespace, codes, variables))
    try:
        return loop.run_until_complete(task)
    except BaseException as error:
        failure = error
    stuck, loop = loop, None
    if not task.done():
        task.cancel()
        try:
            stuck.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except BaseException:
            if not task.done():
                # The task ignores the cancellation too, and is left to a loop that never runs again.
                task._log_destroy_pending = False
                raise failure from None
    loop = stuck
    try:
        raise failure
    finally:
        del failure


def complete_error(error, filename):
    """Adds to a syntax error its source line, where the compiler, unlike the parser, looks for a file, and advice."""
    if not isinstance(error, SyntaxError) or error.filename != filename or not error.lineno:
        return
    line = sources[filename][2][error.lineno - 1]
    if error.text is None:
        error.text = line
    if error.text and (advice := scope_of("NOTEBOOK")["instead"](line)):
        error.msg += ". In place of this line, write " + advice


def scope_of(part):
    """Runs a part of the engine that most sessions do not need, and returns its names."""
    scope = {"__builtins__": __builtins__, "__name__": "rlm_cell_engine"}
    exec(compile(own_globals[part], "<rlm>", "exec"), scope)
    return scope


def add_sources(linecache):
    sources.update(linecache.cache)
    # From 3.13 on the interpreter adds the text of `-c`, which would be taken for the source of any other "<string>".
    sources.pop("<string>", None)
    getattr(linecache, "_interactive_cache", {}).clear()
    linecache.cache = sources


def add_classes(inspect):
    """Lets `inspect` find the file of a class that a cell defined."""
    scope_of("CLASSES")["add_classes"](inspect, sources, is_cell)


def add_definitions(spawn):
    """Lets new processes of `multiprocessing` have the definitions of cells."""
    namespace = modules["__main__"].__dict__

    def cells():
        return {name: sources[name][2] for name in list(sources) if is_cell(name)}

    send = scope_of("DEFINITIONS")["send_definitions"]
    send(spawn, namespace, cells, own_globals["LOADING"], loading, scope_of("SAVING"))


def loading():
    """The module that makes the objects of a saved session."""
    module = type(sys)("rlm_saved")
    module.__dict__["__builtins__"] = __builtins__
    exec(compile(own_globals["LOADING"], "<rlm>", "exec"), module.__dict__)
    return module


def results_of(namespace):
    """The namespace in which the last two results are: the builtins of cells."""
    builtins = namespace.get("__builtins__")
    return builtins if type(builtins) is dict else builtins.__dict__


def save(descriptor, namespace, given, futures):
    """Writes the session to a file. Returns its size, what is in it and what is not, as JSON."""
    from json import dumps

    file = FileIO(descriptor, "r+b", closefd=False)
    results = results_of(namespace)
    results = {name: results[name] for name in ("_", "__") if name in results}
    cells = {name: "".join(sources[name][2])[:-1] for name in list(sources) if is_cell(name)}
    others = {"futures": futures, "sources": cells}
    counts, left_out = scope_of("SAVING")["save"](file, namespace, given, others, results, loading())
    return dumps({"bytes": file.tell(), "counts": counts, "left_out": left_out})


def load(descriptor, namespace, given):
    """Takes over a session from a file. Returns what is not here, as JSON, and the flags of its cells."""
    from io import BufferedReader
    from json import dumps

    new = loading()
    others = new.load(BufferedReader(FileIO(descriptor, "rb", closefd=False), 1 << 20), namespace, given)
    for filename, source in others["sources"].items():
        add_source(filename, source)
        if filename in new.codes:
            keep_source(filename, new.codes[filename])
        else:
            with_classes[filename] = None
    results_of(namespace).update(others["results"])
    return dumps({"bytes": 0, "counts": {}, "left_out": new.missing}), others["futures"]


def display(*objects):
    """Prints the repr of each object, as a notebook shows it where it has no picture."""
    for value in objects:
        print(repr(value))


modules = sys.modules


def complete(namespace, code):
    """The name at the end of the code, and the names of the session that begin with it."""
    return scope_of("COMPLETING")["complete"](namespace, code)


def tidy():
    """Cleans up after each cell, when nothing can interrupt it."""
    while dead:
        _, filename = cell_of.pop(id(dead.pop()))
        forget_code(filename)
    events = modules.get("asyncio.events")
    if events is not None:
        # No loop runs now, but a stop may have kept one from saying so.
        events._set_running_loop(None)
        if loop is not None and loop.is_running():
            loop._thread_id = None


def before_copy():
    """The state of `random`, which begins anew in a new process."""
    random = modules.get("random")
    return random and random._inst.getstate()


def after_copy(state):
    """Goes on in a copy of the process: the loop's descriptors are closed there."""
    global loop
    if state:
        modules["random"]._inst.setstate(state)
    old, loop = loop, None
    set_wakeup_fd(-1)
    if "asyncio" in modules:
        modules["asyncio"].set_event_loop(None)
    # Neither process is a child of this one.
    for name, attribute in ("forkserver", "_forkserver"), ("resource_tracker", "_resource_tracker"):
        helper = getattr(modules.get("multiprocessing." + name), attribute, None)
        if helper is not None:
            helper.__init__()
    if old is not None:
        old.close()


def forget_code(filename):
    """Drops the source of a cell when the last of its code has died."""
    state = alive[filename]
    state[0] -= 1
    if state[0]:
        return
    del alive[filename]
    if not state[1]:
        sources.pop(filename, None)
        return
    with_classes[filename] = None
    if len(with_classes) > CLASS_CELLS:
        oldest = next(iter(with_classes))
        del with_classes[oldest]
        sources.pop(oldest, None)


additions = {
    "linecache": add_sources,
    "inspect": add_classes,
    "multiprocessing.spawn": add_definitions,
    "asyncio.tasks": add_tasks,
}


class LateAdditions:
    """Finds the modules of `additions`, and patches each one when a cell first imports it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        add = additions.get(name)
        spec = PathFinder.find_spec(name, path, target) if add else None
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        exec_module = spec.loader.exec_module

        def exec_and_add(module):
            exec_module(module)
            add(module)

        spec.loader.exec_module = exec_and_add
        return spec


own_globals = globals()
main_thread = get_ident()
for name, add in additions.items():
    if name in sys.modules:
        add(sys.modules[name])
sys.meta_path.insert(0, LateAdditions)
