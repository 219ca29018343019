"""Fits what dist/python makes to the place and the box it is on; the reference for an unpacker, which does the same.

    DIRECTORY/lib/glibc/ld-linux-x86-64.so.2 DIRECTORY/bin/python3.11 python-settle.py DIRECTORY [box | bundled]

With the box's C library, lib/glibc goes, and the ELF interpreter is the box's. With the bundled one, lib/glibc stays,
and the ELF interpreter is the one in it, by its absolute path. lib/gcc stays only where the box has no libgcc_s.
"""

import os
import re
import shutil
import struct
import subprocess
import sys

BOX = "/lib64/ld-linux-x86-64.so.2"
LIBRARIES = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


def box_suffices(bundle):
    """Is the box's C library as new as the bundle's programs need? Before 2.33, its loader does not know --version."""
    with open(f"{bundle}/share/glibc") as file:
        needed = file.read().split(".")
    try:
        told = subprocess.run([BOX, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return False
    version = re.search(r"release version (\d+)\.(\d+)", told)
    return version is not None and [int(part) for part in version.groups()] >= [int(part) for part in needed]


def set_interpreter(program, path):
    """Writes `path`, filled up with zero bytes, into the segment with the ELF interpreter's name."""
    with open(program, "rb") as file:
        elf = bytearray(file.read())
    (headers,), (count,) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<H", elf, 56)
    for header in range(headers, headers + 56 * count, 56):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", elf, header)
        if kind == 3:  # PT_INTERP
            if len(path) >= size:
                sys.exit(f"{path}: longer than the {size - 1} bytes that there is room for")
            elf[offset : offset + size] = path.ljust(size, b"\0")
    with open(f"{program}.new", "wb") as file:
        file.write(elf)
    os.chmod(f"{program}.new", 0o755)
    os.replace(f"{program}.new", program)


def settle(bundle, c_library):
    if c_library == "box":
        shutil.rmtree(f"{bundle}/lib/glibc")
        set_interpreter(f"{bundle}/bin/python3.11", os.fsencode(BOX))
    else:
        set_interpreter(f"{bundle}/bin/python3.11", os.fsencode(f"{bundle}/lib/glibc/ld-linux-x86-64.so.2"))
    if any(os.path.exists(f"{directory}/libgcc_s.so.1") for directory in LIBRARIES):
        shutil.rmtree(f"{bundle}/lib/gcc")


if __name__ == "__main__":
    bundle = os.path.realpath(sys.argv[1])
    settle(bundle, sys.argv[2] if len(sys.argv) > 2 else "box" if box_suffices(bundle) else "bundled")
