def __rlm_attempt(number, source):
    """Runs a call that did not run to its end in the session. Prints its exception, and the script continues."""
    try:
        __rlm_cell(number, source)
    except BaseException:
        import traceback

        traceback.print_exc(file=__rlm_std[2])
    __rlm_streams()
