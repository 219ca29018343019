"""Edits a copy of Debian's CPython 3.11, so that it is laid out like upstream's and finds all that it needs beside it.

python-edits.py DIRECTORY ZONEINFO PIP_WHEEL. Each edit fails unless its place is there exactly once.
"""

import pathlib
import struct
import sys
import zipfile

out, zoneinfo, wheel = map(pathlib.Path, sys.argv[1:])
stdlib = out / "lib/python3.11"


def replace(name, old, new):
    path = stdlib / name
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"{path}: expected this once, found it {text.count(old)} times: {old!r}")
    path.write_text(text.replace(old, new))


def cut(name, first, until):
    """Removes the text from the start of `first` to the start of `until`."""
    text = (stdlib / name).read_text()
    start = text.find(first)
    end = text.find(until, start)
    if start < 0 or end < 0:
        sys.exit(f"{stdlib / name}: expected {first!r} and then {until!r}")
    replace(name, text[start:end], "")


# Installed packages are in lib/python3.11/site-packages.
cut("site.py", "For Debian and derivatives", 'If a file named "pyvenv.cfg"')
replace("site.py", "lib/python3/dist-packages.\n", "lib/python<version>/site-packages.\n")
cut("site.py", "    is_virtual_environment = ", "    for prefix in prefixes:")
cut("site.py", "            if is_virtual_environment:", "            for libdir in libdirs:")
replace(
    "site.py",
    '"dist-packages")\n                sitepackages.append(path)',
    '"site-packages")\n                sitepackages.append(path)',
)
cut("sysconfig.py", "    'deb_system': {", "    'posix_home': {")
replace("sysconfig.py", "('posix_prefix', 'posix_home', 'posix_local', 'deb_system')", "('posix_prefix', 'posix_home')")
cut(
    "sysconfig.py", "    if sys.base_prefix != sys.prefix or hasattr(", "    return {\n        'prefix': prefix_scheme,"
)
replace("sysconfig.py", "'prefix': prefix_scheme,", "'prefix': 'posix_prefix',")
replace(
    "distutils/sysconfig.py",
    'return sys.base_prefix != sys.prefix or hasattr(sys, "real_prefix")',
    "return True  # so that none of Debian's layouts is chosen",
)
replace("distutils/command/install_egg_info.py", "            no_pyver = True\n", "            no_pyver = False\n")
cut(
    "pydoc.py",
    "              not file.startswith(os.path.join(basedir, 'dist-packages'))",
    "              not file.startswith(os.path.join(basedir, 'site-packages'))",
)

# sysconfig tells of this place, not of Debian's /usr.
directories = (
    "prefix exec_prefix BINDIR BINLIBDEST CONFINCLUDEDIR CONFINCLUDEPY DESTDIRS DESTLIB DESTSHARED INCLDIRSTOMAKE "
    "INCLUDEDIR INCLUDEPY LIBDEST LIBDIR LIBPC LIBPL MACHDESTLIB MANDIR SCRIPTDIR datarootdir"
)
with open(stdlib / "_sysconfigdata__x86_64-linux-gnu.py", "a") as file:
    file.write(
        f"""
import sys
for _name in {directories!r}.split():
    build_time_vars[_name] = build_time_vars[_name].replace('/x86_64-linux-gnu', '').replace('/usr', sys.base_prefix)
"""
    )

# The interpreter finds its libraries from its own place, so that a copy of it in a virtual environment would not run.
replace("venv/__init__.py", "        self.symlinks = symlinks\n", "        self.symlinks = True\n")

# pip is all that a virtual environment gets, as from CPython 3.12 on. Its wheel is not compressed: an archive of the
# whole directory compresses it better.
replace("_sysconfigdata__x86_64-linux-gnu.py", "'WHEEL_PKG_DIR': '/usr/share/python-wheels/'", "'WHEEL_PKG_DIR': ''")
cut("ensurepip/__init__.py", "def _ensurepip_is_disabled_in_debian_for_system", '__all__ = ["version"')
cut(
    "ensurepip/__init__.py",
    "    # Ensure that we are only running this inside of a virtual",
    "    if altinstall and default_pip:",
)
replace("ensurepip/__init__.py", "_PACKAGE_NAMES = ('setuptools', 'pip')", "_PACKAGE_NAMES = ('pip',)")
cut("ensurepip/__init__.py", '_SETUPTOOLS_VERSION = "', '_PIP_VERSION = "')
cut("ensurepip/__init__.py", '    ("setuptools", _SETUPTOOLS_VERSION', '    ("pip", _PIP_VERSION')
replace("ensurepip/__init__.py", '_PIP_VERSION = "22.3.1"', f'_PIP_VERSION = "{wheel.name.split("-")[1]}"')


