"""Checks that the interpreter that runs this has what a program may expect of a CPython, and leaves the box's alone.

python-checks.py box|bundled [online]: which C library it should run with, and whether pip can reach PyPI.
"""

import contextlib
import importlib
import io
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

PREFIX = pathlib.Path(sys.executable).parent.parent
# Of other systems, or left out: see dist/python. antigravity opens a browser, and this prints.
ABSENT = set(
    "_msi _overlapped _scproxy _tkinter _winapi idlelib msilib msvcrt nis nt tkinter turtle turtledemo winreg winsound "
    "antigravity this readline _dbm _gdbm".split()
)
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def run(*command, **options):
    options = {"check": True, "capture_output": True, "text": True, "timeout": 120} | options
    return subprocess.run([str(part) for part in command], **options).stdout


def python(code, *flags):
    return run(sys.executable, *flags, "-c", code)


def square(number):
    return number * number


@check
def executable():
    assert os.path.isabs(sys.executable) and os.access(sys.executable, os.X_OK), sys.executable
    assert python("import sys; print(sys.executable, sys.prefix, sys.base_exec_prefix, sep='\\n')").splitlines() == [
        sys.executable,
        sys.prefix,
        sys.prefix,
    ]
    assert sys.prefix == str(PREFIX), sys.prefix


@check
def search_path():
    for entry in sys.path[1:]:
        assert entry.startswith(f"{PREFIX}/lib/"), sys.path
    import site

    assert site.getsitepackages() == [f"{PREFIX}/lib/python3.11/site-packages"], site.getsitepackages()


@check
def symbolic_link():
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(sys.executable, f"{directory}/py")
        assert run(f"{directory}/py", "-c", "import sys, zlib; print(sys.prefix)").strip() == sys.prefix


@check
def c_library():
    import ctypes

    for name in "_ssl _sqlite3 _ctypes _curses _decimal".split():
        importlib.import_module(name)
    maps = {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}
    parts = [
        path
        for path in maps
        if os.path.basename(path).startswith(("libc.", "libm.", "ld-", "libpthread", "libdl", "librt"))
    ]
    assert parts and all(path.startswith(str(PREFIX)) == (sys.argv[1] == "bundled") for path in parts), parts
    ctypes.CDLL(None)


