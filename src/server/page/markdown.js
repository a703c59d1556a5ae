// A safe subset of Markdown as DOM nodes: text never becomes HTML, nothing is fetched, and every pass is linear in the
// text whatever the model writes. Headings, paragraphs, lists (of tasks too), quotes, rules, tables, code, notes. An answer that
// is JSON as a whole is code.
import { highlight } from "./highlight.js";
import { inline, labelOf, setDefined, targetOf } from "./markdown_inline.js";
import { formula } from "./math.js";

const kMaxDepth = 6;     // of lists and quotes in each other; deeper ones are text
const kMaxColumns = 32;  // of a table
const kMaxFormula = 60;  // lines
const kFence = /^\s*(`{3,}|~{3,})([^`]*)$/;
const kHeading = /^\s*(#{1,6})\s+([^]*)$/;
const kUnderlined = /^ {0,3}=+\s*$/;
const kNote = /^ {0,3}\[\^([\w-]{1,20})\]:\s?([^]*)$/;
const kLink = /^ {0,3}\[([^[\]\\^][^[\]\\]{0,99})\]:\s*<?(https?:\/\/[^\s<>"\\]{1,2000})>?(?:\s+["'(][^\n]{0,200})?\s*$/;
const kTask = /^\[([ xX])\](?:\s|$)/;
const kIndented = /^(?: {4}|\t)[^]*\S/;
const kEnvironment = /^\\begin\{((?:equation|align|gather)\*?)\}/;
const kRightToLeft = /[\u0591-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const kLongCell = 24;  // characters
const kItem = /^(\s*)(?:[-*+]|(\d{1,9})[.)])(?:\s([^]*))?$/;
const kQuote = /^\s*>/;

function element(name, text) {
  const node = document.createElement(name);
  if (text !== undefined) inline(node, text);
  return node;
}

// The reading direction is the first letter's; `dir` is set only where some letter is read from the right.
function directed(node) {
  if (kRightToLeft.test(node.textContent)) node.dir = "auto";
  return node;
}

const indent = (line) => line.length - line.trimStart().length;

function isRule(line) {
  const text = line.trim();
  return /^[-*_]/.test(text) && text.replaceAll(text[0], "").trim() === "" && text.replace(/\s+/g, "").length >= 3;
}

// What ends a paragraph without a blank line. A number ends it only where it is 1: years are no lists.
function interrupts(line) {
  const item = kItem.exec(line);
  if (item) return item[3]?.trim() && (item[2] === undefined || item[2] === "1");
  return kFence.test(line) || kHeading.test(line) || kQuote.test(line) || kNote.test(line) || isRule(line);
}

// Each of these reads from line i: [node, the line after it], or null where there is no such block.
function code(lines, i, canCopy) {
  const open = kFence.exec(lines[i]);
  if (!open) return null;
  const skip = indent(lines[i]);
  const body = [];
  for (++i; i < lines.length; ++i) {
    const text = lines[i].trim();
    if (text.length >= open[1].length && text.replaceAll(open[1][0], "") === "") break;
    body.push(lines[i].slice(Math.min(skip, indent(lines[i]))));
  }
  return [codeNode(body.join("\n"), open[2].trim().split(/\s/)[0].slice(0, 20), canCopy), i + 1];
}

function codeNode(text, language, canCopy) {
  const node = element("div");
  node.className = "code";
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.append(element("span"));
  bar.firstChild.textContent = language || "text";
  if (canCopy) {
    const copy = document.createElement("button");
    copy.className = "small copy-code";
    copy.textContent = "Copy";
    bar.append(copy);
  }
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  pre.append(document.createElement("code"));
  highlight(pre.firstChild, text, bar.firstChild.textContent);
  node.append(bar, pre);
  return node;
}

// Lines that stand four blanks to the right.
function indented(lines, i, canCopy) {
  if (!kIndented.test(lines[i])) return null;
  const body = [];
  for (; i < lines.length && (kIndented.test(lines[i]) || lines[i].trim() === ""); ++i) body.push(lines[i].replace(/^(?: {1,4}|\t)/, ""));
  while (body.at(-1).trim() === "") body.pop();
  return [codeNode(body.join("\n"), "", canCopy), i];
}

// A formula of its own lines: $$, \[ or an environment to its end. What is not read as one stays text.
function math(lines, i) {
  const first = lines[i].trim();
  const environment = kEnvironment.exec(first);
  const close = first.startsWith("$$") ? "$$" : first.startsWith("\\[") ? "\\]" : environment && `\\end{${environment[1]}}`;
  if (!close) return null;
  const [n_open, n_close] = environment ? [0, 0] : [2, 2];
  const inner = [];
  for (let k = i; k < Math.min(lines.length, i + kMaxFormula); ++k) {
    const line = k === i ? first.slice(n_open) : lines[k];
    if (line.trim() === "" && k > i) return null;
    const whole = line.trimEnd().endsWith(close);
    inner.push(whole ? line.trimEnd().slice(0, line.trimEnd().length - n_close) : line);
    if (!whole) continue;
    const found = formula(inner.join("\n"), true);
    if (!found) return null;
    const node = element("div");
    node.className = "wide";
    node.tabIndex = 0;
    node.append(found);
    return [node, k + 1];
  }
  return null;
}

function heading(lines, i) {
  const found = kHeading.exec(lines[i]);
  return found && [element("h" + Math.min(6, found[1].length + 2), found[2].trim().replace(/(?:^|\s)#+$/, "").trimEnd()), i + 1];
}

function rule(lines, i) {
  return isRule(lines[i]) ? [element("hr"), i + 1] : null;
}

function quote(lines, i, canCopy, depth) {
  if (depth >= kMaxDepth || !kQuote.test(lines[i])) return null;
  const inner = [];
  for (; i < lines.length && kQuote.test(lines[i]); ++i) inner.push(lines[i].replace(/^\s*> ?/, ""));
  const node = element("blockquote");
  node.append(...blocks(inner, canCopy, depth + 1));
  return [directed(node), i];
}

function boxNode(isDone) {
  const node = document.createElement("input");
  node.setAttribute("type", "checkbox");
  node.setAttribute("disabled", "");
  node.setAttribute("aria-label", isDone ? "done" : "to do");
  if (isDone) node.setAttribute("checked", "");
  return node;
}

function list(lines, i, canCopy, depth) {
  const first = kItem.exec(lines[i]);
  if (depth >= kMaxDepth || !first) return null;
  const ordered = first[2] !== undefined;
  const edge = first[1].length;
  const node = element(ordered ? "ol" : "ul");
  if (ordered && first[2] !== "1") node.start = Number(first[2]);
  while (i < lines.length) {
    const item = kItem.exec(lines[i]);
    if (!item || (item[2] !== undefined) !== ordered || item[1].length > edge + 1 || isRule(lines[i])) break;
    const said = (item[3] ?? "").trimStart(), task = kTask.exec(said);
    const inner = [task ? said.slice(task[0].length) : said];
    let blank = false;
    for (++i; i < lines.length; ++i) {
      const line = lines[i];
      const goesOn = !blank && !interrupts(line) && !kItem.test(line);
      if (line.trim() !== "" && indent(line) < edge + 2 && !goesOn) break;
      blank = line.trim() === "";
      inner.push(line.slice(Math.min(indent(line), edge + (ordered ? 3 : 2))));
    }
    const entry = element("li");
    const parts = blocks(inner, canCopy, depth + 1);
    if (parts[0]?.localName === "p") parts.splice(0, 1, ...parts[0].childNodes);
    if (task) entry.className = "task";
    entry.append(...(task ? [boxNode(task[1] !== " ")] : []), ...parts);
    node.append(entry);
  }
  return [directed(node), i];
}

// A bar after a backslash is the cell's own.
function cells(line) {
  const text = line.trim().replace(/^\|/, "");
  const parts = [""];
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\" && text[i + 1] === "|") parts[parts.length - 1] += text[++i];
    else if (text[i] === "|") parts.push("");
    else parts[parts.length - 1] += text[i];
  }
  if (parts.length > 1 && parts.at(-1).trim() === "") parts.pop();
  return parts.map((cell) => cell.trim());
}

function table(lines, i) {
  if (!lines[i].includes("|") || !(lines[i + 1] ?? "").includes("-")) return null;
  const marks = cells(lines[i + 1]);
  const heads = cells(lines[i]);
  if (marks.length !== heads.length || marks.length > kMaxColumns) return null;
  if (!marks.every((mark) => /^:?-+:?$/.test(mark))) return null;
  const row = (line, name) => {
    const node = element("tr");
    cells(line).slice(0, marks.length).forEach((given, k) => {
      const cell = element(name, given);
      const side = marks[k].endsWith(":") ? [marks[k].startsWith(":") ? "middle" : "right"] : [];
      if (given.length > kLongCell) side.push("long");
      if (side.length > 0) cell.className = side.join(" ");
      node.append(cell);
    });
    return node;
  };
  const node = element("div");
  node.className = "wide";
  node.tabIndex = 0;
  const grid = element("table");
  grid.append(row(lines[i], "th"));
  for (i += 2; i < lines.length && lines[i].includes("|"); ++i) grid.append(row(lines[i], "td"));
  node.append(grid);
  return [directed(node), i];
}

function paragraph(lines, i) {
  const inner = [lines[i].trim()];
  for (++i; i < lines.length && lines[i].trim() !== "" && !interrupts(lines[i]); ++i) {
    if (kUnderlined.test(lines[i])) return [element("h3", inner.join("\n")), i + 1];
    inner.push(lines[i].trim());
  }
  return [element("p", inner.join("\n")), i];
}

// Its text stands where it was written, after its small figure.
function note(lines, i) {
  const found = kNote.exec(lines[i]);
  if (!found) return null;
  const [node, next] = paragraph([found[2], ...lines.slice(i + 1, i + 20)], 0);
  const figure = document.createElement("sup");
  figure.className = "figure";
  figure.textContent = found[1];
  node.className = "note";
  node.prepend(figure, " ");
  return [node, i + next];
}

function blocks(lines, canCopy, depth) {
  const nodes = [];
  for (let i = 0; i < lines.length;) {
    if (lines[i].trim() === "" || (depth === 0 && isUsedLink(lines[i]))) {
      ++i;
      continue;
    }
    const [node, next] = code(lines, i, canCopy) ?? heading(lines, i) ?? rule(lines, i) ??
      quote(lines, i, canCopy, depth) ?? list(lines, i, canCopy, depth) ?? table(lines, i) ?? math(lines, i) ?? note(lines, i) ??
      indented(lines, i, canCopy) ?? paragraph(lines, i);
    nodes.push(node);
    i = next;
  }
  return nodes;
}

// Makes `old` equal to `fresh` and touches no more than differs, so that a selection and a scrolled code block survive
// while an answer grows.
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) {
    if (fresh.data.startsWith(old.data)) old.appendData(fresh.data.slice(old.data.length));
    else old.data = fresh.data;
  } else if (old.nodeType !== fresh.nodeType || !old.cloneNode(false).isEqualNode(fresh.cloneNode(false))) {
    old.replaceWith(fresh);
  } else {
    morphChildren(old, [...fresh.childNodes]);
  }
}

function morphChildren(parent, fresh) {
  fresh.forEach((node, i) => {
    if (i < parent.childNodes.length) morph(parent.childNodes[i], node);
    else parent.append(node);
  });
  while (parent.childNodes.length > fresh.length) parent.lastChild.remove();
}

// A line that names the target of links which stand elsewhere is not shown.
function isUsedLink(line) {
  const found = kLink.exec(line);
  return found !== null && targetOf(found[1]) !== undefined;
}

// Labels that stand in brackets more than once.
function repeated(source) {
  const once = new Set(), more = new Set();
  for (const [, label] of source.matchAll(/\[([^[\]\n]{1,100})\]/g)) (once.has(labelOf(label)) ? more : once).add(labelOf(label));
  return more;
}

// Definitions anywhere outside of code hold for the whole.
function definitions(lines, source) {
  const notes = new Set(), links = new Map();
  let fence = null;
  for (const line of lines) {
    const mark = kFence.exec(line)?.[1];
    if (fence === null && mark) fence = mark;
    else if (fence !== null && line.trim().length >= fence.length && line.trim().replaceAll(fence[0], "") === "") fence = null;
    if (fence !== null || !/^ {0,3}\[/.test(line)) continue;
    const label = kNote.exec(line)?.[1];
    if (label) notes.add(label);
    const link = kLink.exec(line);
    if (link && !links.has(labelOf(link[1]))) links.set(labelOf(link[1]), link[2]);
  }
  const elsewhere = links.size > 0 ? repeated(source) : links;
  for (const label of [...links.keys()]) if (!elsewhere.has(label)) links.delete(label);
  return { notes, links };
}

function isJsonWhole(source) {
  const text = source.trim();
  if (!/^[{[]/.test(text) || !/[}\]]$/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

// isJson: it is meant to be, though it may still grow.
export function render(parent, source, canCopy = false, isJson = false) {
  if ((isJson && source.trim() !== "") || isJsonWhole(source)) {
    const node = codeNode(source.trim(), "json", canCopy);
    node.className = "code folds";
    return morphChildren(parent, [node]);
  }
  const lines = source.split(/\r\n?|\n/);
  setDefined(definitions(lines, source));
  morphChildren(parent, blocks(lines, canCopy, 0));
}

// A question stands as it was typed, but for its code.
export function renderQuestion(parent, source, canCopy = false) {
  const lines = source.split(/\r\n?|\n/);
  let plain = [];
  const put = () => {
    if (plain.length > 0) withCode(parent, plain.join("\n"));
    plain = [];
  };
  for (let i = 0; i < lines.length;) {
    const found = code(lines, i, canCopy);
    if (!found) {
      plain.push(lines[i++]);
      continue;
    }
    put();
    parent.append(found[0]);
    i = found[1];
  }
  put();
}

function withCode(parent, text) {
  let from = 0;
  for (const found of text.matchAll(/(?<!`)`(?!`)([^`\n]{1,2000})`(?!`)/g)) {
    const node = document.createElement("code");
    node.textContent = found[1];
    parent.append(text.slice(from, found.index), node);
    from = found.index + found[0].length;
  }
  if (from < text.length) parent.append(text.slice(from));
}
