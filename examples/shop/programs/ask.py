"""Send many requests to a URL and print each response as one line of JSON. To be run in a pod:

weft exec frontend -- python3 ask.py http://payments/pay 100
weft exec frontend -- python3 ask.py http://payments/pay 100 --summary
"""

import argparse
import asyncio
import json
import time
from collections import Counter

from aiohttp import ClientError, ClientSession, ClientTimeout


async def ask(session, url):
    try:
        async with session.get(url) as response:
            text = await response.text()
            try:
                body = json.loads(text)
            except ValueError:
                body = {"text": text.strip()}
            return {"status": response.status, "body": body}
    except (ClientError, TimeoutError) as error:
        return {"status": 0, "body": {"error": str(error) or type(error).__name__}}


async def main(arguments):
    seen = Counter()
    left = iter(range(arguments.count))

    async def worker(session):
        for _ in left:
            answer = await ask(session, arguments.url)
            answer["at"] = time.time()
            seen[f"{answer['status']} {answer['body'].get('version', '')}".strip()] += 1
            if not arguments.summary:
                print(json.dumps(answer), flush=True)
            await asyncio.sleep(arguments.pause)

    async with ClientSession(timeout=ClientTimeout(total=arguments.timeout)) as session:
        await asyncio.gather(*(worker(session) for _ in range(arguments.parallel)))
    if arguments.summary:
        for name, count in sorted(seen.items()):
            print(f"{count:6}  {100 * count / arguments.count:5.1f} %  {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two requests of one worker")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds to wait for one answer")
    parser.add_argument("--summary", action="store_true", help="count the answers by status and version")
    asyncio.run(main(parser.parse_args()))
