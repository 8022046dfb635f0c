"""Calls a service that it may not call, once a second, and prints when the response changes."""

import os
import time
import urllib.error
import urllib.request

URL = os.environ.get("URL", "http://payments/pay")


def ask():
    try:
        with urllib.request.urlopen(URL, timeout=5) as response:
            return f"{response.status} {response.read(200).decode().strip()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read(200).decode().strip()}"
    except OSError as error:
        return str(error)


if __name__ == "__main__":
    before = ""
    while True:
        answer = ask()
        if answer.split()[:1] != before.split()[:1]:
            print(f"{URL}: {answer}", flush=True)
        before = answer
        time.sleep(1)
