#!/usr/bin/env python3
"""A command-line agent in one file: asks a Chat Completions API, runs the commands it is told, prints the last message.

`small_agent.py BASE_URL MODEL PROMPT_FILE [OUTPUT_FILE]`. With RETRY=for-ever it asks again whatever the answer is.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

TOOL = {"type": "function", "function": {"name": "run_command", "parameters": {"type": "object"}}}


def ask(base_url, model, messages):
    body = json.dumps({"model": model, "messages": messages, "tools": [TOOL]}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(base_url + "/chat/completions", data=body, headers=headers)
    while True:
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            print("the API said", error.code, error.read().decode(), file=sys.stderr, flush=True)
            if os.environ.get("RETRY") != "for-ever":
                sys.exit(1)
            time.sleep(0.2)


def run(command):
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, errors="replace")
    return f"status {done.returncode}\n{done.stdout[-200_000:]}{done.stderr[-10_000:]}"


def main():
    base_url, model, prompt_file = sys.argv[1:4]
    messages = [{"role": "user", "content": pathlib.Path(prompt_file).read_text(encoding="utf-8")}]
    while True:
        message = ask(base_url, model, messages)
        messages.append(message)
        calls = message.get("tool_calls") or []
        for call in calls:
            result = run(json.loads(call["function"]["arguments"])["command"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not calls:
            break
    text = message.get("content") or ""
    output = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    if output is None:
        print(text)
    elif not output.is_symlink():
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