@check
def every_module_is_imported_from_compiled_code():
    names = sorted(name for name in sys.stdlib_module_names if name not in ABSENT)
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    log = subprocess.run([sys.executable, "-v", "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert log.returncode == 0, log.stderr[-2000:]
    assert not re.findall(r"code object from '[^']*\.py'", log.stderr)


@check
def environment_stays():
    assert not [name for name in os.environ if name.startswith(("LD_", "PYTHON"))]
    if os.path.exists("/bin/bash"):
        assert run("/bin/bash", "-c", "echo $((6 * 7))") == "42\n"


@check
def processes():
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(square, range(5)) == [0, 1, 4, 9, 16], method
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import shared_memory

    with ProcessPoolExecutor(2) as executor:
        assert list(executor.map(square, range(3))) == [0, 1, 4]
    memory = shared_memory.SharedMemory(create=True, size=10)
    memory.close(), memory.unlink()


@check
def threads():
    # pthread_exit loads libgcc_s.
    exits = "_thread.start_new_thread(ctypes.CDLL(None).pthread_exit, (None,))"
    python(f"import ctypes, _thread, time; {exits}; time.sleep(0.1)")
    daemon = "threading.Thread(target=time.sleep, args=(0.02,), daemon=True).start()"
    python(f"import threading, time; [{daemon} for _ in range(20)]")


@check
def asyncio_():
    import asyncio

    async def main():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(7)", stdout=asyncio.subprocess.PIPE)
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close(), server.close()
        return (await process.communicate())[0]

    assert asyncio.run(main()) == b"7\n"


@check
def venv_and_pip():
    import venv

    with tempfile.TemporaryDirectory() as directory:
        run(sys.executable, "-m", "venv", f"{directory}/one")
        inside = f"{directory}/one/bin/python"
        assert run(inside, "-c", "import sys, ssl; print(sys.prefix, sys.base_prefix, sep='\\n')").splitlines() == [
            f"{directory}/one",
            str(PREFIX),
        ]
        assert (
            run(inside, "-c", "import sys; print(sys.path[-1])").strip()
            == f"{directory}/one/lib/python3.11/site-packages"
        )
        assert f"from {directory}/one/" in run(f"{directory}/one/bin/pip", "--version")
        venv.create(f"{directory}/two", with_pip=False)
        run(f"{directory}/two/bin/python", "-m", "ensurepip")
        run(f"{directory}/two/bin/python", "-m", "pip", "--version")
        if "online" in sys.argv:
            run(inside, "-m", "pip", "install", "--quiet", "six==1.17.0", "markupsafe==3.0.2")
            run(inside, "-c", "import six, markupsafe._speedups")
            if list(pathlib.Path("/usr/lib").rglob("libstdc++.so.6")):
                run(inside, "-m", "pip", "install", "--quiet", "greenlet==3.2.4")
                run(inside, "-c", "import greenlet, ssl; greenlet.greenlet(print).switch()")


@check
def ensurepip_():
    import ensurepip
    import sysconfig

    with tempfile.TemporaryDirectory() as directory:
        run(sys.executable, "-m", "ensurepip", "--root", directory)
        assert os.path.exists(f"{directory}{PREFIX}/lib/python3.11/site-packages/pip/__init__.py")
    refused = subprocess.run([sys.executable, "-m", "ensurepip"], capture_output=True, text=True)
    assert refused.returncode != 0 and "Install into a virtual environment" in refused.stderr, refused
    assert int(ensurepip.version().split(".")[0]) >= 24
    assert sysconfig.get_path("purelib") == f"{PREFIX}/lib/python3.11/site-packages"
    assert sysconfig.get_path("scripts") == f"{PREFIX}/bin"
    usr = {name: value for name, value in sysconfig.get_config_vars().items() if str(value).startswith("/usr")}
    assert not [name for name in usr if not name.startswith(("INSTALL", "DTRACE", "TZPATH"))], usr


@check
def certificates():
    import ssl

    places = ssl._CERTIFICATE_FILES[:-1]
    code = """if True:
        import ssl
        print(ssl.get_default_verify_paths().cafile)
        print(len(ssl.create_default_context().get_ca_certs()))"""
    bundled = PREFIX / "share/ca-certificates.crt"
    pem = bundled.read_text()
    count = str(pem.count("BEGIN"))
    if not any(map(os.path.exists, places)):
        assert python(code).splitlines() == [str(bundled), count] and int(count) > 100
        one = pem[: pem.index("-----END CERTIFICATE-----\n") + 26]
        for place in map(pathlib.Path, places):
            made = [parent for parent in place.parents if not parent.exists()]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(one)
            assert python(code).splitlines() == [str(place), "1"], place
            place.write_text("")
            assert python(code).splitlines() == [str(bundled), count], place
            place.unlink()
            [parent.rmdir() for parent in made]
    else:
        assert python(code).splitlines()[0] != str(bundled)
    named = run(sys.executable, "-c", code, env={"SSL_CERT_FILE": "/nowhere"}).splitlines()
    assert named == ["None", "0"], named
    assert ssl.OPENSSL_VERSION.startswith("OpenSSL 3.")


@check
def tls_handshake():
    import ssl

    client, server = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    # Without a key at hand: no authentication, as no TLS 1.3 has it.
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.set_ciphers("AECDH:@SECLEVEL=0"), client.set_ciphers("AECDH:@SECLEVEL=0")
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="x"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    ends[0].write(b"hello")
    assert ends[1].read() == b"hello"


@check
def time_zones():
    import zoneinfo
    from datetime import datetime

    for path in (zoneinfo.TZPATH, ()):
        zoneinfo.reset_tzpath(path)
        zoneinfo.ZoneInfo.clear_cache()
        berlin = datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
        assert berlin.utcoffset().total_seconds() == 7200, path
        assert {"Europe/Berlin", "UTC", "Asia/Tokyo"} <= zoneinfo.available_timezones() and len(
            zoneinfo.available_timezones()
        ) > 500
        try:
            zoneinfo.ZoneInfo("Europe/Nowhere")
        except zoneinfo.ZoneInfoNotFoundError:
            continue
        raise AssertionError("found Europe/Nowhere")
    zoneinfo.reset_tzpath()


@check
def locale_():
    import locale

    locale.setlocale(locale.LC_ALL, "C")
    for settings in ({}, {"LANG": "C"}, {"LANG": "C.UTF-8"}, {"LANG": "de_DE.UTF-8"}):
        out = run(
            sys.executable,
            "-c",
            "import sys, locale; print(sys.getfilesystemencoding(), 'ä')",
            env=settings,
            encoding="utf-8",
        )
        assert out == "utf-8 ä\n", (settings, out)


@check
def ctypes_():
    import ctypes

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    numbers = (ctypes.c_int * 4)(3, 1, 4, 1)
    ctypes.CDLL("libc.so.6").qsort(numbers, 4, 4, function(lambda left, right: left[0] - right[0]))
    assert list(numbers) == [1, 1, 3, 4]


@check
def sqlite():
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create virtual table page using fts5(text)")
        connection.execute("insert into page values ('red pandas')")
        assert connection.execute("select json_array(text) from page where page match 'pandas'").fetchone() == (
            '["red pandas"]',
        )


@check
def terminals():
    import curses
    import pty

    if any(map(os.path.exists, ("/lib/terminfo/x/xterm", "/usr/share/terminfo/x/xterm"))):
        curses.setupterm("xterm")
        assert curses.tigetnum("colors") == 8
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-q"], stdin=slave, stdout=slave, stderr=slave, env={"TERM": "dumb"}, start_new_session=True
    )
    os.close(slave)
    os.write(master, b"print(6 * 7)\nexit()\n")
    text = b""
    with contextlib.suppress(OSError):
        while data := os.read(master, 4096):
            text += data
    assert b">>> 42\r\n" in text and process.wait() == 0, text


@check
def databases():
    import dbm
    import shelve

    with tempfile.TemporaryDirectory() as directory:
        with dbm.open(f"{directory}/database", "c") as database:
            database["key"] = "value"
        with dbm.open(f"{directory}/database") as database:
            assert database["key"] == b"value"
        with shelve.open(f"{directory}/shelf") as shelf:
            shelf["list"] = [1]


@check
def compression_and_hashes():
    import bz2
    import gzip
    import hashlib
    import lzma
    import tarfile
    import uuid
    import zlib

    data = os.urandom(1000) * 20
    for module in (bz2, gzip, lzma, zlib):
        assert module.decompress(module.compress(data)) == data and len(module.compress(data)) < 5000
    tarfile.open(fileobj=io.BytesIO(), mode="w:xz").close()
    for name in hashlib.algorithms_guaranteed:
        assert hashlib.new(name, data).digest(*[8] * name.startswith("shake"))
    assert hashlib.scrypt(b"a", salt=b"b", n=16, r=1, p=1) and hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10)
    assert uuid.uuid1() != uuid.uuid4() and uuid._generate_time_safe
    import crypt

    assert crypt.crypt("word", crypt.METHOD_SHA512).startswith("$6$")


@check
def errors_show_their_source():
    out = subprocess.run([sys.executable, "-c", "import json; json.loads('{')"], capture_output=True, text=True).stderr
    assert f'File "{PREFIX}/lib/python3.11/json/__init__.py"' in out and "return _default_decoder.decode(s)" in out, out
    import inspect
    import json

    assert "def loads" in inspect.getsource(json.loads)


@check
def users_and_hosts():
    import pwd
    import socket

    with contextlib.suppress(KeyError):
        assert pwd.getpwuid(0).pw_name == "root"
    assert socket.getaddrinfo("127.0.0.1", 80)
    if os.path.exists("/etc/hosts"):
        assert socket.gethostbyname("localhost") == "127.0.0.1"


if __name__ == "__main__":
    failed = 0
    for function in CHECKS:
        try:
            function()
        except BaseException as error:
            failed += 1
            print(f"FAILED {function.__name__}")
            traceback.print_exc(file=sys.stdout)
            if isinstance(error, subprocess.CalledProcessError):
                print(error.stdout, error.stderr)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
