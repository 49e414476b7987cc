#!/usr/bin/env python3
"""Drives the chat page in a headless Chromium, over the DevTools protocol; Python's standard library alone.

  page_test.py --url http://127.0.0.1:8000 [--screenshots FOLDER]    the page of a running server
  page_test.py --url ... --scripted --keyed-url ...                  of tests/page_test.cc, whose model says what it is told
  page_test.py --check-hashes | --update-hashes                      the page's Content-Security-Policy
Exits with 77 where there is no chromium.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

PAGE = pathlib.Path(__file__).resolve().parent.parent / "src/vllm/server/page/index.html"


def joined(html):
    """A line "@name@" stands for the file of that name, as in page/embed.cmake."""
    return re.sub(r"^@([\w.]+)@\n", lambda m: (PAGE.parent / m[1]).read_text(), html, flags=re.M)


def with_hashes(html):
    whole = joined(html)
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        body = re.search(f"<{tag}>(.*?)</{tag}>", whole, re.S).group(1)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        html = re.sub(f"{name} '[^']*'", f"{name} 'sha256-{digest}'", html, count=1)
    return html


class WebSocket:
    """The little of RFC 6455 that DevTools needs: one client, text frames."""

    def __init__(self, url):
        u = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((u.hostname, u.port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {u.path} HTTP/1.1\r\nHost: {u.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.stream = self.socket.makefile("rb")
        if b" 101 " not in self.stream.readline():
            raise RuntimeError("DevTools refused the connection")
        while self.stream.readline() not in (b"\r\n", b""):
            pass

    def send(self, text):
        data = text.encode()
        n = len(data)
        size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
        self.socket.sendall(b"\x81" + size + b"\0\0\0\0" + data)  # masked with zeros

    def receive(self):
        whole = b""
        while True:
            first, n = self.stream.read(2)
            if n == 126:
                (n,) = struct.unpack(">H", self.stream.read(2))
            elif n == 127:
                (n,) = struct.unpack(">Q", self.stream.read(8))
            data = self.stream.read(n)
            if first & 15 in (0, 1):
                whole += data
                if first & 0x80:
                    return whole.decode()


class Browser:
    def __init__(self, chromium):
        self.folder = tempfile.mkdtemp(prefix="page_test_")
        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb",
             "--remote-debugging-port=0", f"--user-data-dir={self.folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        for line in self.process.stderr:
            found = re.search(r"ws://[^/]+:(\d+)/", line)
            if found:
                break
        else:
            raise RuntimeError("chromium does not start")
        port = found.group(1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            target = next(t for t in json.load(answer) if t["type"] == "page")
        self.socket = WebSocket(target["webSocketDebuggerUrl"])
        self.last = 0
        self.requests, self.problems, self.fulfil = [], [], []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **params):
        self.last += 1
        number = self.last
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.event(message)

    def event(self, message):
        method, p = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(p["exceptionDetails"].get("exception", {}).get("description", str(p)))
        elif method == "Log.entryAdded" and p["entry"]["level"] == "error" and p["entry"]["source"] != "network":
            self.problems.append(p["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append("a dialog opened: " + p["message"])
        elif method == "Fetch.requestPaused":
            status, kind, body = self.fulfil.pop(0)
            self.last += 1  # its own answer is of no interest
            self.socket.send(json.dumps({"id": self.last, "method": "Fetch.fulfillRequest", "params": {
                "requestId": p["requestId"], "responseCode": status,
                "responseHeaders": [{"name": "content-type", "value": kind}],
                "body": base64.b64encode(body.encode()).decode()}}))  # fmt: skip

    def js(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def holds(self, expression):
        try:
            return self.js(f"!!({expression})")
        except RuntimeError as e:
            if "context" not in str(e):  # a page that is being left has none
                raise
            return False

    def until(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.holds(expression):
            if time.monotonic() > end:
                seen = self.js("document.body.innerText.slice(-2000)")
                raise AssertionError(f"{seen}\n{self.problems}\nnever true: {expression}")
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def reload(self):
        self.js("window.before = true")
        self.call("Page.reload")
        self.until("!window.before && document.readyState === 'complete'")

    def key(self, name, modifiers=0):
        code, text = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}[name]
        common = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        box = self.js(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def look(self, width, height, dark, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])  # fmt: skip

    def shot(self, folder, name):
        if folder:
            data = self.call("Page.captureScreenshot", format="png")["data"]
            (pathlib.Path(folder) / f"{name}.png").write_bytes(base64.b64decode(data))


ANSWERS = "document.querySelectorAll('.answer')"
LAST = "[...document.querySelectorAll('.answer')].at(-1)"
IDLE = "document.querySelector('#send').title.startsWith('Send')"


def send(b, text):
    b.js("document.querySelector('#input').focus()")
    b.type(text)
    b.key("Enter")


def answered(b, text):
    send(b, text)
    b.until(f"{IDLE} && {LAST}.querySelector('.acts')", 300)
    return b.js(f"{LAST}.querySelector(':scope > .md').innerText")


def conversation(b, url, shots):
    """What needs only a model that answers at length."""
    b.look(1280, 800, dark=False)
    b.open(url + "/")
    b.until("document.querySelector('#model').textContent != 'Connecting…'")
    b.until("document.activeElement.id === 'input'")
    b.shot(shots, "empty")
    first = answered(b, "Tell me about the sea.")
    assert first.strip(), "nothing was answered"
    assert re.search(r"\d+ tokens?", b.js(f"{LAST}.innerText")), "no token count"
    assert b.js("document.querySelector('#used').textContent").endswith("tokens")
    b.shot(shots, "answered")
    b.reload()
    b.until("document.querySelectorAll('#log > li').length === 2")
    assert b.js(f"{LAST}.querySelector('.md').innerText") == first, "a reload lost the answer"
    b.js(f"{LAST}.seen = true")
    b.js(f"{LAST}.querySelector('[aria-label=\"Answer again\"]').click()")
    b.until(f"!{LAST}.seen && {IDLE} && {LAST}.querySelector('.acts')", 300)
    assert b.js("document.querySelectorAll('#log > li').length") == 2, "regenerating added a turn"


def set_field(b, selector, text):
    b.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
    b.type(text)


SHOWCASE = """say: ## How waves form
Wind drags on the surface, and **gravity** pulls it back. The *period* sets the speed; `c = g T / 2 pi`.

