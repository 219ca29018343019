# Reads pieces of code, each after a line with its size in bytes, and writes a line for each: 1 if it is incomplete, 0
# otherwise. Code with a syntax error is complete.
import codeop
import sys

for size in sys.stdin.buffer:
    code = sys.stdin.buffer.read(int(size)).decode()
    try:
        is_incomplete = codeop.compile_command(code, symbol="exec") is None
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        is_incomplete = False
    print(int(is_incomplete), flush=True)
