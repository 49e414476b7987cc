#!/usr/bin/env python3
"""Makes tests/goldens/templates: chat templates of published models, rendered by transformers' own Jinja environment.

  make_template_goldens.py OUT TEMPLATES... [--tokenizer NAME=tokenizer_config.json[.xz]]...

TEMPLATES are .jinja files or folders of them; a tokenizer_config.json gives a template with its own special tokens.
Writes OUT/language.json (one-line templates), OUT/conversations.json (the inputs) and OUT/published/NAME.json: {"source", "bos_token", "eos_token", "renders":
{conversation: {"text"} or {"error", "message"}}}; a render equal to an earlier one of the same file is {"same": name}.
Messages are given to the template as they are. The clock stands at 2026-07-30 12:34:56.123456, local time.
"""
import argparse
import datetime
import json
import lzma
import os

import template_language_cases
import transformers.utils.chat_template_utils as chat

CLOCK = (2026, 7, 30, 12, 34, 56, 123456)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*CLOCK)


chat.datetime = FixedClock

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a \"place\", <now> & later: 天气",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "The city"},
            "days": {"type": "integer", "default": 1, "minimum": 0},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}, "tags": {
                "type": "array", "items": {"type": "string"}}}}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
                       "required": ["a", "b"]}}},
]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, id="abcd12345"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, name="get_weather", id="abcd12345"):
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


SYSTEM = {"role": "system", "content": "Be brief."}
WEATHER = {"city": "Zürich", "days": 2}
ONE_CALL = [user("Weather?"), assistant("", tool_calls=[call("get_weather", WEATHER)]), result('{"t": 21.5}')]
TWO_CALLS = [SYSTEM, user("Weather and sum?"),
             assistant("Let me see.", tool_calls=[call("get_weather", WEATHER),
                                                  call("add", {"a": 1, "b": 2.5}, "efgh67890")]),
             result('{"t": 21.5}'), result("3.5", "add", "efgh67890")]
TALK = [SYSTEM, user("Hi"), assistant("Hello!"), user("How are you?"), assistant("Fine."), user("Bye")]
UNICODE = "  Grüße, 世界 🦙🏽 — “quoted” <b>&amp;</b> 'x' \\n \"y\"\n\tΣΑΣ ǅ İ ﬁ  \n"

CONVERSATIONS = {
    "user": dict(messages=[user("Hello there")]),
    "user_open": dict(messages=[user("Hello there")], add_generation_prompt=False),
    "system": dict(messages=[SYSTEM, user("Hello there")]),
    "talk": dict(messages=TALK),
    "talk_ends": dict(messages=TALK[:-1], add_generation_prompt=False),
    "thinking_on": dict(messages=TALK, kwargs={"enable_thinking": True, "thinking": True}),
    "thinking_off": dict(messages=TALK, kwargs={"enable_thinking": False, "thinking": False}),
    "effort": dict(messages=TALK, kwargs={"reasoning_effort": "high", "custom_instructions": "x"}),
    "tools": dict(messages=[user("Weather?")], tools=TOOLS),
    "tools_system": dict(messages=[SYSTEM, user("Weather?")], tools=TOOLS[:1], kwargs={"enable_thinking": False}),
    "one_call": dict(messages=ONE_CALL, tools=TOOLS),
    "one_call_text": dict(messages=[ONE_CALL[0],
                                    assistant("", tool_calls=[call("get_weather", json.dumps(WEATHER))]), ONE_CALL[2]],
                          tools=TOOLS),
    "one_call_null": dict(messages=[ONE_CALL[0], assistant(None, tool_calls=[call("get_weather", WEATHER)]),
                                    ONE_CALL[2]], tools=TOOLS),
    "call_open": dict(messages=ONE_CALL[:2], tools=TOOLS, add_generation_prompt=False),
    "two_calls": dict(messages=TWO_CALLS, tools=TOOLS),
    "after_calls": dict(messages=TWO_CALLS + [assistant("21.5 and 3.5"), user("Thanks")], tools=TOOLS),
    "parts": dict(messages=[user([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])]),
    "parts_talk": dict(messages=[{"role": "system", "content": [{"type": "text", "text": "S"}]},
                                 user([{"type": "text", "text": "A"}]), assistant([{"type": "text", "text": "B"}]),
                                 user([{"type": "text", "text": "C"}])]),
    "image": dict(messages=[user([{"type": "image", "url": "x"}, {"type": "text", "text": "What is it?"}])]),
    "unicode": dict(messages=[{"role": "system", "content": UNICODE}, user(UNICODE), assistant(UNICODE),
                              user(UNICODE)]),
    "reasoning": dict(messages=[user("1+1?"), assistant("2", reasoning_content="One and one."), user("2+2?"),
                                assistant("<think>\nTwo and two.\n</think>\n\n4"), user("3+3?")]),
    "reasoning_last": dict(messages=[user("1+1?"), assistant("2", reasoning_content="One and one.",
                                                             thinking="One and one.")],
                           add_generation_prompt=False),
    "developer": dict(messages=[{"role": "developer", "content": "Be brief."}, user("Hello there")]),
    "two_users": dict(messages=[user("A"), user("B")]),
    "assistant_first": dict(messages=[assistant("A"), user("B")]),
    "documents": dict(messages=[user("Hello there")],
                      documents=[{"title": "T1", "text": "Text 1"}, {"title": "T2", "text": "Text 2", "doc_id": 7}]),
    "odd_values": dict(messages=[user("x"), assistant("", tool_calls=[call("add", {
        "a": 1e-07, "b": -0.0, "c": None, "d": True, "e": [1, [], {}], "f": {"g": "é\u2028\x01"},
        "h": 12345678901234567890})])],
        tools=TOOLS[1:], add_generation_prompt=False),
}


