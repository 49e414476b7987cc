// ---------------------------------------------------------------- Markdown, a line's inside
function safeUrl(text) {
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}
const link = (href, ...children) =>
  el('a', {href, title: href, target: '_blank', rel: 'noopener noreferrer nofollow'}, ...children);

// A loop, since /[...]+$/ takes quadratic time on text made to be slow.
function trimEnd(text, chars) {
  let n = text.length;
  while (n > 0 && chars.includes(text[n - 1])) --n;
  return text.slice(0, n);
}

const kSpace = /\s/, kWord = /[\p{L}\p{N}]/u;
const kTarget = /\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"\n]*")?\s*\)/y;
const kBare = /https?:\/\/[^\s<>"'`*]+/y;
const kAngle = /<(https?:\/\/[^\s<>]+)>/y;
const kMaxOpeners = 32;  // bounds the search of each closing mark

// Pairs the marks of emphasis in `items` (strings, nodes, and {mark, n, open, close}). While text
// still streams (`live`), an open ** holds to the end, so that it does not flash when it closes.
function emphasis(items, live) {
  let out = [], open = [];
  const plain = x => x.mark ? x.mark.repeat(x.n) : x;
  const wrap = (at, n) => {
    const inside = out.splice(at + 1).map(plain), mark = out[at].mark;
    out[at].n -= n;
    if (out[at].n === 0) out.length = at;
    out.push(el(mark === '~' ? 'del' : n === 2 ? 'strong' : 'em', null, ...inside));
  };
  for (const item of items) {
    if (!item.mark) {
      out.push(item);
      continue;
    }
    let n = item.n;
    while (item.close && n > 0) {
      let k = open.length - 1;
      while (k >= 0 && !(out[open[k]].mark === item.mark && open[k] < out.length - 1)) --k;
      if (k < 0) break;
      const at = open[k], use = out[at].n >= 2 && n >= 2 ? 2 : 1;
      const rest = out[at].n - use;
      open.length = rest > 0 ? k + 1 : k;
      wrap(at, use);
      n -= use;
    }
    if (n === 0) continue;
    if (item.open) {
      open.push(out.length);
      if (open.length > kMaxOpeners) open.shift();
    }
    out.push({mark: item.mark, n});
  }
  if (live) {
    for (let at; (at = open.pop()) !== undefined;) {
      if (out[at].mark === '*' && out[at].n === 2) {
        if (at === out.length - 1) out.pop();
        else wrap(at, 2);
      }
    }
  }
  return out.map(plain);
}

function inline(text, parent, live) {
  const items = [], brackets = [];
  let plain = '', i = 0;
  const flush = () => { if (plain) items.push(plain); plain = ''; };
  const push = node => { flush(); items.push(node); };
  // Where runs of backticks of a length last stand: none ahead means no search.
  const lastRun = new Map();
  for (const m of text.matchAll(/`+/g)) lastRun.set(m[0].length, m.index);
  const match = regex => { regex.lastIndex = i; return regex.exec(text); };
  while (i < text.length) {
    const c = text[i];
    if (c === '\\' && /[!-\/:-@[-`{-~]/.test(text[i + 1] || '')) {
      plain += text[i + 1];
      i += 2;
    } else if (c === '\n') {
      push(el('br'));
      ++i;
    } else if (c === '`') {
      let n = 1;
      while (text[i + n] === '`') ++n;
      let end = -1;
      if ((lastRun.get(n) ?? -1) > i) {
        for (end = i + n; ;) {
          end = text.indexOf('`', end);
          let m = 1;
          while (text[end + m] === '`') ++m;
          if (m === n) break;
          end += m;
        }
      } else if (live && n === 1) {
        end = text.length;
      }
      if (end < 0) {
        plain += '`'.repeat(n);
        i += n;
        continue;
      }
      let code = text.slice(i + n, end).replace(/\n/g, ' ');
      if (code.startsWith(' ') && code.endsWith(' ') && code.trim()) code = code.slice(1, -1);
      push(el('code', {dir: 'ltr'}, code));
      i = end + n;
    } else if (c === '*' || c === '_' || c === '~') {
      let n = 1;
      while (text[i + n] === c) ++n;
      const before = text[i - 1] ?? ' ', after = text[i + n] ?? ' ';
      let open = !kSpace.test(after), close = !kSpace.test(before);
      if (c === '_') [open, close] = [open && !kWord.test(before), close && !kWord.test(after)];
      if ((open || close) && (c === '~' ? n === 2 : n <= 3)) push({mark: c, n, open, close});
      else plain += c.repeat(n);
      i += n;
    } else if (c === '[' || (c === '!' && text[i + 1] === '[')) {
      // An image becomes a link: the page asks nothing of other hosts.
      flush();
      brackets.push(items.length);
      if (brackets.length > kMaxOpeners) brackets.shift();
      const n = c === '!' ? 2 : 1;
      items.push(text.slice(i, i + n));
      i += n;
    } else if (c === ']' && brackets.length) {
      const at = brackets.pop();
      ++i;
      const m = text[i] === '(' ? match(kTarget) : null;
      const href = m && safeUrl(m[1]);
      if (!href) {
        plain += ']';
        continue;
      }
      flush();
      const inside = emphasis(items.splice(at).slice(1), false);
      items.push(link(href, ...(inside.length ? inside : [href])));
      i += m[0].length;
    } else if (c === '<' || (c === 'h' && !kWord.test(text[i - 1] ?? ' '))) {
      const m = match(c === '<' ? kAngle : kBare);
      const url = m && (c === '<' ? m[1] : trimEnd(m[0], m[0].includes('(') ? '.,;:!?]' : '.,;:!?])'));
      const href = url && safeUrl(url);
      if (href) {
        push(link(href, url));
        i += c === '<' ? m[0].length : url.length;
      } else {
        plain += c;
        ++i;
      }
    } else {
      plain += c;
      ++i;
    }
  }
  flush();
  parent.append(...emphasis(items, live));
}

// ---------------------------------------------------------------- Markdown, blocks
const kFence = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const kRule = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const kQuote = /^ {0,3}>/;
const kItem = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)(.*)$/;
const kDelimiters = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
// What may yet become a mark at the start of a line is not shown before it is decided.
const kUndecided = /^(?:[-*+_]{1,3}|\d{1,9}[.)]?|#{1,6}|>|[`~]{1,2})?$/;
function undecided(line) {
  const s = line.trim();
  return s.startsWith('|') || (s.length < 12 && kUndecided.test(s));
}
const kMaxDepth = 6;

