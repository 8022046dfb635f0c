"""A small service. Its response has the text of $SAYS, the name of the pod, and the requested path."""

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
