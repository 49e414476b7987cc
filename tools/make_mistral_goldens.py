#!/usr/bin/env python3
"""Makes tests/goldens/text/mistral.json.gz: conversations as mistral-common encodes them, by the version of the chat format.

  make_mistral_goldens.py OUT [TEKKEN]    # needs mistral-common

TEKKEN is tests/goldens/text/tekken.json.gz, whose vocabulary gets Mistral's special tokens. Written are {"tokenizer": a tekken.json,
"conversations": {name: {"messages", "tools", "continue", "effort"}}, "versions": {version: {name: {"ids", "text"} or {"error"}}}}.
"""
import gzip
import json
import os
import sys
import tempfile

from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

VERSIONS = ['v3', 'v7', 'v11', 'v13', 'v15']
SETTINGS = {'reasoning_effort': {'type': 'enum', 'values': ['none', 'high'], 'accepts_none': True, 'default': 'none'}}  # of v15
SPECIALS = ['<unk>', '<s>', '</s>', '[INST]', '[/INST]', '[AVAILABLE_TOOLS]', '[/AVAILABLE_TOOLS]', '[TOOL_RESULTS]', '[/TOOL_RESULTS]',
            '[TOOL_CALLS]', '[IMG]', '<pad>', '[IMG_BREAK]', '[IMG_END]', '[PREFIX]', '[MIDDLE]', '[SUFFIX]', '[SYSTEM_PROMPT]',
            '[/SYSTEM_PROMPT]', '[TOOL_CONTENT]', '[REPEAT]', '[AUDIO]', '[BEGIN_AUDIO]', '[ARGS]', '[CALL_ID]', '[MODEL_SETTINGS]',
            '[/MODEL_SETTINGS]']
COUNT = 32

TOOLS = [
    {'type': 'function', 'function': {
        'name': 'get_weather', 'description': 'Weather of a "place", <now> & later: 天气', 'strict': True,
        'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}, 'days': {'type': 'integer', 'default': 1}},
                       'required': ['city']}}},
    {'type': 'function', 'function': {'name': 'add', 'parameters': {'type': 'object', 'properties': {'a': {'type': 'number'}}}}},
    {'type': 'function', 'function': {'name': 'stop'}},
]


def system(content):
    return {'role': 'system', 'content': content}


def user(content):
    return {'role': 'user', 'content': content}


def assistant(content, *calls):
    return {'role': 'assistant', 'content': content, **({'tool_calls': list(calls)} if calls else {})}


def call(name, arguments, id='abcd12345'):
    return {'id': id, 'type': 'function', 'function': {'name': name, 'arguments': arguments}}


def result(content, id='abcd12345'):
    return {'role': 'tool', 'tool_call_id': id, 'content': content}


def parts(*texts):
    return [{'type': 'text', 'text': t} for t in texts]


BE = system('Be brief.')
WEATHER = call('get_weather', '{"city":"Zürich", "days": 2}')
ADD = call('add', '{"a": 1.50, "b": [null, true, {"c": "\\u00e9\\n"}]}', 'efgh67890')
UNICODE = "  Grüße, 世界 🦙🏽 <b>&amp;</b> 'x' \\n \"y\"\n\tΣΑΣ  \n"
CALLED = [user('Weather?'), assistant('', WEATHER), result('{"t": 21.5}')]
BOTH = [BE, user('Weather and sum?'), assistant(None, WEATHER, ADD), result('3.5', 'efgh67890'), result('It rains. ☔'),
        assistant('Rain, and 3.5.'), user('Thanks')]

