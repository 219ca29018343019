# Reads code and reports by exit status: 10 if it is incomplete, 0 otherwise. Code with a syntax error is complete.
import codeop
import sys

try:
    is_incomplete = codeop.compile_command(sys.stdin.read(), symbol="exec") is None
except (SyntaxError, ValueError, OverflowError):
    is_incomplete = False
sys.exit(10 if is_incomplete else 0)
