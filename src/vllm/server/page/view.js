// ---------------------------------------------------------------- The conversation shown
const views = new Map();  // by message
let stick = true;         // the reader is at the end, so stay there

const scroller = $('scroll');
const toEnd = () => { scroller.scrollTop = scroller.scrollHeight; };
scroller.addEventListener('scroll', () => {
  stick = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48;
  $('end').hidden = stick;
}, {passive: true});
new ResizeObserver(() => { if (stick) toEnd(); }).observe(scroller);
$('end').onclick = () => { stick = true; toEnd(); $('input').focus(); };

function statsText(m) {
  const t = m.stats, out = [];
  if (t) {
    out.push(`${t.exact ? '' : 'about '}${count(t.tokens)} ${t.tokens === 1 ? 'token' : 'tokens'}`);
    if (t.rate) out.push(`${t.rate.toFixed(t.rate < 100 ? 1 : 0)} tokens/s`);
    out.push(`first after ${t.wait.toFixed(2)} s`);
    if (t.prompt) out.push(`prompt ${count(t.prompt)}${t.cached ? ` (${count(t.cached)} cached)` : ''}`);
  }
  if (m.note) out.push(m.note);
  return out.join(' · ');
}

class Answer {
  constructor(m) {
    this.message = m;
    this.body = el('div', {className: 'md'});
    this.tail = el('div', {className: 'tail'});
    this.node = el('li', {className: 'answer'}, el('h2', {className: 'sr'}, 'Answer'), this.body, this.tail);
    this.text = new Markdown(this.body, 0, text => { if (this.live) speak(text); });
  }

  // `s` is the stream that still brings it, if one does.
  update(s, final) {
    const m = this.message, {thinking, rest} = parts(m);
    this.live = !!s;
    if (thinking.trim()) this.showThinking(thinking, final, final || rest !== '');
    // Text that turned out to be thinking is taken back.
    if (this.shown && !rest.startsWith(this.shown.slice(0, 200))) {
      this.body.replaceChildren();
      this.text = new Markdown(this.body, 0, this.text.onblock);
    }
    this.shown = rest;
    this.text.update(rest, final);
    if (final) return this.finish();
    this.tail.replaceChildren(s.tokens ? `${count(s.tokens)} tokens${s.rate ? ` · ${s.rate.toFixed(1)} tokens/s` : ''}`
                                       : el('span', {className: 'wait'}, el('span', {className: 'sr'}, 'Waiting for the answer')));
  }

  showThinking(thinking, final, done) {
    if (!this.think) {
      this.thinkBody = el('div', {className: 'md'});
      this.think = el('details', {className: 'think'}, el('summary', null, 'Thinking…'), this.thinkBody);
      this.body.before(this.think);
      this.thinkText = new Markdown(this.thinkBody);
    }
    if (this.thinkDone) return;
    this.thinkText.update(thinking, done);
    this.thinkDone = done;
    if (done) {
      const t = this.message.thought;
      this.think.firstChild.textContent = t > 0.05 ? `Thought for ${t < 10 ? t.toFixed(1) : Math.round(t)} s` : 'Thoughts';
    }
  }

  finish() {
    const m = this.message, last = chat.messages.at(-1) === m;
    this.tail.replaceChildren(el('div', {className: 'acts'},
      ...(parts(m).rest ? [iconButton('copy', 'Copy the answer', () => copyText(parts(m).rest))] : []),
      ...(last ? [iconButton('again', 'Answer again', () => { retry(chat); $('input').focus(); })] : [])), el('span', null, statsText(m)));
    this.node.querySelector('.error')?.remove();
    if (m.error) {
      this.tail.before(el('div', {className: 'error'}, el('span', null, m.error),
        ...(last ? [el('button', {type: 'button', onclick: () => { retry(chat); $('input').focus(); }}, 'Try again')] : [])));
    }
  }
}

// For screen readers, block by block: the text that is drawn anew would be read again and again.
function speak(text) {
  $('spoken').append(el('p', null, text));
  while ($('spoken').childElementCount > 20) $('spoken').firstChild.remove();
}

function userTurn(m, index) {
  const text = el('div', {className: 'text', dir: 'auto'}, m.content);
  const acts = el('div', {className: 'acts'},
    iconButton('copy', 'Copy the message', () => copyText(m.content)),
    iconButton('edit', 'Edit and send again', () => edit()));
  const node = el('li', {className: 'user'}, el('h2', {className: 'sr'}, 'You'), text, acts);
  const edit = () => {
    if (streams.has(chat.id)) return say('Stop the answer first');
    const area = el('textarea', {value: m.content, dir: 'auto', 'aria-label': 'Edit the message', oninput: () => grow(area)});
    const leave = () => { node.classList.remove('editing'); form.replaceWith(text, acts); acts.lastChild.focus(); };
    const send = () => {
      if (!area.value.trim()) return;
      chat.messages.length = index;
      submit(area.value);
      $('input').focus();
    };
    area.addEventListener('keydown', e => {
      if (e.key === 'Escape') { e.stopPropagation(); leave(); }
      if (sends(e)) { e.preventDefault(); send(); }
    });
    const form = el('div', null, area, el('div', {className: 'row'},
      el('button', {type: 'button', className: 'quiet', onclick: leave}, 'Cancel'),
      el('button', {type: 'button', className: 'solid', onclick: send}, 'Send')));
    acts.remove();
    text.replaceWith(form);
    node.classList.add('editing');
    grow(area);
    area.focus();
  };
  return node;
}