function cells(line) {
  const out = [];
  let cell = '', code = false;
  const s = line.trim().replace(/^\|/, '');
  for (let i = 0; i < s.length; ++i) {
    if (s[i] === '\\' && s[i + 1] === '|') { cell += '|'; ++i; continue; }
    if (s[i] === '`') code = !code && s.indexOf('`', i + 1) > 0;
    if (s[i] === '|' && !code) { out.push(cell.trim()); cell = ''; } else cell += s[i];
  }
  if (cell.trim()) out.push(cell.trim());
  return out;
}

function codeBlock(language) {
  const code = el('code', {dir: 'ltr'});
  const copy = el('button', {type: 'button', onclick: () => copyText(code.textContent)}, 'Copy');
  const pre = el('pre', {tabIndex: 0, role: 'region', 'aria-label': (language || 'Code') + ' block'}, code);
  return el('div', {className: 'code'}, el('div', null, el('span', null, language), copy), pre);
}

// Renders Markdown that grows. A block that is finished is never touched again; of the last one
// only what changes is made anew: a code block and a table grow, a paragraph or a list's item is
// replaced. So an answer costs time in proportion to its length.
class Markdown {
  constructor(root, depth = 0, onblock = null) {
    this.root = root;
    this.depth = depth;
    this.onblock = onblock;  // told the text of each finished block
    this.at = 0;             // start of the first line that is not taken yet
    this.block = null;       // the open block
    this.draft = null;       // undoes what the unfinished line shows
  }

  // `text` is all of it so far; it begins with what it was before.
  update(text, final) {
    this.draft?.();
    this.draft = null;
    for (let end; (end = text.indexOf('\n', this.at)) >= 0; this.at = end + 1) {
      this.line(text.slice(this.at, end).replace(/\r$/, ''));
    }
    const rest = text.slice(this.at);
    if (final) {
      if (rest) this.line(rest);
      this.at = text.length;
      this.close();
      return;
    }
    const b = this.block;
    if (b?.kind === 'code') {
      if (trimEnd(rest.trimStart(), '`~')) {
        const more = new Text((b.begun ? '\n' : '') + rest.replace(b.cut, ''));
        b.code.append(more);
        this.draft = () => more.remove();
      }
    } else if (!undecided(rest)) {
      this.sketch(rest);
    } else if (b) {
      this.draw(b, true);
    }
  }

