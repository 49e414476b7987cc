// ---------------------------------------------------------------- Small talk
const say = text => { $('status').textContent = ''; setTimeout(() => { $('status').textContent = text; }, 50); };
function toast(text, action, act) {
  $('toast').replaceChildren(el('span', {role: 'status'}, text));
  if (action) $('toast').append(el('button', {onclick: () => { act(); $('toast').hidden = true; }}, action));
  $('toast').hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $('toast').hidden = true; }, 9000);
}
const count = n => n.toLocaleString();

// ---------------------------------------------------------------- The server
const key = () => session.getItem('vllm.key');
function headers() {
  const h = {'Content-Type': 'application/json'};
  if (key()) h.Authorization = 'Bearer ' + key();
  return h;
}

// What went wrong, in words. `status` 0: there was no answer at all.
function inWords(status, message, wait) {
  const told = message ? ` The server says: ${message}` : '';
  if (status === 0) return 'The server cannot be reached. Is it running, and is the network up?';
  if (status === 401) return 'The server wants an API key.';
  if (status === 413) return 'The conversation is too large for the server.' + told;
  if (status === 429) return `The server is busy. Try again in ${wait ? wait + ' s' : 'a moment'}.`;
  if (status === 503) return 'The server is not ready.' + told;
  if (status >= 500) return 'The server failed.' + told;
  return message ? `The server refused this: ${message}` : `The server refused this (status ${status}).`;
}
class Failure extends Error {
  constructor(status, message, wait) {
    super(inWords(status, message, wait));
    this.status = status;
  }
}
async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, {headers: headers(), ...options});
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Failure(0);
  }
  if (answer.ok) return answer;
  let message = '';
  try {
    message = (await answer.json()).error.message;
  } catch { /* not the API's shape: the status must do */ }
  throw new Failure(answer.status, message, answer.headers.get('retry-after'));
}

// Yields the data of each event; a comment or an unknown field is skipped.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    buffer += value;
    const lines = buffer.split('\n');
    buffer = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data:')) yield line.slice(5).trim();
    }
  }
}

async function meetServer(delay = 1000) {
  try {
    const models = await (await ask('v1/models')).json();
    server.model = models.data[0].id;
    server.limit = models.data[0].max_model_len || 0;
    $('model').textContent = server.model;
    document.title = server.model;
    $('bar').replaceChildren();
    showContext();
  } catch (e) {
    if (e.status === 401) return askKey(() => meetServer());
    $('model').textContent = 'No model yet';
    $('bar').replaceChildren(el('div', {className: 'card'}, e.message || String(e)));
    setTimeout(() => meetServer(Math.min(delay * 1.5, 10000)), delay);
  }
}

function askKey(then) {
  const input = el('input', {type: 'password', autocomplete: 'off', required: true, id: 'key', 'aria-describedby': 'key-note'});
  $('bar').replaceChildren(el('div', {className: 'card'},
    el('label', {htmlFor: 'key', className: 'lab'}, key() ? 'The API key was not accepted' : 'This server wants an API key'),
    el('form', {onsubmit: e => {
      e.preventDefault();
      session.setItem('vllm.key', input.value.trim());
      $('bar').replaceChildren();
      then();
      $('input').focus();
    }}, input, el('button', {className: 'solid'}, 'Use it')),
    el('p', {className: 'note', id: 'key-note'}, 'It is kept until this tab closes.')));
  input.focus();
}

// ---------------------------------------------------------------- An answer comes in
// Splits what the model wrote into its thinking and the rest. A template may have opened <think>
// in the prompt, so the end alone counts too.
function parts(m) {
  const text = m.content, end = text.indexOf('</think>'), start = text.trimStart();
  const given = m.thinking || '';
  if (end >= 0) {
    const from = text.indexOf('<think>');
    return {thinking: given + text.slice(from >= 0 && from < end ? from + 7 : 0, end), rest: text.slice(end + 8).trimStart()};
  }
  if (start.startsWith('<think>')) return {thinking: given + start.slice(7), rest: ''};
  if (start && '<think>'.startsWith(start)) return {thinking: given, rest: ''};
  return {thinking: given, rest: text};
}

