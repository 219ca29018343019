"""The part of the OpenEnv environment that runs in the session."""

# `after` describes the variables, and those that are new since the last time.
SETUP = """
class _rlm_openenv:
    hidden = {*globals()} - {
        "answer", "llm_batch", "llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched"
    }
    known = set()

    def names():
        return [name for name in list(globals()) if not name.startswith("_") and name not in _rlm_openenv.hidden]

    def load(path):
        global context
        with open(path, encoding="utf-8") as file:
            context = file.read()

    def after(wanted):
        import json

        new = {}
        for name in _rlm_openenv.names():
            if name not in _rlm_openenv.known:
                try:
                    text = repr(globals()[name])
                except Exception:
                    text = "<unrepresentable>"
                new[name] = text if len(text) <= 500 else text[:500] + "..."
        _rlm_openenv.known = set(_rlm_openenv.names())
        value = globals().get(wanted)
        return json.dumps([sorted(_rlm_openenv.known), new, None if value is None else str(value)])


def SHOW_VARS():
    return _rlm_openenv.names()


def FINAL(value):
    if isinstance(globals().get("answer"), dict):
        answer.update(content=str(value), ready=True)
    return f"FINAL({value})"


def FINAL_VAR(name):
    value = globals().get(str(name).strip().strip("\\"'"))
    return f"FINAL_VAR({name})" if value is None else FINAL(value)


if "llm_batch" in globals() and "llm_query_batched" not in globals():

    def llm_query_batched(prompts, model=None):
        return llm_batch(list(prompts))

    rlm_query, rlm_query_batched = llm_query, llm_query_batched
"""
