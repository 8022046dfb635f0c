"""What every Python program of the shop needs in a pod: its name, its port, and a clean exit on SIGTERM."""

import os
import socket

from aiohttp import web

NAME = os.environ.get("POD_NAME") or socket.gethostname()
VERSION = os.environ.get("VERSION", "v1")
PORT = int(os.environ.get("PORT", "8080"))
PATIENCE = float(os.environ.get("PATIENCE", "5"))  # seconds to wait for another service


def serve(app):
    """Serve the app on all IPv4 and IPv6 addresses until SIGTERM; then finish the open requests."""

    async def ready(request):
        return web.Response(text="ready\n")

    app.router.add_get("/ready", ready)
    print(f"{NAME} {VERSION} listens on {PORT}", flush=True)
    web.run_app(app, host=None, port=PORT, print=None, access_log=None, shutdown_timeout=PATIENCE)
