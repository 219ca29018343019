"""Python for lines of IPython, of shells and of Markdown: what the error of a cell with such a line says to write."""

import re

# Programs that models call as if the cell were a shell's.
PROGRAMS = {"apt", "apt-get", "cat", "cd", "conda", "curl", "git", "grep", "ls", "mkdir", "npm", "pip", "pip3", "wget"}

LEFT_OUT = {"autoreload", "config", "load_ext", "matplotlib", "precision", "reload_ext"}


def instead(line):
    """The Python for a line, in words where it is not one line. None for a line that seems to be Python."""
    line = line.strip()
    if line.startswith("```"):
        return "nothing: a fence is Markdown's"
    name, _, rest = line.partition(" ")
    if name in PROGRAMS and re.match(r" *(?![=,:)\]}]|\.\w)\S", rest):
        return instead_of_magic(name.rstrip("3"), rest.strip()) if name in ("cd", "pip", "pip3") else of_shell(line)
    if found := re.fullmatch(r"(?:([\w.]+)\s*=\s*)?!{1,2}(?!=)(.+)", line):
        name, command = found[1], found[2].strip()
        if name:
            return f"import subprocess; {name} = subprocess.getoutput({quoted(command)})"
        return of_shell(command)
    if found := re.match(r"%{1,2}(\w+) *(.*)", line):
        return instead_of_magic(found[1], found[2].strip())
    if found := re.fullmatch(r"\?{1,2}([\w.]+)|([\w.]+)\?{1,2}", line):
        return f"help({found[1] or found[2]})"
    return None


def of_shell(command):
    return f"import subprocess; subprocess.run({quoted(command)}, shell=True)"


def quoted(command):
    """A literal; names of Python in braces are values, as in IPython."""
    return "f" * bool(re.search(r"(?<!\$)\{[A-Za-z_][^{}]*\}", command)) + repr(command)


def instead_of_magic(name, rest):
    if name == "pip":
        words = ["-m", "pip", *rest.split()]
        return f"import subprocess, sys; subprocess.run([sys.executable, {str(words)[1:]})"
    if name in ("bash", "sh", "script", "system", "sx"):
        text = repr(rest) if rest and name in ("system", "sx") else "'''...'''"
        return f"import subprocess; subprocess.run({text}, shell=True, executable='bash')"
    if name == "run":
        return f"import runpy; runpy.run_path({rest!r}, run_name='__main__')"
    if name in ("ls", "cat", "mkdir", "rm", "cp", "mv"):
        return of_shell(f"{name} {rest}".strip())
    if name == "cd":
        return f"import os; os.chdir({rest!r})"
    if name in ("env", "set_env") and "=" in rest:
        variable, value = rest.split("=", 1)
        return f"import os; os.environ[{variable.strip()!r}] = {value.strip()!r}"
    if name in ("time", "timeit"):
        return "import time, and the difference of time.perf_counter() after and before"
    if name in ("writefile", "file"):
        return f"open({rest!r}, 'w').write(...)"
    if name in LEFT_OUT:
        return "nothing: leave the line out"
    return "Python: there are no magics"
