"""A job: moves the ledger to schema 2 through the mesh, then exits. Its proxy does not keep the pod running."""

import os
import socket
import sys
import time

HOST, PORT = os.environ.get("LEDGER", "ledger:7000").rsplit(":", 1)


def migrate():
    with socket.create_connection((HOST, int(PORT)), timeout=2) as connection:
        lines = connection.makefile("rw", newline="\n")
        greeting = lines.readline().strip()
        if not greeting.startswith("ledger"):
            raise ConnectionError(f"unexpected greeting {greeting!r}")
        lines.write("MIGRATE 2\n")
        lines.flush()
        return greeting, lines.readline().strip()


if __name__ == "__main__":
    give_up = time.monotonic() + 60
    while True:
        try:
            greeting, answer = migrate()
        except OSError as error:
            if time.monotonic() > give_up:
                sys.exit(f"the ledger cannot be reached: {error}")
            print(f"waiting for the ledger: {error}", flush=True)
            time.sleep(0.5)
            continue
        print(f"{greeting!r} → {answer!r}", flush=True)
        sys.exit(0 if answer == "OK 2" else 1)
