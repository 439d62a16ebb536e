"""A collector of traces that costs nothing, in a process of its own; or one that hangs.

    python -m bench.collector [--hangs]

The program prints its port, and takes requests until it is ended. `GET /` says how many bytes came.
"""

import argparse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event

from typing_extensions import override

_TAKEN = [0, 0]
"""Requests, and bytes."""


def main() -> None:
    """Take what comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hangs", action="store_true", help="never answer")
    hangs = parser.parse_args().hangs

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Take a request, and answer it unless this one hangs."""
            _TAKEN[0] += 1
            _TAKEN[1] += len(self.rfile.read(int(self.headers["content-length"])))
            if hangs:
                Event().wait()
            self._answer(b"")

        def do_GET(self) -> None:
            """Say how much was taken."""
            self._answer(f"{_TAKEN[0]} {_TAKEN[1]}".encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
