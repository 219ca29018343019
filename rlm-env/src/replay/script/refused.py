# Root tools only work within their session.
def __rlm_tool(name):
    def tool(*args, **kwargs):
        raise RuntimeError(
            f"{name} is a root tool of the original session: "
            "`rlm script --recorded FILE` adds its recorded replies to the script"
        )

    tool.__name__ = tool.__qualname__ = name
    return tool