def store(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data)


(stdlib / "ensurepip/_bundled").mkdir()
with zipfile.ZipFile(wheel) as archive:
    store(stdlib / "ensurepip/_bundled" / wheel.name, [(name, archive.read(name)) for name in archive.namelist()])

# Time zones: the box's, else those of an installed tzdata, else ours.
keys = sorted(
    key
    for path in zoneinfo.rglob("*")
    if path.is_file()
    and (key := str(path.relative_to(zoneinfo))).split("/")[0] not in ("right", "posix", "posixrules", "localtime")
    and path.read_bytes().startswith(b"TZif")
)
store(stdlib / "zoneinfo/tzdata.zip", [(key, (zoneinfo / key).read_bytes()) for key in keys])
replace(
    "zoneinfo/_common.py",
    '        raise ZoneInfoNotFoundError(f"No time zone found with key {key}")\n',
    """\
        import io

        try:
            with open_bundled() as archive:
                return io.BytesIO(archive.read(key))
        except KeyError:
            raise ZoneInfoNotFoundError(f"No time zone found with key {key}")


def open_bundled():
    import os.path
    import zipfile

    return zipfile.ZipFile(os.path.join(os.path.dirname(__file__), "tzdata.zip"))
""",
)
replace(
    "zoneinfo/_tzpath.py",
    "    except (ImportError, FileNotFoundError):\n        pass\n",
    """\
    except (ImportError, FileNotFoundError):
        from ._common import open_bundled

        with open_bundled() as archive:
            valid_zones.update(archive.namelist())
""",
)

# Certificates: those that the environment names, else the box's, wherever its distribution has them, else ours.
replace(
    "ssl.py",
    "    return DefaultVerifyPaths(cafile if os.path.isfile(cafile)",
    """\
    if cafile == parts[1] and capath == parts[3] and not _holds(cafile) and not _holds(capath):
        cafile = next(filter(_holds, _CERTIFICATE_FILES), cafile)

    return DefaultVerifyPaths(cafile if os.path.isfile(cafile)""",
)
replace(
    "ssl.py",
    "def get_default_verify_paths():",
    """\
_CERTIFICATE_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",  # older RHEL, Amazon
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/var/lib/ca-certificates/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine
    os.path.join(sys.base_prefix, "share", "ca-certificates.crt"),
)

def _holds(path):
    try:
        return bool(os.listdir(path)) if os.path.isdir(path) else os.path.getsize(path) > 0
    except OSError:
        return False

def get_default_verify_paths():""",
)
replace(
    "ssl.py",
    "        self.set_default_verify_paths()\n",
    """\
        self.set_default_verify_paths()

    def set_default_verify_paths(self):
        super().set_default_verify_paths()
        cafile = get_default_verify_paths().cafile
        if cafile in _CERTIFICATE_FILES:
            try:
                self.load_verify_locations(cafile)
            except OSError:
                pass
""",
)

# The interpreter has Debian's site.py frozen inside. Its entry in the table of frozen modules, {name, code, size,
# is_package, function}, gets an empty name, so that the file above is imported.
program = out / "bin/python3.11"
elf = bytearray(program.read_bytes())
(headers,), (count,) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<H", elf, 56)
loads = [struct.unpack_from("<IIQQQQ", elf, headers + 56 * index) for index in range(count)]
segments = [(offset, address, size) for kind, _, offset, address, _, size in loads if kind == 1]


def text_at(address):
    for offset, start, size in segments:
        if start <= address < start + size:
            begin = offset + address - start
            return bytes(elf[begin : elf.index(0, begin)])
    return None


found = []
for offset, _, size in segments:
    for place in range(offset, offset + size - 64, 8):
        name, code, code_size, is_package, function = struct.unpack_from("<QQIIQ", elf, place)
        if not code and not code_size and not is_package and function and text_at(name) == b"site":
            if text_at(struct.unpack_from("<Q", elf, place - 32)[0]) == b"os":
                found.append((place, name))
if len(found) != 1:
    sys.exit(f"{program}: expected one entry of a frozen site module, found {len(found)}")
struct.pack_into("<Q", elf, found[0][0], found[0][1] + len("site"))
program.write_bytes(elf)
