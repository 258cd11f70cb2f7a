"""`python fetch.py URL TIMEOUT_S`: GET a URL and copy its body to stdout. Exit 1 with the reason on stderr.

A child program: standard library only, run by path inside a server's network namespace.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request


def main(url: str, timeout_s: float) -> int:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as reply:
            sys.stdout.buffer.write(reply.read())
    except (OSError, urllib.error.URLError) as error:
        sys.stderr.write(f"GET {url}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