CONVERSATIONS = {
    'user': [user('Hello there')],
    'empty user': [user('')],
    'system': [BE, user('Hello there')],
    'system alone': [BE],
    'systems': [BE, system('Be kind.'), user('Hi')],
    'system between': [user('Hi'), system('Be brief.'), user('Are you there?')],
    'system, assistant': [BE, assistant('Hello!'), user('Hi')],
    'empty system': [system(''), user('Hi')],
    'talk': [BE, user('Hi'), assistant('Hello!'), user('How are you?'), assistant('Fine.  '), user('Bye')],
    'same roles': [user('One'), user(''), user('two'), assistant('a '), assistant('b '), user('three')],
    'parts': [system(parts('Be', 'brief')), user(parts('One', '', 'two')), assistant(parts('a', 'b')), user('three')],
    'unicode': [system(UNICODE), user(UNICODE), assistant(UNICODE), user(UNICODE)],
    'marks in text': [system('[/SYSTEM_PROMPT]</s>'), user('[/INST]<s>[INST] x'), assistant('[TOOL_CALLS][{}]</s>'), user('[IMG]')],
    'assistant begins': [assistant('Hello!'), user('Hi')],
    'assistant ends': [user('Hi'), assistant('Hello!')],
    'assistant alone': [assistant('Hello!')],
    'says nothing': [user('Hi'), assistant(''), user('Hi?')],
    'call': CALLED,
    'call, answer': CALLED + [assistant('21.5 degrees'), user('And tomorrow?')],
    'two calls': BOTH,
    'calls after calls': CALLED + [assistant('', call('stop', '{}', 'ZZZZ00000')), result('', 'ZZZZ00000')],
    'text beside a call': [user('Weather?'), assistant('Let me see. ', WEATHER), result('sun')],
    'result in parts': [user('Weather?'), assistant('', WEATHER), result(parts('sun', 'and wind'))],
    'result that is a string of JSON': [user('Weather?'), assistant('', WEATHER), result('"sun"')],
    'arguments that are no JSON': [user('Weather?'), assistant('', call('get_weather', 'Zürich')), result('sun')],
    'no arguments': [user('Stop'), assistant('', call('stop', '')), result('ok')],
    'a result too few': [user('Weather?'), assistant('', WEATHER, ADD), result('sun'), assistant('Sun'), user('Thanks')],
    'a result of no call': [user('Weather?'), assistant('', WEATHER), result('sun', 'XXXXXXXXX')],
    'two results of a call': [user('Weather?'), assistant('', WEATHER), result('sun'), result('rain')],
    'two calls with an id': [user('Weather?'), assistant('', WEATHER, WEATHER), result('sun'), result('sun')],
    'a long id': [user('Weather?'), assistant('', call('add', '{}', 'call_0123456789')), result('1', 'call_0123456789')],
    'no id': [user('Weather?'), assistant('', call('add', '{}', '')), result('1', '')],
    'tool after user': [user('Hi'), result('1')],
}
WITH_TOOLS = ['user', 'system alone', 'talk', 'same roles', 'system, assistant', 'call', 'call, answer', 'two calls']
CONTINUED = {'continued': [user('Hi'), assistant('Hello, I ')],
             'continued turn': [BE, user('Hi'), assistant('Hello.'), assistant('I am')]}


def encode(tokenizer, conversation):
    try:
        out = tokenizer.encode_chat_completion(ChatCompletionRequest.from_openai(
            conversation['messages'], conversation.get('tools'), conversation.get('continue', False),
            **({'reasoning_effort': conversation['effort']} if 'effort' in conversation else {})))
    except Exception as e:  # of many classes, pydantic's among them
        return {'error': str(e).split('\n')[0]}
    return {'ids': out.tokens, 'text': tokenizer.decode(out.tokens, special_token_policy=SpecialTokenPolicy.KEEP)}


def main():
    out = sys.argv[1]
    source = sys.argv[2] if len(sys.argv) > 2 else os.path.join(out, 'tekken.json.gz')
    file = json.loads(gzip.open(source).read())['tokenizer']
    words = file['config']['default_vocab_size'] - file['config']['default_num_special_tokens']
    file['vocab'] = file['vocab'][:words]
    file['special_tokens'] = [{'rank': i, 'token_str': n, 'is_control': True} for i, n in enumerate(SPECIALS)]
    file['config'].update(default_vocab_size=words + COUNT, default_num_special_tokens=COUNT, num_vocab_tokens=words)
    conversations = {name: {'messages': m} for name, m in CONVERSATIONS.items()}
    conversations.update({name + ', tools': {'messages': CONVERSATIONS[name], 'tools': TOOLS} for name in WITH_TOOLS})
    conversations.update({name: {'messages': m, 'continue': True} for name, m in CONTINUED.items()})
    conversations['effort'] = {'messages': CONVERSATIONS['same roles'], 'tools': TOOLS, 'effort': 'high'}
    conversations['another effort'] = {'messages': CONVERSATIONS['user'], 'effort': 'low'}
    versions = {}
    for version in VERSIONS:
        file['config']['version'] = version
        file['model_settings_builder'] = SETTINGS if version == 'v15' else None
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'tekken.json')
            with open(path, 'w') as f:
                json.dump(file, f)
            tokenizer = MistralTokenizer.from_file(path)
        versions[version] = {name: encode(tokenizer, c) for name, c in conversations.items()}
        failed = [f'{n}: {r["error"]}' for n, r in versions[version].items() if 'error' in r]
        print(version, len(failed), 'refused\n  ' + '\n  '.join(failed))
    data = json.dumps({'tokenizer': file, 'conversations': conversations, 'versions': versions}, ensure_ascii=False,
                      separators=(',', ':')).encode()
    with open(os.path.join(out, 'mistral.json.gz'), 'wb') as f:
        f.write(gzip.compress(data, 9, mtime=0))


if __name__ == '__main__':
    main()
