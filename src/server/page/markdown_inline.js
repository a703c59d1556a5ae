// Inside a block: emphasis, code, struck text, formulas, notes, character references, and links to http and https alone, bare ones
// too. Of HTML's elements <br>, <sub>, <sup> and <kbd> are known, without attributes. Linear in the text.
import { characterAt } from "./entities.js";
import { formula } from "./math.js";

const kMaxOpen = 12;  // emphasis in each other; more is text
const kMaxRun = 3;    // marks in a row; more are text
const kTarget = /\(\s{0,3}<?(https?:\/\/(?:[^\s()<>"\\]|\([^\s()<>"\\]*\)){1,2000})>?(?:\s+(?:"[^"\n]{0,200}"|'[^'\n]{0,200}'))?\s{0,3}\)/y;
const kPlain = /(?:(?!https?:\/\/)[^\\`*_~[\]!$<&])+/y;
const kBracketed = /<(https?:\/\/[^\s<>"\\]{1,2000})>/y;
const kElement = /<(?:(br) ?\/?|(sub|sup|kbd)>([^<\n]{1,200})<\/\2)>/yi;
const kNote = /\[\^([\w-]{1,20})\]/y;
const kReference = /\[([^[\]]{0,100})\]/y;
const kAddress = /https?:\/\/[^\s<>"'`\\|[\]{}]{1,2000}/y;
// A price is no formula: its $ has a blank before it or a digit after it where a formula would end.
const kFormula = /\$\$([^$]{1,4000})\$\$|\$(?=[^\s$])([^$\n]{0,999}[^\s$])\$(?![\d$])|\\\(([^\n]{1,1000}?)\\\)|\\\[([^]{1,4000}?)\\\]/y;
const kProse = /[A-Za-z]{3,} [A-Za-z]{2,}|\b(?:and|or|to|for|per|the) /;
const kPunctuation = /[\p{P}\p{S}]/u;
const kUnspaced = /[\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]/;

// What the whole text defines: the labels of its notes, and the targets that it names for links.
let defined = { notes: new Set(), links: new Map() };
export function setDefined(now) { defined = now; }
export const targetOf = (label) => defined.links.get(labelOf(label));
export const labelOf = (text) => text.trim().toLowerCase().replace(/\s+/g, " ");

// Where each run of backticks finds its equal, and each [ its ].
function pairs(text) {
  const ends = new Map();
  const open = [];
  const closing = new Map();
  for (let i = 0; i < text.length; ++i) {
    const c = text[i];
    if (c === "\\") {
      ++i;
    } else if (c === "`") {
      let end = i;
      while (text[end] === "`") ++end;
      if (!ends.has(end - i)) ends.set(end - i, []);
      ends.get(end - i).push(i);
      i = end - 1;
    } else if (c === "[") {
      open.push(i);
    } else if (c === "]" && open.length > 0) {
      closing.set(open.pop(), i);
    }
  }
  for (const places of ends.values()) places.reverse();
  return { ends, closing };
}

function delimiter(text, at, end) {
  const before = text[at - 1] ?? " ", after = text[end] ?? " ";
  const blank = { before: /\s/.test(before), after: /\s/.test(after) };
  const mark = { before: kPunctuation.test(before), after: kPunctuation.test(after) };
  // Scripts without blanks between words have none around emphasis either.
  const wide = { before: kUnspaced.test(before), after: kUnspaced.test(after) };
  const left = !blank.after && (!mark.after || blank.before || mark.before || wide.before);
  const right = !blank.before && (!mark.before || blank.after || mark.after || wide.after);
  const inWord = text[at] === "_" && left && right;
  const opens = left && (!inWord || mark.before), closes = right && (!inWord || mark.after);
  return { mark: text[at], left: end - at, opens, closes, begins: [], ends: 0 };
}

function link(target, title = target) {
  const node = document.createElement("a");
  node.href = target;
  node.title = title;
  node.rel = "noopener noreferrer nofollow";
  node.target = "_blank";
  return node;
}

// The address that stands at `i`: without what closes the sentence around it.
function addressAt(text, i) {
  if (i > 0 && /[\w:/.@-]/.test(text[i - 1])) return null;
  kAddress.lastIndex = i;
  let found = kAddress.exec(text)?.[0];
  if (!found) return null;
  let open = 0;
  for (const c of found) open += c === "(" ? 1 : c === ")" ? -1 : 0;
  for (let last; (last = found.at(-1)) && /[.,;:!?*_~)$]/.test(last); found = found.slice(0, -1)) {
    if (last === ")" && open++ >= 0) break;
  }
  return /^https?:\/\/[^\s/]/.test(found) ? found : null;
}

function noteNode(label) {
  const node = document.createElement("sup");
  node.className = "figure";
  node.textContent = label;
  return node;
}

// A target's character references, where what they say may stand in one.
function decoded(target) {
  let out = "";
  for (let i = 0; i < target.length;) {
    const found = target[i] === "&" ? characterAt(target, i) : null;
    out += found ? found[0] : target[i];
    i = found ? found[1] : i + 1;
  }
  return /^https?:\/\/[^\s<>"\\]+$/.test(out) ? out : target;
}

// What "<" begins: an address, or one of a few elements. [node, the place after it], or null.
function angle(text, i, inLink) {
  kBracketed.lastIndex = i;
  const address = inLink ? null : kBracketed.exec(text);
  if (address) {
    const node = link(decoded(address[1]));
    node.textContent = address[1];
    return [node, kBracketed.lastIndex];
  }
  kElement.lastIndex = i;
  const found = kElement.exec(text);
  if (!found) return null;
  const end = kElement.lastIndex;
  const node = document.createElement(found[1] ? "br" : found[2].toLowerCase());
  if (found[3]) inline(node, found[3], inLink);
  return [node, end];
}

// Of "$", "\\(" or "\\[": how often no end was found. One that does not end is looked for again a bounded number of times.
const kMaxTries = 200;

// Strings, nodes, and delimiters that are not paired yet.
function scan(text, inLink) {
  const { ends, closing } = pairs(text);
  const items = [];
  let tries = 0;
  for (let i = 0; i < text.length;) {
    kPlain.lastIndex = i;
    const plain = kPlain.exec(text);
    if (plain) {
      items.push(plain[0]);
      i += plain[0].length;
      continue;
    }
    const c = text[i];
    let end = i + 1;
    if (c === "h") {
      const address = inLink ? null : addressAt(text, i);
      if (address) {
        const node = link(address);
        node.textContent = address;
        items.push(node);
      } else {
        items.push(c);
      }
      i += address?.length ?? 1;
      continue;
    }
    if ((c === "$" || (c === "\\" && (text[end] === "(" || text[end] === "["))) && tries < kMaxTries) {
      ++tries;
      kFormula.lastIndex = i;
      const found = kFormula.exec(text);
      const isProse = found?.[2] && kProse.test(found[2]) && !found[2].includes("\\");
      const node = found && !isProse && formula(found[1] ?? found[2] ?? found[3] ?? found[4], (found[1] ?? found[4]) !== undefined);
      if (node) {
        items.push(node);
        i = kFormula.lastIndex;
        continue;
      }
    }
    if (c === "&" || c === "<") {
      const found = c === "&" ? characterAt(text, i) : angle(text, i, inLink);
      items.push(found ? found[0] : c);
      i = found ? found[1] : end;
      continue;
    }
    if (c === "\\" && text[end] === "\n") {  // a break of the line, which is one as it stands
      i = end;
      continue;
    }
    if (c === "\\" && kPunctuation.test(text[end] ?? "")) {
      items.push(text[end]);
      i += 2;
      continue;
    }
    if (c === "`") {
      while (text[end] === "`") ++end;
      const places = ends.get(end - i) ?? [];
      while (places.length > 0 && places.at(-1) < end) places.pop();
      if (places.length > 0) {
        const close = places.pop();
        const node = document.createElement("code");
        const inner = text.slice(end, close);
        node.textContent = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() ? inner.slice(1, -1) : inner;
        items.push(node);
        i = close + end - i;
        continue;
      }
      items.push(text.slice(i, end));
    } else if (c === "*" || c === "_" || c === "~") {
      while (text[end] === c) ++end;
      items.push(end - i > kMaxRun ? text.slice(i, end) : delimiter(text, i, end));
    } else {
      // An image is a link to it: nothing is fetched that the reader does not ask for.
      const at = c === "!" && text[i + 1] === "[" ? i + 1 : i;
      const close = text[at] === "[" && !inLink ? closing.get(at) : undefined;
      kTarget.lastIndex = close === undefined ? 0 : close + 1;
      const target = close === undefined ? null : kTarget.exec(text);
      if (target) {
        const after = kTarget.lastIndex;
        const node = link(decoded(target[1]));
        inline(node, text.slice(at + 1, close) || target[1], true);
        items.push(node);
        i = after;
        continue;
      }
      kNote.lastIndex = i;
      const note = c === "[" && text[end] === "^" ? kNote.exec(text) : null;
      if (note && (defined.notes.has(note[1]) || /^\d{1,3}$/.test(note[1]))) {
        items.push(noteNode(note[1]));
        i = kNote.lastIndex;
        continue;
      }
      if (close !== undefined && defined.links.size > 0) {
        kReference.lastIndex = close + 1;
        const label = kReference.exec(text);
        const named = close - at < 200 ? targetOf(label?.[1] || text.slice(at + 1, close)) : undefined;
        if (named) {
          const after = label ? kReference.lastIndex : close + 1;
          const node = link(decoded(named));
          inline(node, text.slice(at + 1, close), true);
          items.push(node);
          i = after;
          continue;
        }
      }
      items.push(c);
    }
    i = end;
  }
  return items;
}

function pair(items) {
  const open = [];
  for (const item of items) {
    if (item.begins === undefined) continue;
    for (let k = open.length - 1; item.closes && k >= 0 && item.left > 0;) {
      const opener = open[k];
      const n = Math.min(2, opener.left, item.left);
      if (opener.mark !== item.mark || (item.mark === "~" && n < 2)) {
        --k;
        continue;
      }
      opener.begins.unshift(item.mark === "~" ? "del" : n === 2 ? "strong" : "em");
      opener.left -= n;
      item.left -= n;
      ++item.ends;
      open.length = opener.left > 0 ? k + 1 : k;
      k = open.length - 1;
    }
    if (item.opens && item.left > 0 && open.length < kMaxOpen) open.push(item);
  }
}

export function inline(parent, text, inLink = false) {
  const items = scan(text, inLink);
  pair(items);
  const within = [parent];
  let plain = "";
  const put = () => {
    if (plain) within.at(-1).append(plain);
    plain = "";
  };
  for (const item of items) {
    if (typeof item === "string") {
      plain += item;
    } else if (item.begins === undefined) {
      put();
      within.at(-1).append(item);
    } else {
      if (item.ends > 0) put();
      within.length -= item.ends;
      plain += item.mark.repeat(item.left);
      for (const name of item.begins) {
        put();
        const node = document.createElement(name);
        within.at(-1).append(node);
        within.push(node);
      }
    }
  }
  put();
}
