"""The official openai client against a running server: BASE=http://127.0.0.1:8000 MODEL=name python3 openai_client_test.py

or against one that it starts: python3 openai_client_test.py VLLM-SERVER MODEL-FOLDER
Needs the package openai. Exits with 77, which ctest takes as skipped, where it is not installed.
"""

import atexit
import base64
import os
import re
import struct
import subprocess
import sys
import tempfile

try:
    import openai
except ImportError:
    print("the package openai is not installed")
    sys.exit(77)

TEMPLATE = """{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""


def start(server, model):
    """The address of a server of `model` that ends with this program."""
    template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
    template.write(TEMPLATE)
    template.flush()
    flags = ["--port", "0", "--served-model-name", "m", "--chat-template", template.name, "--device", "cpu"]
    process = subprocess.Popen([server, "--model", model, *flags], stderr=subprocess.PIPE, text=True)
    atexit.register(process.wait)
    atexit.register(process.terminate)
    base, said = None, ""
    for line in process.stderr:
        said += line
        listening = re.search(r"listening on (http://[^,]+)", line)
        base = listening.group(1) if listening else base
        if "ready" in line and "until" not in line:
            return base
    raise SystemExit(said)


BASE = start(*sys.argv[1:3]) if len(sys.argv) > 2 else os.environ.get("BASE", "http://127.0.0.1:8000")
MODEL = os.environ.get("MODEL", "m")
client = openai.OpenAI(base_url=BASE + "/v1", api_key=os.environ.get("KEY", "none"), max_retries=0)
HI = [{"role": "user", "content": "Count to five."}]


def refused(kind, param, call):
    try:
        call()
    except kind as e:
        assert param is None or e.param == param, (e.param, e.message)
        return
    raise AssertionError(f"not refused: {param}")


def models():
    served = client.models.list().data[0]
    assert client.models.retrieve(served.id).id == served.id


def chat():
    whole = client.chat.completions.create(model=MODEL, messages=HI, temperature=0, max_tokens=16)
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.usage.prompt_tokens_details.cached_tokens >= 0
    text, finishes, usage = "", 0, None
    stream = client.chat.completions.create(
        model=MODEL, messages=HI, temperature=0, max_tokens=16, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for c in chunk.choices:
            text += c.delta.content or ""
            finishes += c.finish_reason is not None
    assert text == choice.message.content, (text, choice.message.content)
    assert finishes == 1 and usage.completion_tokens == whole.usage.completion_tokens


def logprobs():
    r = client.chat.completions.create(
        model=MODEL, messages=HI, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    for entry in r.choices[0].logprobs.content:
        assert len(entry.top_logprobs) == 3 and entry.top_logprobs[0].logprob == entry.logprob <= 0


def completions():
    r = client.completions.create(model=MODEL, prompt=["The sky", "One"], n=2, max_tokens=3, echo=True, logprobs=1)
    assert [c.index for c in r.choices] == [0, 1, 2, 3]
    assert r.choices[0].text.startswith("The sky") and r.choices[2].text.startswith("One")
    streamed = "".join(
        c.choices[0].text
        for c in client.completions.create(model=MODEL, prompt="The sky", temperature=0, max_tokens=5, stream=True)
    )
    assert streamed == client.completions.create(model=MODEL, prompt="The sky", temperature=0, max_tokens=5).choices[0].text


def embeddings():
    floats = client.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float").data
    raw = client.embeddings.with_raw_response.create(model=MODEL, input="a", encoding_format="base64").http_response
    packed = base64.b64decode(raw.json()["data"][0]["embedding"])
    values = struct.unpack(f"<{len(packed) // 4}f", packed)
    assert all(abs(x - y) < 1e-3 for x, y in zip(values, floats[0].embedding))
    assert abs(sum(x * x for x in values) - 1) < 1e-3


def errors():
    refused(openai.NotFoundError, "model", lambda: client.models.retrieve("no-such-model"))
    refused(openai.BadRequestError, "messages", lambda: client.chat.completions.create(model=MODEL, messages=[]))
    refused(
        openai.BadRequestError,
        "response_format",
        lambda: client.chat.completions.create(model=MODEL, messages=HI, response_format={"type": "json_object"}),
    )
    refused(
        openai.BadRequestError,
        "top_p",
        lambda: client.chat.completions.create(model=MODEL, messages=HI, top_p=0),
    )
    r = client.chat.completions.create(
        model=MODEL, messages=HI, max_tokens=2, user="u", extra_body={"top_k": 5, "min_p": 0.1, "ignore_eos": True}
    )
    assert r.usage.completion_tokens == 2


for test in (models, chat, logprobs, completions, embeddings, errors):
    test()
    print(test.__name__, "ok")