def render(template, conversation, bos, eos):
    c = {"add_generation_prompt": True, "tools": None, "documents": None, "kwargs": {}, **conversation}
    variables = dict(c["kwargs"])
    if bos:
        variables["bos_token"] = bos
    if eos:
        variables["eos_token"] = eos
    try:
        text = template.render(messages=c["messages"], tools=c["tools"], documents=c["documents"],
                               add_generation_prompt=c["add_generation_prompt"], **variables)
        return {"text": text}
    except Exception as e:  # every way in which a template can fail is a result to compare
        return {"error": type(e).__name__, "message": str(e)}


def language():
    cases = []
    for source in template_language_cases.TEMPLATES:
        case = {"template": source}
        try:
            case["text"] = chat._compile_jinja_template(source).render(**template_language_cases.CONTEXT)
        except Exception as e:  # as above
            case.update(error=type(e).__name__, message=str(e))
        cases.append(case)
    return {"context": template_language_cases.CONTEXT, "cases": cases}


def token(value):
    return value["content"] if isinstance(value, dict) else value


def sources(arguments):
    for path in arguments.templates:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else [path]
        for name in names:
            if name.endswith(".jinja"):
                with open(os.path.join(path, name) if os.path.isdir(path) else name, encoding="utf-8") as f:
                    yield os.path.basename(name)[:-6], f.read(), "<s>", "</s>"
    for pair in arguments.tokenizer:
        name, path = pair.split("=", 1)
        with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as f:
            config = json.load(f)
        yield name, config["chat_template"], token(config.get("bos_token")), token(config.get("eos_token"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("templates", nargs="*")
    parser.add_argument("--tokenizer", action="append", default=[])
    arguments = parser.parse_args()
    os.makedirs(os.path.join(arguments.out, "published"), exist_ok=True)

    def write(path, value):
        with open(os.path.join(arguments.out, path), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False, indent=1)
            f.write("\n")

    write("conversations.json", {"clock": CLOCK, "conversations": CONVERSATIONS})
    write("language.json", language())
    for name, source, bos, eos in sources(arguments):
        value = {"source": source, "bos_token": bos, "eos_token": eos}
        try:
            template = chat._compile_jinja_template(source)
        except Exception as e:
            value["parse_error"] = f"{type(e).__name__}: {e}"
            write(f"published/{name}.json", value)
            continue
        seen = {}
        value["renders"] = {}
        for key, conversation in CONVERSATIONS.items():
            r = render(template, conversation, bos, eos)
            if "text" in r and r["text"] in seen:
                r = {"same": seen[r["text"]]}
            elif "text" in r:
                seen[r["text"]] = key
            value["renders"][key] = r
        write(f"published/{name}.json", value)


if __name__ == "__main__":
    main()
