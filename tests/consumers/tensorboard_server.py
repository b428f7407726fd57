"""TensorBoard, serving one folder on a port of its own choice.

A port that is looked for first and given to it could be taken by another process in between.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time


class TensorBoard:
    def __init__(self, logdir, *options):
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"]
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command + list(options), stdout=self._log, stderr=self._log, start_new_session=True
        )

    def __enter__(self):
        """Waits until it serves, for five minutes at most."""
        until = time.monotonic() + 300
        while time.monotonic() < until and self.runs():
            address = re.search(r"http://127\.0\.0\.1:\d+/", self.log())
            if address:
                self.address = address[0]
                return self
            time.sleep(0.1)
        self.__exit__()
        sys.exit(f"TensorBoard does not serve: {self.log()}")

    def __exit__(self, *_):
        if self.runs():
            # Its data server, too.
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)

    def runs(self):
        return self._process.poll() is None

    def log(self):
        # At its own offset, since the process writes at that of the file.
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")
