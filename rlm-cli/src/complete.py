# Reads code and says by the exit status whether it goes on (10) or not (0). What cannot be compiled does not go on.
import codeop
import sys

try:
    goes_on = codeop.compile_command(sys.stdin.read(), symbol="exec") is None
except (SyntaxError, ValueError, OverflowError):
    goes_on = False
sys.exit(10 if goes_on else 0)
