// Inside a block: emphasis, code, struck text, and links to http and https alone. Linear in the text.

const kMaxOpen = 12;  // emphasis in each other; more is text
const kMaxRun = 3;    // marks in a row; more are text
const kTarget = /\((https?:\/\/(?:[^\s()<>"\\]|\([^\s()<>"\\]*\)){1,2000})(?:\s+"[^"\n]{0,200}")?\)/y;
const kPlain = /[^\\`*_~[\]!]+/y;
const kPunctuation = /[\p{P}\p{S}]/u;

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
  const left = !blank.after && (!mark.after || blank.before || mark.before);
  const right = !blank.before && (!mark.before || blank.after || mark.after);
  const inWord = text[at] === "_" && left && right;
  const opens = left && (!inWord || mark.before), closes = right && (!inWord || mark.after);
  return { mark: text[at], left: end - at, opens, closes, begins: [], ends: 0 };
}

// Strings, nodes, and delimiters that are not paired yet.
function scan(text, inLink) {
  const { ends, closing } = pairs(text);
  const items = [];
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
        const node = document.createElement("a");
        node.href = target[1];
        node.title = target[1];
        node.rel = "noopener noreferrer nofollow";
        node.target = "_blank";
        inline(node, text.slice(at + 1, close) || target[1], true);
        items.push(node);
        i = kTarget.lastIndex;
        continue;
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
