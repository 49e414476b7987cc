// ---------------------------------------------------------------- What is kept
// localStorage: "vllm.list" is [{id, title, at}], newest first; "vllm.chat.<id>" a conversation:
// {id, title, at, settings, messages: [{role, content, thinking?, error?, note?, stats?}]}.
function load(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem('vllm.' + key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
function store(key, value) {
  try {
    localStorage.setItem('vllm.' + key, JSON.stringify(value));
  } catch {
    toast('This browser has no room left to keep conversations: export and delete some.');
  }
}
// A browser may forbid both storages; then things last as long as the page.
const session = (() => {
  try {
    return window.sessionStorage;
  } catch {
    const kept = new Map();
    return {getItem: k => kept.get(k), setItem: (k, v) => kept.set(k, v)};
  }
})();

const kFields = [
  ['temperature', 'Temperature', {min: 0, step: 'any'}, '0 always takes the likeliest token.'],
  ['top_p', 'Top p', {min: 0, max: 1, step: 'any'}, 'The likeliest tokens that make up this share.'],
  ['top_k', 'Top k', {min: 0, step: 1}, 'So many of the likeliest tokens; 0 is all.'],
  ['min_p', 'Min p', {min: 0, max: 1, step: 'any'}, 'Least probability, as a share of the greatest.'],
  ['repetition_penalty', 'Repetition penalty', {min: 0, step: 'any'}, '1 is none.'],
  ['max_tokens', 'Maximum tokens', {min: 1, step: 1}, 'Where an answer is cut.'],
  ['seed', 'Seed', {step: 1}, 'The same seed gives the same answer.'],
];

const loadList = () => [load('list', [])].flat().filter(e => e?.id);
let list = loadList();
let chat = null;             // the conversation shown
const streams = new Map();   // of the conversations that are being answered, by id
const server = {model: '', limit: 0};

const fresh = () => ({id: crypto.getRandomValues(new Uint32Array(2)).join(''), title: '', at: Date.now(), messages: [],
  settings: {...(chat?.settings || load('settings', {}))}});
const find = id => streams.get(id)?.chat || load('chat.' + id, null);

function keep(c) {
  if (c.gone || c.messages.length === 0) return;
  store('chat.' + c.id, c);
  const entry = list.find(e => e.id === c.id);
  if (!entry) list.unshift({id: c.id, title: c.title, at: c.at});
  else Object.assign(entry, {title: c.title, at: c.at});
  list.sort((a, b) => b.at - a.at);
  store('list', list);
}

