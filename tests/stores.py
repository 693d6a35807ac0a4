"""A real S3 server for tests (moto's), a process of its own on the loopback."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from s3fs import S3FileSystem

from tests.clusters import wait_until

BUCKET = "screening"


class S3Server:
    """The server's process and the variables that make s3:// mean it."""

    def __init__(self, folder: Path, **settings: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._log = (folder / "s3.log").open("wb")
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(
            words, stdout=self._log, stderr=self._log, env={**os.environ, **settings}
        )
        wait_until(self._answers, "the S3 server did not start")
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the S3 server ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def pause(self) -> None:
        """Let the server answer nobody, without losing what it holds."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        self.go_on()
        self.process.kill()
        self.process.wait()
        self._log.close()


@contextmanager
def s3_server(folder: Path, **settings: str) -> Iterator[S3Server]:
    """Start a server with an empty bucket; end it afterwards."""
    server = S3Server(folder, **settings)
    S3FileSystem.clear_instance_cache()  # one of an earlier server would be asked again
    try:
        code = f"import boto3; boto3.client('s3').create_bucket(Bucket={BUCKET!r})"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **server.environment})
        yield server
    finally:
        server.stop()
