# SPDX-License-Identifier: Apache-2.0
"""How these programs and the tests talk: a line of JSON each way."""
import json
import sys


def say(**what):
    print(json.dumps(what), flush=True)


def wait():
    """Until the test sends a line, which is returned; the end of the input is the end."""
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return line.strip()
