# Root tools work in their session alone.
def __rlm_tool(name):
    def tool(*args, **kwargs):
        raise RuntimeError(
            f"{name} is a root tool of the session that this script is of: "
            "`rlm script --recorded FILE` puts its recorded answers in"
        )

    tool.__name__ = tool.__qualname__ = name
    return tool
