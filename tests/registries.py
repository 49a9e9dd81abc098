"""A schema registry for tests: an HTTP server with `GET /schemas/ids/N` and the versions of subjects."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry:
    """`schemas` are objects by id, `versions` by (subject, version); `asked` has the paths, `failing` a
    status for all of them."""

    def __init__(self):
        self.schemas, self.versions = {}, {}
        self.asked, self.authorizations = [], []
        self.failing = None
        self.raw = None
        self.told = lambda: None
        self.waits = threading.Event()
        self.waits.set()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                registry.asked.append(self.path)
                registry.authorizations.append(self.headers.get("authorization"))
                registry.told()
                registry.waits.wait(60)
                status, body = registry.response(self.path)
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("content-length", str(len(body)))
                    if status == 302:
                        self.send_header("location", "/elsewhere")
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def response(self, path):
        if self.failing is not None:
            return self.failing, b"{}"
        if self.raw is not None:
            return 200, self.raw
        kind, _, rest = path[1:].partition("/")
        if kind == "schemas":
            found = self.schemas.get(int(rest.removeprefix("ids/")))
        else:
            subject, _, version = rest.partition("/versions/")
            found = self.versions.get((subject, version))
        if found is None:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps(found).encode()

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.waits.set()
        self._server.shutdown()
        self._server.server_close()


def framed(number, content):
    """The content behind Confluent's header."""
    return b"\x00" + number.to_bytes(4, "big") + content