  // Shows an unfinished line on a copy of the state, so that it can be taken again when whole.
  sketch(rest) {
    const b = this.block;
    const joins = b && (b.kind === 'text' || b.kind === 'item' || b.kind === 'quote') && this.continues(b, rest);
    if (joins) {
      this.draw({...b, loose: b.loose || (b.blank > 0 && !b.fenced), lines: [...b.lines, ...Array(b.blank || 0).fill(''), b.kind === 'quote' ? rest.replace(kQuote, '').replace(/^ /, '') : rest]}, true, b);
      return;
    }
    if (b) this.draw(b, false);
    if (b?.kind === 'table') return;  // a row is shown when it is whole
    const holder = el('div');
    const later = new Markdown(holder, this.depth);
    later.line(rest);
    if (later.block?.kind === 'code') return;
    if (later.block) later.draw(later.block, true);
    const nodes = [...holder.childNodes];
    const last = this.root.lastElementChild;
    if (later.block?.kind === 'item' && this.joinsList(last, later.block)) {
      const item = nodes[0].lastElementChild;
      last.append(item);
      this.draft = () => item.remove();
    } else {
      this.root.append(...nodes);
      this.draft = () => nodes.forEach(n => n.remove());
    }
  }

  continues(b, line) {
    switch (b.kind) {
      case 'code':
        return true;
      case 'text':
        return line.trim() !== '' && !kFence.test(line) && !kHeading.test(line) && !kRule.test(line) &&
          !kQuote.test(line) && !(kItem.test(line) && /^ {0,3}(?:[-*+]|\d{1,3}[.)])[ \t]+\S/.test(line));
      case 'quote':
        return kQuote.test(line);
      case 'item': {
        if (line.trim() === '') return true;
        const indent = line.length - line.trimStart().length;
        if (indent >= Math.min(b.indent, 2) && line.startsWith(' ')) return true;
        return !b.blank && !kFence.test(line) && !kHeading.test(line) && !kRule.test(line) && !kQuote.test(line) && !kItem.test(line) &&
          !b.fenced;
      }
      case 'table':
        return line.includes('|') && line.trim() !== '';
    }
    return false;
  }

  line(line) {
    const b = this.block;
    if (b?.kind === 'code') {
      const end = /^ {0,3}(`{3,}|~{3,})[ \t]*$/.exec(line);
      if (end && end[1][0] === b.fence[0] && end[1].length >= b.fence.length) return this.close();
      const more = (b.begun ? '\n' : '') + line.replace(b.cut, '');
      // Several text nodes, so that a long block is not copied for each line.
      if (b.text && b.text.length < 4096) b.text.appendData(more);
      else b.code.append(b.text = new Text(more));
      b.begun = true;
      return;
    }
    if (b?.kind === 'text' && b.lines.length === 1 && kDelimiters.test(line) && line.includes('-') &&
        b.lines[0].includes('|') && cells(b.lines[0]).length === cells(line).length) {
      return this.openTable(b, line);
    }
    if (b && this.continues(b, line)) {
      if (b.kind === 'table') return this.tableRow(b, line);
      if (line.trim() === '') {
        b.blank = (b.blank || 0) + 1;
        return;
      }
      b.loose ||= b.blank > 0 && !b.fenced;
      for (; b.blank > 0; --b.blank) b.lines.push('');
      b.lines.push(b.kind === 'quote' ? line.replace(kQuote, '').replace(/^ /, '') : line);
      if (b.kind === 'item' && /^\s*(?:`{3,}|~{3,})/.test(line)) b.fenced = !b.fenced;
      b.stale = true;
      return;
    }
    this.close();
    if (line.trim() === '') return;
    this.open(line);
  }

  open(line) {
    const deep = this.depth >= kMaxDepth;
    let m;
    if ((m = kFence.exec(line))) {
      const node = codeBlock(m[2].trim().split(/\s/)[0].slice(0, 40));
      this.root.append(node);
      this.block = {kind: 'code', fence: m[1], cut: new RegExp(`^ {0,${line.search(/\S/)}}`), node,
        code: node.querySelector('code')};
    } else if ((m = kHeading.exec(line))) {
      // The page's own title is h1.
      const node = el('h' + Math.min(6, m[1].length + 1), {dir: 'auto'});
      inline(trimEnd(m[2], ' \t#'), node, false);
      this.root.append(node);
      this.block = {kind: 'heading', node};
      this.close();
    } else if (kRule.test(line)) {
      this.root.append(el('hr'));
    } else if (kQuote.test(line) && !deep) {
      this.block = {kind: 'quote', lines: [line.replace(kQuote, '').replace(/^ /, '')], stale: true};
    } else if ((m = kItem.exec(line)) && !deep) {
      const marker = m[2], ordered = marker.length > 1;
      this.block = {kind: 'item', ordered, start: ordered ? parseInt(marker, 10) : 1, sign: marker.at(-1),
        indent: m[1].length + marker.length + Math.max(1, Math.min(4, m[3].length)), lines: [m[4]],
        fenced: /^(?:`{3,}|~{3,})/.test(m[4]), stale: true};
    } else {
      this.block = {kind: 'text', lines: [line], stale: true};
    }
  }

  joinsList(list, b) {
    return list && list.tagName === (b.ordered ? 'OL' : 'UL') && list.dataset.sign === b.sign;
  }

  // (Re)makes the node of a block whose lines changed; `shown`, if given, is the block as it stands.
  draw(b, live, shown = b) {
    if (!['text', 'quote', 'item'].includes(b.kind)) return;
    if (b === shown && !b.stale && !(shown.live && !live)) return;
    let node;
    if (b.kind === 'text') {
      // A first line with bars may be a table's head: the next line tells.
      if (live && b.lines.length === 1 && /^\s*\|/.test(b.lines[0])) return;
      node = el('p', {dir: 'auto'});
      inline(b.lines.map(l => l.trim()).join('\n'), node, live);
    } else if (b.kind === 'quote') {
      node = el('blockquote');
      new Markdown(node, this.depth + 1).update(b.lines.join('\n'), true);
    } else {
      node = el('li', {dir: 'auto'});
      const cut = new RegExp(`^ {1,${b.indent}}`);
      const lines = b.lines.map((l, i) => i === 0 ? l : l.replace(cut, ''));
      const task = /^\[([ xX])\] /.exec(lines[0]);
      if (task) lines[0] = (task[1] === ' ' ? '\u2610 ' : '\u2611 ') + lines[0].slice(4);
      // An item without blank lines is tight: its text stands in it without a paragraph.
      const inner = new Markdown(node, this.depth + 1);
      inner.live = live;
      inner.update(lines.join('\n'), true);
      if (!b.loose && node.firstChild?.tagName === 'P') node.firstChild.replaceWith(...node.firstChild.childNodes);
    }
    if (shown.node) {
      shown.node.replaceWith(node);
    } else if (b.kind === 'item' && this.joinsList(this.root.lastElementChild, b)) {
      this.root.lastElementChild.append(node);
    } else if (b.kind === 'item') {
      const list = el(b.ordered ? 'ol' : 'ul', {dir: 'auto'}, node);
      list.dataset.sign = b.sign;
      if (b.ordered) list.start = b.start;
      this.root.append(list);
    } else {
      this.root.append(node);
    }
    shown.node = node;
    shown.stale = b !== shown;
    shown.live = live;
  }

  openTable(b, line) {
    b.node?.remove();
    const aligns = cells(line).map(c => c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'right') : '');
    const head = el('tr'), body = el('tbody');
    cells(b.lines[0]).forEach((c, i) => {
      const th = el('th', {className: aligns[i], dir: 'auto'});
      inline(c, th, false);
      head.append(th);
    });
    const node = el('div', {className: 'wide', tabIndex: 0, role: 'region', 'aria-label': 'Table'},
      el('table', null, el('thead', null, head), body));
    this.root.append(node);
    this.block = {kind: 'table', node, body, aligns, lines: [b.lines[0]]};
  }

  tableRow(b, line) {
    const row = el('tr'), values = cells(line);
    b.aligns.forEach((align, i) => {
      const td = el('td', {className: align, dir: 'auto'});
      inline(values[i] || '', td, false);
      row.append(td);
    });
    b.body.append(row);
  }

  close() {
    const b = this.block;
    if (!b) return;
    this.block = null;
    this.draw(b, this.live || false);
    this.onblock?.(b.kind === 'code' ? 'Code block' : b.node.innerText);
  }
}

