// A safe subset of Markdown, built as DOM nodes: text never becomes HTML. Headings, paragraphs, lists, quotes, rules, tables,
// fenced code; bold, italic, code, and http(s) links.

const inlinePattern = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*([^\s*](?:[\s\S]*?[^\s*])?)\*\*|\*([^\s*](?:[^*]*?[^\s*])?)\*|\[([^\]]{1,500})\]\((https?:\/\/[^\s()<>"]{1,2000})\)/;

function inline(parent, text, depth = 0) {
  while (text.length > 0) {
    const match = depth < 4 ? inlinePattern.exec(text) : null;
    if (!match) break;
    parent.append(text.slice(0, match.index));
    let node;
    if (match[1]) {
      node = document.createElement("code");
      node.textContent = match[2].trim();
    } else if (match[3] !== undefined || match[4] !== undefined) {
      node = document.createElement(match[3] !== undefined ? "strong" : "em");
      inline(node, match[3] ?? match[4], depth + 1);
    } else {
      node = document.createElement("a");
      node.href = match[6];
      node.rel = "noopener noreferrer nofollow";
      node.target = "_blank";
      inline(node, match[5], depth + 1);
    }
    parent.append(node);
    text = text.slice(match.index + match[0].length);
  }
  parent.append(text);
}

function element(name, text) {
  const node = document.createElement(name);
  if (text !== undefined) inline(node, text);
  return node;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim());

export function render(parent, source) {
  parent.replaceChildren();
  const lines = source.split("\n");
  let i = 0;
  const special = /^(#{1,6} |\s*[-*+] |\s*\d{1,9}[.)] |> ?|```|~~~|\s*([-*_])(\s*\2){2,}\s*$)/;
  while (i < lines.length) {
    const line = lines[i];
    if (line.trim() === "") { ++i; continue; }
    const fence = /^\s*(```+|~~~+)\s*([\w+-]*)/.exec(line);
    if (fence) {
      const body = [];
      for (++i; i < lines.length && !lines[i].trim().startsWith(fence[1]); ++i) body.push(lines[i]);
      ++i;
      const pre = document.createElement("pre");
      const code = document.createElement("code");
      code.textContent = body.join("\n");
      pre.append(code);
      parent.append(pre);
      continue;
    }
    const heading = /^(#{1,6}) (.*)$/.exec(line);
    if (heading) {
      parent.append(element("h" + Math.min(6, heading[1].length + 2), heading[2]));
      ++i;
      continue;
    }
    if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) { parent.append(element("hr")); ++i; continue; }
    if (line.startsWith(">")) {
      const quote = [];
      for (; i < lines.length && lines[i].startsWith(">"); ++i) quote.push(lines[i].replace(/^> ?/, ""));
      parent.append(element("blockquote", quote.join("\n")));
      continue;
    }
    const item = /^\s*(?:[-*+]|(\d{1,9})[.)]) (.*)$/.exec(line);
    if (item) {
      const ordered = item[1] !== undefined;
      const list = element(ordered ? "ol" : "ul");
      if (ordered) list.start = Number(item[1]);
      const pattern = ordered ? /^\s*\d{1,9}[.)] (.*)$/ : /^\s*[-*+] (.*)$/;
      while (i < lines.length) {
        const next = pattern.exec(lines[i]);
        if (!next) break;
        let text = next[1];
        for (++i; i < lines.length && /^\s+\S/.test(lines[i]) && !special.test(lines[i]); ++i) text += " " + lines[i].trim();
        list.append(element("li", text));
      }
      parent.append(list);
      continue;
    }
    if (line.includes("|") && i + 1 < lines.length && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[i + 1])) {
      const table = element("table");
      const head = element("tr");
      for (const cell of cells(line)) head.append(element("th", cell));
      table.append(head);
      for (i += 2; i < lines.length && lines[i].includes("|"); ++i) {
        const row = element("tr");
        for (const cell of cells(lines[i])) row.append(element("td", cell));
        table.append(row);
      }
      parent.append(table);
      continue;
    }
    const paragraph = [line];
    for (++i; i < lines.length && lines[i].trim() !== "" && !special.test(lines[i]); ++i) paragraph.push(lines[i]);
    parent.append(element("p", paragraph.join("\n")));
  }
}
