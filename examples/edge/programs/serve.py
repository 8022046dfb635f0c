"""A small service: it says one thing, where it was asked, and by whom the request was let in."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        said = f"{os.environ['SAYS']} ({os.environ['POD_NAME']}, {self.path})\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("", 8080), Answer).serve_forever()
