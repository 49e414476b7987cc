'use strict';
// ---------------------------------------------------------------- DOM
// Everything shown is made here, from text nodes: no string is ever parsed as HTML.
const $ = id => document.getElementById(id);
function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (v === undefined || v === null) continue;
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (k in e && k !== 'list') e[k] = v;
    else e.setAttribute(k, v);
  }
  e.append(...children);
  return e;
}
function icon(name) {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg'), use = document.createElementNS(ns, 'use');
  use.setAttribute('href', '#i-' + name);
  svg.setAttribute('aria-hidden', 'true');
  svg.append(use);
  return svg;
}
const iconButton = (name, label, onclick) =>
  el('button', {className: 'icon', type: 'button', title: label, 'aria-label': label, onclick}, icon(name));

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);  // there only over https and on localhost
  } catch {
    const area = el('textarea', {value: text, className: 'sr'});
    const back = document.activeElement;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    back?.focus();
  }
  say('Copied');
}