1. Ripples, held by surface tension
2. Wind sea
   - short crests
   - steep
3. Swell, which travels for days

| Sea state | Height | Period |
|:--|--:|:-:|
| Slight | 0.5 m | 3 s |
| Rough | 3 m | 8 s |

```python
def speed(period):
    return 9.81 * period / 6.2832  # metres a second
```

> The sea, once it casts its spell, holds one in its net.

More at [Wikipedia](https://en.wikipedia.org/wiki/Wind_wave)."""

HOSTILE = """say: <img src=x onerror="window.hit=1"><script>window.hit=1</script> <svg onload=window.hit=1>

[a](javascript:window.hit=1) [b](JaVaScRiPt:window.hit=1) [c](data:text/html,<script>window.hit=1</script>) [d](//evil.example) ![e](http://evil.example/pixel.png)

<https://ok.example/"onmouseover="window.hit=1>

[f](https://ok.example/"onclick="window.hit=1) [g](vbscript:x) [h](java\tscript:window.hit=1)

| <iframe srcdoc="<script>parent.hit=1</script>"> | b |
|---|---|
| <style>*{display:none}</style> | <base href=http://evil.example> |

```<img onerror=window.hit=1>
</code></pre><img src=x onerror=window.hit=1>
```
# <object data=javascript:window.hit=1>
- <a href="javascript:window.hit=1">x</a>
> <form action=http://evil.example><button>go</button></form>"""


def scripted(b, url, shots):
    """What needs a model that says what it is told."""
    b.click("#new")
    answered(b, SHOWCASE)
    tags = b.js(f"[...{LAST}.querySelectorAll('.md *')].map(e => e.tagName).join(' ')").split()
    for tag in "H3 P STRONG EM CODE OL LI UL TABLE TH TD PRE BLOCKQUOTE A".split():
        assert tag in tags, f"no {tag} in {tags}"
    assert b.js(f"{LAST}.querySelectorAll('.md > ol > li').length") == 3
    assert b.js(f"{LAST}.querySelectorAll('.md > ol > li ul > li').length") == 2
    assert b.js(f"{LAST}.querySelectorAll('tbody tr').length") == 2
    assert b.js(f"{LAST}.querySelector('pre').textContent").startswith("def speed(period):\n    return")
    assert b.js(f"{LAST}.querySelector('a').rel").startswith("noopener")
    b.js(f"{LAST}.scrollIntoView()")
    b.shot(shots, "light")
    b.look(1280, 800, dark=True)
    dark = b.js("getComputedStyle(document.body).backgroundColor")
    b.shot(shots, "dark")
    b.look(1280, 800, dark=False)
    light = b.js("getComputedStyle(document.body).backgroundColor")
    assert light != dark, "no dark scheme"
    b.click("#theme")
    b.click("#theme")
    assert b.js("getComputedStyle(document.body).backgroundColor") == dark, "the switch does nothing"
    b.click("#theme")
    for width in (390, 320):
        b.look(width, 844, dark=False, phone=True)
        assert b.js("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width} px"
        assert b.js("document.documentElement.scrollHeight <= innerHeight"), "the page itself scrolls"
        b.js(f"{LAST}.scrollIntoView()")
        b.shot(shots, f"phone{width}")
    b.click("#menu")
    b.until("document.activeElement.id === 'new' && document.querySelector('#side').getBoundingClientRect().left === 0")
    b.shot(shots, "phone_menu")
    b.key("Escape")
    b.until("document.activeElement.id === 'menu'")
    b.look(1280, 800, dark=False)

    # Drawn bit by bit or at once, it is the same.
    grown = b.js(f"{LAST}.querySelector('.md').innerHTML")
    b.reload()
    b.until(f"{LAST}?.querySelector('table')")
    assert b.js(f"{LAST}.querySelector('.md').innerHTML") == grown

    answered(b, HOSTILE)
    assert b.js("window.hit === undefined"), "the model's text ran"
    assert b.js(f"{LAST}.querySelectorAll('img, script, iframe, style, base, object, form, .md svg').length") == 0
    hrefs = b.js(f"[...{LAST}.querySelectorAll('a')].map(a => a.href)")
    assert hrefs and all(h.startswith(("https://ok.example/", "http://evil.example/")) for h in hrefs), hrefs
    assert b.js(f"[...{LAST}.querySelectorAll('.md *')].every(e => [...e.attributes].every(a => !a.name.startsWith('on')))")
    b.shot(shots, "hostile")

    # Stop, by key and by button; what came is kept.
    b.click("#new")
    for stop in (lambda: b.key("Escape"), lambda: b.click("#send")):
        send(b, "forever")
        b.until(f"{LAST}?.textContent.includes('word20 ')")
        b.shot(shots, "streaming")
        stop()
        b.until(f"{IDLE} && {LAST}.textContent.includes('stopped')")
        assert "word20 " in b.js(f"{LAST}.querySelector('.md').textContent")
    # The reader who scrolls up stays there.
    send(b, "forever")
    b.until("document.querySelector('#scroll').scrollHeight > 1500")
    assert b.js("(s => s.scrollHeight - s.scrollTop - s.clientHeight < 60)(document.querySelector('#scroll'))")
    b.js("document.querySelector('#scroll').scrollTop = 10")
    b.until("!document.querySelector('#end').hidden")
    height = b.js("document.querySelector('#scroll').scrollHeight")
    b.until(f"document.querySelector('#scroll').scrollHeight > {height}")
    assert b.js("document.querySelector('#scroll').scrollTop") == 10
    # A reload in mid-answer keeps what came.
    b.reload()
    b.until(f"{LAST}?.querySelector('.error')")
    assert "word20 " in b.js(f"{LAST}.querySelector('.md').textContent")

    # An answer goes on while another conversation is shown.
    b.click("#new")
    send(b, "forever")
    b.until(f"{LAST}?.textContent.includes('word20 ')")
    b.click("#new")
    b.until("document.querySelectorAll('#log > li').length === 0")
    b.js("document.querySelector('#chats .name').click()")
    seen = b.js(f"{LAST}.querySelector('.md').textContent.length")
    b.until(f"!({IDLE}) && {LAST}.querySelector('.md').textContent.length > {seen}")
    b.key("Escape")
    b.until(IDLE)

    # Edit a turn and send it again: what followed goes.
    b.click("#new")
    answered(b, "first")
    answered(b, "second")
    b.js("document.querySelector('.user [aria-label=\"Edit and send again\"]').click()")
    b.until("document.activeElement.closest('.editing')")
    b.js("document.activeElement.select()")
    b.type("changed")
    b.key("Enter")
    b.until(f"{IDLE} && {LAST}?.querySelector('.acts')")
    assert b.js("document.querySelectorAll('#log > li').length") == 2
    assert b.js(f"{LAST}.querySelector('em').textContent") == "changed"

    # All is reached by Tab, each with a name; the skip link leads to the message.
    b.js("document.querySelector('.skip').focus()")
    names = set()
    for _ in range(80):
        b.key("Tab")
        e = "document.activeElement"
        names.add(b.js(f"{e}.id || {e}.getAttribute('aria-label') || {e}.textContent"))
        if b.js(f"{e}.id === 'input'"):
            break
    assert {"new", "theme", "tune", "input", "Rename first", "Edit and send again", "Answer again"} <= names, names
    b.js("document.querySelector('.skip').focus()")
    b.key("Enter")
    b.until("document.activeElement.id === 'input'")

    # A new line by Shift+Enter; an empty message is not sent.
    b.js("document.querySelector('#input').focus()")
    b.key("Enter")
    b.type("a")
    b.key("Enter", modifiers=8)
    b.type("b")
    assert b.js("document.querySelector('#input').value") == "a\nb"
    b.js("document.querySelector('#input').value = ''")

    # Settings go with the request.
    b.click("#tune")
    b.until("document.querySelector('#settings').open")
    set_field(b, "#system", "Be brief.")
    set_field(b, "#f-max_tokens", "7")
    b.shot(shots, "settings")
    b.key("Escape")
    b.click("#new")
    cut = answered(b, "say: abcdefghijklmnop")
    assert cut == "abcdefg", cut
    assert "cut at the maximum of tokens" in b.js(f"{LAST}.innerText")
    b.click("#tune")
    b.click("#reset")
    b.click("#done")
    assert answered(b, "say: abcdefghijklmnop") == "abcdefghijklmnop"

    # Thinking is folded; right-to-left text runs from the right.
    b.click("#new")
    answered(b, "say: <think>Let me see.\n\nYes.</think>\n\nThe answer is 4.")
    assert b.js(f"{LAST}.querySelector('details').open") is False
    assert b.js(f"{LAST}.querySelector(':scope > .md').textContent") == "The answer is 4."
    answered(b, "say: مرحبا بالعالم")
    assert b.js(f"getComputedStyle({LAST}.querySelector('p')).direction") == "rtl"
    b.shot(shots, "think_rtl")

    # The list: rename, delete, undo.
    n = b.js("document.querySelectorAll('#chats li').length")
    b.js("document.querySelector('#chats li.on [aria-label^=Rename]').click()")
    b.js("document.activeElement.select()")
    b.type("My name")
    b.key("Enter")
    b.until("document.querySelector('#chats li.on .name').textContent === 'My name'")
    b.js("document.querySelector('#chats li.on [aria-label^=Delete]').click()")
    b.until(f"document.querySelectorAll('#chats li').length === {n - 1}")
    b.js("document.querySelector('#toast button').click()")
    b.until("document.querySelector('#chats li.on .name').textContent === 'My name'")

    # Failures are told in words, what came is kept, and a retry works.
    b.click("#new")
    half = 'data: {"choices":[{"index":0,"delta":{"content":"Half of "},"finish_reason":null}]}\n\n'
    for reply, told in [
        ((200, "text/event-stream", half), "broke off"),
        ((200, "text/event-stream", half + 'data: {"error":{"message":"out of luck","code":null}}\n\n'), "out of luck"),
        ((429, "application/json", '{"error":{"message":"full"}}'), "busy"),
        ((503, "application/json", '{"error":{"message":"the model is still loading"}}'), "still loading"),
        ((400, "application/json", '{"error":{"message":"top_k must be -1 or more"}}'), "top_k must be"),
        ((502, "text/html", "<h1>Bad gateway</h1>"), "failed"),
    ]:
        b.fulfil = [reply]
        b.call("Fetch.enable", patterns=[{"urlPattern": "*/v1/chat/completions"}])
        send(b, "say: whole")
        b.until(f"{LAST}?.querySelector('.error')")
        error = b.js(f"{LAST}.querySelector('.error').innerText")
        assert told in error, error
        if reply[0] == 200:
            assert "Half of" in b.js(f"{LAST}.querySelector('.md').textContent")
        b.shot(shots, "error")
        b.call("Fetch.disable")
        b.js(f"{LAST}.querySelector('.error button').click()")
        b.until(f"{IDLE} && {LAST}.querySelector('.acts') && !{LAST}.querySelector('.error')")
        assert b.js(f"{LAST}.querySelector('.md').textContent") == "whole"


# Markdown and what it becomes, without attributes that are the same everywhere.
CASES = [
    ("a *b* **c** ***d*** ~~e~~ `f*g*`",
     "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <del>e</del> <code>f*g*</code></p>"),
    ("2 * 3 * 4, snake_case_name and \\*stars\\*", "<p>2 * 3 * 4, snake_case_name and *stars*</p>"),
    ("**open and `open", "<p>**open and `open</p>"),
    ("``a ` b`` ` x", "<p><code>a ` b</code> ` x</p>"),
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("# A #\n### B", "<h2>A</h2><h4>B</h4>"),
    ("#no heading", "<p>#no heading</p>"),
    ("- a\n- b\n\n1. c\n2. d", "<ul><li>a</li><li>b</li></ul><ol><li>c</li><li>d</li></ol>"),
    ("3. c\n4. d", "<ol start=3><li>c</li><li>d</li></ol>"),
    ("- a\n  - b\n    - c\n- d", "<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d</li></ul>"),
    ("- a\n\n  more", "<ul><li><p>a</p><p>more</p></li></ul>"),
    ("- [x] done\n- [ ] open", "<ul><li>\u2611 done</li><li>\u2610 open</li></ul>"),
    ("1. a\n   ```\n   code\n\n\n   x\n   ```\n2. b",
     "<ol><li>a<div><div><span></span><button>Copy</button></div><pre><code>code\n\n\nx</code></pre></div></li><li>b</li></ol>"),
    ("```py\n<b>\n  x\n```\nafter",
     "<div><div><span>py</span><button>Copy</button></div><pre><code>&lt;b&gt;\n  x</code></pre></div><p>after</p>"),
    ("````\n```\n````", "<div><div><span></span><button>Copy</button></div><pre><code>```</code></pre></div>"),
    ("> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("|a|b|\n|-|-|\n|1|`x|y`|\n|2|",
     "<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><code>x|y</code></td></tr>"
     "<tr><td>2</td><td></td></tr></tbody></table></div>"),
    ("| no table |", "<p>| no table |</p>"),
    ("[*a*](https://x.example/b_(c) \"t\") end", "<p><a href=https://x.example/b_(c)><em>a</em></a> end</p>"),
    ("see https://x.example/a_b. And (http://y.example)",
     "<p>see <a href=https://x.example/a_b>https://x.example/a_b</a>. And (<a href=http://y.example/>http://y.example</a>)</p>"),
    ("[a](javascript:b) [c] [d](e)", "<p>[a](javascript:b) [c] [d](e)</p>"),
    ("AT&amp;T <b>&lt;", "<p>AT&amp;amp;T &lt;b&gt;&amp;lt;</p>"),
]  # fmt: skip

MARKDOWN = """
window.markdown = {
  node(text, step) {
    const root = document.createElement('div'), m = new Markdown(root);
    for (let n = step; n < text.length; n += step) m.update(text.slice(0, n), false);
    m.update(text, true);
    return root;
  },
  plain(node) {
    if (node.nodeType === 3) return node.data.replace(/[&<>]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;'})[c]);
    const inside = [...node.childNodes].map(markdown.plain).join(''), tag = node.tagName.toLowerCase();
    const href = tag === 'a' ? ' href=' + node.href : tag === 'ol' && node.start !== 1 ? ' start=' + node.start : '';
    return tag === 'br' || tag === 'hr' ? `<${tag}>` : `<${tag}${href}>${inside}</${tag}>`;
  },
  // Nodes made for a text of `n` parts that arrive one by one.
  cost(n) {
    const make = document.createElement;
    let made = 0, text = '';
    document.createElement = (...a) => (++made, make.apply(document, a));
    const m = new Markdown(make.call(document, 'div'));
    for (let i = 0; i < n; ++i) {
      m.update(text += 'Some **bold** words and `code`.\\n\\n- an item\\n- another\\n\\n', false);
      m.update(text += '|a|b|\\n|-|-|\\n|1|2|\\n\\n```\\nx\\n```\\n', false);
    }
    document.createElement = make;
    return made;
  }
};"""


def markdown(b):
    b.js(MARKDOWN)
    for text, want in CASES:
        for step in (1, 3, 10000):
            got = b.js(f"[...markdown.node({json.dumps(text)}, {step}).childNodes].map(markdown.plain).join('')")
            assert got == want, f"{text!r} in steps of {step} becomes\n{got}\nnot\n{want}"
    for text in (SHOWCASE, HOSTILE):
        whole, *grown = [b.js(f"markdown.node({json.dumps(text)}, {n}).innerHTML") for n in (100000, 1, 2, 5, 17)]
        assert all(g == whole for g in grown)
    # What is finished is not made again: three times the text, three times the nodes.
    assert b.js("markdown.cost(300)") <= 3.1 * b.js("markdown.cost(100)")


def keyed(b, url, shots):
    b.open(url + "/")
    b.until("document.querySelector('#key')")
    b.shot(shots, "key")
    for key in ("wrong", "secret"):
        b.until("document.activeElement.id === 'key' && !document.querySelector('#key').value")
        b.type(key)
        b.key("Enter")
    b.until("document.querySelector('#model').textContent === 'scripted'")
    assert answered(b, "say: in") == "in"
    assert b.js("JSON.stringify(localStorage).includes('secret')") is False


def policy(b):
    """The second wall: were the page's code fooled, the browser would still refuse."""
    violated = """new Promise(done => {
      addEventListener('securitypolicyviolation', e => done(e.effectiveDirective), {once: true});
      const after = () => setTimeout(() => done('nothing'), 1000);
      DO
    })"""
    for attempt, directive in [
        ("fetch('http://127.0.0.1:1/').catch(() => 0).then(after)", "connect-src"),
        ("const i = new Image(); i.onload = i.onerror = after; i.src = 'http://127.0.0.1:1/'", "img-src"),
        ("try { document.createElement('div').innerHTML = '<b>'; } catch {} after()", "require-trusted-types-for"),
    ]:
        got = b.js(violated.replace("DO", attempt))
        assert got == directive, f"{attempt}: {got}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--url")
    p.add_argument("--keyed-url")
    p.add_argument("--scripted", action="store_true")
    p.add_argument("--screenshots")
    p.add_argument("--check-hashes", action="store_true")
    p.add_argument("--update-hashes", action="store_true")
    a = p.parse_args()
    if a.check_hashes or a.update_hashes:
        html = PAGE.read_text()
        if a.update_hashes:
            PAGE.write_text(with_hashes(html))
        sys.exit(0 if a.update_hashes or with_hashes(html) == html else 1)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("no browser: apt-get install chromium")
        sys.exit(77)
    if a.screenshots:
        os.makedirs(a.screenshots, exist_ok=True)
    b = Browser(chromium)
    try:
        conversation(b, a.url, a.screenshots)
        if a.scripted:
            scripted(b, a.url, a.screenshots)
            markdown(b)
        if a.keyed_url:
            keyed(b, a.keyed_url, a.screenshots)
        ours = tuple(u + "/" for u in (a.url, a.keyed_url) if u) + ("data:image/svg+xml", "blob:")
        foreign = [u for u in b.requests if not u.startswith(ours)]
        assert not foreign, f"requests to others: {foreign}"
        assert not b.problems, b.problems
        policy(b)
        print(f"the page works; {len(b.requests)} requests, all to its own server")
    finally:
        b.close()


if __name__ == "__main__":
    main()