function showAll() {
  views.clear();
  const s = streams.get(chat.id);
  $('log').replaceChildren(...chat.messages.map((m, i) => {
    if (m.role === 'user') return userTurn(m, i);
    const view = new Answer(m);
    views.set(m, view);
    if (s?.message === m) view.update(s, false);
    else view.update(null, true);
    return view.node;
  }));
  $('hello').hidden = chat.messages.length > 0;
  $('spoken').replaceChildren();
  showContext();
  showButton();
  stick = true;
  $('end').hidden = true;
  toEnd();
}

function showContext() {
  const used = chat?.used || 0;
  $('context').hidden = !used;
  if (!used) return;
  $('used').textContent = server.limit ? `${count(used)} of ${count(server.limit)} tokens` : `${count(used)} tokens`;
  $('meter').hidden = !server.limit;
  if (server.limit) $('meter').value = used / server.limit;
}

function showButton() {
  const on = streams.has(chat.id), b = $('send'), label = on ? 'Stop' : 'Send';
  b.replaceChildren(icon(on ? 'stop' : 'up'));
  b.setAttribute('aria-label', label);
  b.title = on ? 'Stop (Esc)' : 'Send (Enter)';
  b.disabled = !on && !$('input').value.trim();
}

// ---------------------------------------------------------------- The list of conversations
function showChats() {
  const had = document.activeElement?.closest('#chats li')?.dataset.id;
  if (document.activeElement?.matches('#chats input')) return;  // being renamed
  $('chats').replaceChildren(...list.map(entry => {
    const name = el('button', {className: 'name', onclick: () => openChat(entry.id)}, entry.title || 'Untitled');
    name.dir = 'auto';
    const li = el('li', null, name, el('div', {className: 'acts'},
      iconButton('edit', `Rename ${entry.title}`, () => rename(entry, li)),
      iconButton('save', `Export ${entry.title}`, () => exportChat(entry)),
      iconButton('bin', `Delete ${entry.title}`, () => deleteChat(entry))));
    li.dataset.id = entry.id;
    if (entry.id === chat?.id) {
      li.className = 'on';
      name.setAttribute('aria-current', 'true');
    }
    return li;
  }));
  if (had) $('chats').querySelector(`li[data-id="${had}"] .name`)?.focus();
}

function openChat(id) {
  const found = id && find(id);
  chat = Array.isArray(found?.messages) ? found : fresh();
  chat.settings ??= {};
  for (const m of chat.messages) {
    if (m.role === 'assistant' && !m.stats && !m.error && !m.note && !streams.has(chat.id)) {
      m.error = 'The answer broke off before its end: the page was closed.';
    }
  }
  session.setItem('vllm.open', chat.id);
  drawer(false);
  showAll();
  showChats();
  // Not on a phone, where the keyboard would come up.
  if (!matchMedia('(pointer: coarse)').matches) $('input').focus();
}

function rename(entry, li) {
  const input = el('input', {value: entry.title, 'aria-label': 'Name of the conversation', maxLength: 120});
  let over = false;
  const end = take => {
    if (over) return;
    over = true;
    const title = input.value.trim();
    if (take && title) {
      entry.title = title;
      const c = entry.id === chat.id ? chat : find(entry.id);
      if (c) { c.title = title; keep(c); }
    }
    input.remove();
    showChats();
    $('chats').querySelector(`li[data-id="${entry.id}"] .name`)?.focus();
  };
  input.addEventListener('keydown', e => {
    if (e.key === 'Enter') end(true);
    if (e.key === 'Escape') { e.stopPropagation(); end(false); }
  });
  input.addEventListener('blur', () => end(true));
  li.replaceChildren(input);
  input.select();
  input.focus();
}

function exportChat(entry) {
  const c = entry.id === chat.id ? chat : find(entry.id);
  const url = URL.createObjectURL(new Blob([JSON.stringify({model: server.model, ...c}, null, 2)], {type: 'application/json'}));
  el('a', {href: url, download: (c.title.replace(/[^\p{L}\p{N} _-]/gu, '').trim() || 'conversation') + '.json'}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function deleteChat(entry) {
  const c = entry.id === chat.id ? chat : find(entry.id);
  streams.get(entry.id)?.abort.abort();
  list = list.filter(e => e !== entry);
  store('list', list);
  try {
    localStorage.removeItem('vllm.chat.' + entry.id);
  } catch { /* there was none */ }
  if (c) c.gone = true;
  if (entry.id === chat.id) openChat(list[0]?.id);
  else showChats();
  toast('The conversation is deleted.', 'Undo', () => {
    if (!c) return;
    delete c.gone;
    keep(c);
    openChat(c.id);
  });
}

function drawer(open) {
  document.body.classList.toggle('open', open);
  $('app').inert = open;
  $('menu').setAttribute('aria-expanded', open);
}
$('menu').onclick = () => { drawer(true); $('new').focus(); };
$('shade').onclick = () => drawer(false);
$('new').onclick = () => openChat(null);

