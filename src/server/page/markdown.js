// A safe subset of Markdown as DOM nodes: text never becomes HTML, nothing is fetched, and every pass is linear in the
// text whatever the model writes. Headings, paragraphs, lists, quotes, rules, tables, fenced code.
import { highlight } from "./highlight.js";
import { inline } from "./markdown_inline.js";
import { formula } from "./math.js";

const kMaxDepth = 6;     // of lists and quotes in each other; deeper ones are text
const kMaxColumns = 32;  // of a table
const kMaxFormula = 60;  // lines
const kFence = /^\s*(`{3,}|~{3,})([^`]*)$/;
const kHeading = /^\s*(#{1,6})\s+([^]*)$/;
const kItem = /^(\s*)(?:[-*+]|(\d{1,9})[.)])(?:\s([^]*))?$/;
const kQuote = /^\s*>/;

function element(name, text) {
  const node = document.createElement(name);
  if (text !== undefined) inline(node, text);
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
  return kFence.test(line) || kHeading.test(line) || kQuote.test(line) || isRule(line);
}

// Each of these reads from line i: [node, the line behind it], or null where there is no such block.
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
  const node = element("div");
  node.className = "code";
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.append(element("span"));
  bar.firstChild.textContent = open[2].trim().split(/\s/)[0].slice(0, 20) || "text";
  if (canCopy) {
    const copy = document.createElement("button");
    copy.className = "small copy-code";
    copy.textContent = "Copy";
    bar.append(copy);
  }
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  pre.append(document.createElement("code"));
  highlight(pre.firstChild, body.join("\n"), bar.firstChild.textContent);
  node.append(bar, pre);
  return [node, i + 1];
}

// A formula of its own lines: $$ or \[ to its end. What is not read as one stays text.
function math(lines, i) {
  const first = lines[i].trim();
  const close = first.startsWith("$$") ? "$$" : first.startsWith("\\[") ? "\\]" : null;
  if (!close) return null;
  const inner = [];
  for (let k = i; k < Math.min(lines.length, i + kMaxFormula); ++k) {
    const line = k === i ? first.slice(2) : lines[k];
    if (line.trim() === "" && k > i) return null;
    const whole = line.trimEnd().endsWith(close);
    inner.push(whole ? line.trimEnd().slice(0, -2) : line);
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
  return found && [element("h" + Math.min(6, found[1].length + 2), found[2].trim()), i + 1];
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
  return [node, i];
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
    const inner = [(item[3] ?? "").trimStart()];
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
    entry.append(...parts);
    node.append(entry);
  }
  return [node, i];
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());

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
      if (marks[k].endsWith(":")) cell.className = marks[k].startsWith(":") ? "middle" : "right";
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
  return [node, i];
}

function paragraph(lines, i) {
  const inner = [lines[i].trim()];
  for (++i; i < lines.length && lines[i].trim() !== "" && !interrupts(lines[i]); ++i) inner.push(lines[i].trim());
  return [element("p", inner.join("\n")), i];
}

function blocks(lines, canCopy, depth) {
  const nodes = [];
  for (let i = 0; i < lines.length;) {
    if (lines[i].trim() === "") {
      ++i;
      continue;
    }
    const [node, next] = code(lines, i, canCopy) ?? heading(lines, i) ?? rule(lines, i) ??
      quote(lines, i, canCopy, depth) ?? list(lines, i, canCopy, depth) ?? table(lines, i) ?? math(lines, i) ??
      paragraph(lines, i);
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

export function render(parent, source, canCopy = false) {
  morphChildren(parent, blocks(source.split(/\r\n?|\n/), canCopy, 0));
}
