"""The goods of the shop. The response also has the caller's address: in the mesh that is always 127.0.0.6, the pod's
own proxy."""

import pod
from aiohttp import web

ITEMS = {"teapot": 2900, "kettle": 4500, "strainer": 700}


async def items(request):
    return web.json_response({"pod": pod.NAME, "caller": request.remote, "items": ITEMS})


if __name__ == "__main__":
    app = web.Application()
    app.router.add_get("/items", items)
    pod.serve(app)
