"""The part of the sandbox of Inspect that runs in its session."""

# Contents pass through files in the control directory. Output beyond a bound loses its beginning.
SETUP = """
class _rlm_sandbox:
    def run(command, cwd, env, given, out, err, most):
        import os, signal, subprocess, threading

        os.makedirs(cwd, exist_ok=True)
        kept = {out: bytearray(), err: bytearray()}

        def keep(stream, name):
            while chunk := stream.read1(65536):
                kept[name] += chunk
                del kept[name][:-most]

        try:
            process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **env}, start_new_session=True,
                stdin=open(given, "rb") if given else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        except FileNotFoundError as error:
            kept[err] += f"{error.filename}: command not found".encode()
            process = None
        try:
            if process is None:
                return 127
            streams = [(process.stdout, out), (process.stderr, err)]
            threads = [threading.Thread(target=keep, args=pair, daemon=True) for pair in streams]
            for thread in threads:
                thread.start()
            status = process.wait()
            return status if status >= 0 else 128 - status  # as a shell tells a signal
        finally:
            if process is not None:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                for thread in threads:
                    thread.join(0.2)  # what a program in the background prints from now on is dropped
            for name, data in kept.items():
                with open(name, "wb") as file:
                    file.write(bytes(data))

    def read(path, out, most):
        import os, shutil

        if os.path.getsize(path) > most:
            return False
        shutil.copyfile(path, out)
        return True

    def write(given, path):
        import os, shutil

        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(given, path)
"""
