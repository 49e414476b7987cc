// ---------------------------------------------------------------- Writing
// Enter sends; but not where it ends the choice of a character (in Japanese, say).
const sends = e => e.key === 'Enter' && !e.shiftKey && !e.isComposing && e.keyCode !== 229;
function grow(area) {
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 2 + 'px';
}

function submit(text) {
  if (!chat.title) chat.title = [...text.trim().replace(/\s+/g, ' ')].slice(0, 60).join('');
  chat.messages.push({role: 'user', content: text.trim()});
  answer(chat);
}
function send() {
  const text = $('input').value;
  if (streams.has(chat.id) || !text.trim()) return;
  $('input').value = '';
  grow($('input'));
  submit(text);
}
$('compose').onsubmit = e => {
  e.preventDefault();
  const s = streams.get(chat.id);
  if (s) s.abort.abort(); else send();
  $('input').focus();
};
$('input').oninput = () => { grow($('input')); showButton(); };
$('input').onkeydown = e => { if (sends(e)) { e.preventDefault(); send(); } };
addEventListener('keydown', e => {
  if (e.key !== 'Escape' || $('settings').open) return;
  if (document.body.classList.contains('open')) { drawer(false); $('menu').focus(); }
  else streams.get(chat.id)?.abort.abort();
});

// ---------------------------------------------------------------- Settings
for (const [name, label, limits, hint] of kFields) {
  const input = el('input', {type: 'number', id: 'f-' + name, placeholder: 'server’s choice', inputMode: 'decimal', ...limits,
    'aria-describedby': 'h-' + name, oninput: () => {
      const value = input.valueAsNumber;
      if (Number.isFinite(value)) chat.settings[name] = value; else delete chat.settings[name];
    }});
  $('fields').append(el('div', null, el('label', {htmlFor: input.id}, label), input, el('small', {id: 'h-' + name}, hint)));
}
function showSettings() {
  $('system').value = chat.settings.system || '';
  for (const [name] of kFields) $('f-' + name).value = chat.settings[name] ?? '';
}
$('system').oninput = () => { chat.settings.system = $('system').value; };
$('tune').onclick = () => { showSettings(); $('settings').showModal(); };
$('reset').onclick = () => { chat.settings = {}; showSettings(); $('system').focus(); };
$('settings').onclick = e => { if (e.target === $('settings')) $('settings').close(); };
$('settings').onclose = () => {
  const {system, ...sampling} = chat.settings;
  store('settings', system?.trim() ? {system, ...sampling} : sampling);  // of the next new conversation
  keep(chat);
};

// ---------------------------------------------------------------- Light and dark
const kThemes = ['auto', 'light', 'dark'];
let theme = load('theme', 'auto');
function showTheme() {
  if (!kThemes.includes(theme)) theme = 'auto';
  document.documentElement.dataset.theme = theme;
  const label = {auto: 'Colours: as the system', light: 'Colours: light', dark: 'Colours: dark'}[theme];
  $('theme').replaceChildren(icon(theme));
  $('theme').setAttribute('aria-label', label);
  $('theme').title = label;
}
$('theme').onclick = () => {
  theme = kThemes[(kThemes.indexOf(theme) + 1) % 3];
  store('theme', theme);
  showTheme();
  say($('theme').title);
};

// ---------------------------------------------------------------- Begin
addEventListener('pagehide', () => { for (const s of streams.values()) keep(s.chat); });
addEventListener('storage', e => {  // another tab wrote
  if (e.key !== 'vllm.list') return;
  list = loadList();
  showChats();
});
showTheme();
openChat(session.getItem('vllm.open') || list[0]?.id);
meetServer();