function requestBody(c, upTo) {
  const messages = [];
  if (c.settings.system?.trim()) messages.push({role: 'system', content: c.settings.system});
  for (const m of c.messages.slice(0, upTo)) {
    const content = m.role === 'user' ? m.content : parts(m).rest;
    if (!content.trim()) continue;
    // An answer that failed leaves two turns of the user, which many templates refuse.
    if (messages.at(-1)?.role === m.role) messages.at(-1).content += '\n\n' + content;
    else messages.push({role: m.role, content});
  }
  const body = {messages, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}};
  if (server.model) body.model = server.model;
  for (const [name] of kFields) if (Number.isFinite(c.settings[name])) body[name] = c.settings[name];
  return JSON.stringify(body);
}

async function answer(c) {
  const m = {role: 'assistant', content: ''};
  const s = {chat: c, message: m, abort: new AbortController(), begun: performance.now()};
  streams.set(c.id, s);
  c.messages.push(m);
  c.at = Date.now();
  keep(c);
  if (c === chat) showAll();
  showChats();
  let pieces = 0, first = 0, last = 0, usage = null, finish = null, saved = performance.now();
  try {
    const reply = await ask('v1/chat/completions',
      {method: 'POST', signal: s.abort.signal, body: requestBody(c, c.messages.length - 1)});
    for await (const data of events(reply.body)) {
      if (data === '[DONE]') { finish ??= 'stop'; break; }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Failure(chunk.error.code >= 400 ? chunk.error.code : 500, chunk.error.message);
      usage = chunk.usage || usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const text = choice.delta?.content || '', thought = choice.delta?.reasoning_content || choice.delta?.reasoning || '';
      if (text || thought) {
        ++pieces;
        last = performance.now();
        first ||= last;
        m.content += text;
        if (thought) m.thinking = (m.thinking || '') + thought;
        // Looked at where it may change alone, since a look costs the length of the text.
        if (!s.think && (thought || (m.content.length < 64 && m.content.includes('<think>')))) s.think = last;
        if (s.think && !m.thought && (m.thinking ? text : text.includes('>')) && (m.thinking || m.content.includes('</think>'))) {
          m.thought = (last - s.think) / 1000;
        }
      }
      finish = choice.finish_reason || finish;
      s.tokens = usage?.completion_tokens || pieces;
      s.rate = last > first + 20 && s.tokens > 1 ? (s.tokens - 1) / (last - first) * 1000 : 0;
      if (usage) c.used = usage.total_tokens;
      if (last - saved > 1500) { saved = last; keep(c); }
      schedule(s);
    }
    if (!finish) m.error = 'The answer broke off before its end: the connection was lost.';
    if (finish === 'length') m.note = 'cut at the maximum of tokens';
  } catch (e) {
    if (e.name === 'AbortError') m.note = 'stopped';
    else if (e instanceof Failure) m.error = e.message;
    else m.error = 'The answer broke off before its end: the connection was lost.';
    if (e.status === 401) askKey(() => retry(c));
  }
  if (pieces > 0) {
    m.stats = {tokens: s.tokens, exact: !!usage?.completion_tokens, prompt: usage?.prompt_tokens, rate: s.rate, wait: (first - s.begun) / 1000,
      cached: usage?.prompt_tokens_details?.cached_tokens};
  }
  streams.delete(c.id);
  keep(c);
  if (c === chat) {
    draw(s, true);
    showContext();
    showButton();
  }
  showChats();
  if (m.error) say(m.error);
  else if (m.note) say('The answer was ' + m.note);
}

function retry(c) {
  if (streams.has(c.id)) return;
  if (c.messages.at(-1)?.role === 'assistant') c.messages.pop();
  answer(c);
}

// One drawing a frame, and never more than a quarter of the time.
function schedule(s) {
  if (s.waiting || s.chat !== chat) return;
  s.waiting = true;
  const frame = () => { s.waiting = false; if (streams.get(s.chat.id) === s) draw(s, false); };
  setTimeout(() => requestAnimationFrame(frame), Math.min(400, (s.cost || 0) * 3));
}
function draw(s, final) {
  const view = views.get(s.message);
  if (s.chat !== chat || !view) return;
  const start = performance.now();
  view.update(s, final);
  showContext();
  if (stick) toEnd();
  s.cost = performance.now() - start;
}

