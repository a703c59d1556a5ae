// Text files that go with a question: chosen, dropped, or pasted; a long paste is one too.

const $ = (id) => document.getElementById(id);
const kMostBytes = 1 << 20;     // of a file
const kLongPaste = 3000;        // characters
const kLongLines = 40;
let files = [];

const size = (text) => text.length < 1000 ? `${text.length} characters` : `${Math.round(text.length / 1000)}k characters`;
const make = (name, className, text = "") => Object.assign(document.createElement(name), { className, textContent: text });

// The question as the model reads it.
export function withFiles({ content, files: given }) {
  if (!given?.length) return content;
  const parts = given.map(({ name, text }) => {
    let fence = "```";
    while (text.includes(fence)) fence += "`";
    return `${name}:\n${fence}\n${text}\n${fence}\n\n`;
  });
  return parts.join("") + content;
}

// Files of a question, folded.
export function fileNodes(given) {
  return given.map(({ name, text }) => {
    const node = make("details", "file");
    const pre = make("pre", "", text);
    pre.tabIndex = 0;
    node.append(make("summary", "", `${name} · ${size(text)}`), pre);
    return node;
  });
}

function draw() {
  $("attached").hidden = files.length === 0;
  $("attached").replaceChildren(...files.map((file) => {
    const node = make("li", "", "");
    const drop = make("button", "small", "×");
    drop.type = "button";
    drop.setAttribute("aria-label", `Leave ${file.name} out`);
    drop.onclick = () => {
      files = files.filter((other) => other !== file);
      draw();
      $("input").focus();
    };
    node.append(make("span", "", `${file.name} · ${size(file.text)}`), drop);
    return node;
  }));
}

function add(name, text) {
  files.push({ name, text });
  draw();
}

async function take(list, say) {
  for (const file of list) {
    if (file.size > kMostBytes) {
      say(`${file.name} is larger than 1 MiB.`);
      continue;
    }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError();
      add(file.name, text);
    } catch {
      say(`${file.name} is no text. Pictures and other files cannot be read.`);
    }
  }
}

// What is attached, and nothing is any more.
export function takeFiles() {
  const taken = files;
  files = [];
  draw();
  return taken;
}

// say: a sentence for the reader.
export function startAttach(say) {
  $("attach").onclick = () => $("attach-file").click();
  $("attach-file").onchange = async () => {
    await take([...$("attach-file").files], say);
    $("attach-file").value = "";
    $("input").focus();
  };
  $("input").addEventListener("paste", (event) => {
    const given = [...event.clipboardData.files];
    const text = event.clipboardData.getData("text/plain");
    const isLong = text.length > kLongPaste || text.split("\n", kLongLines + 1).length > kLongLines;
    if (text ? !isLong : given.length === 0) return;
    event.preventDefault();
    if (text) add("Pasted text", text);
    else take(given, say);
  });
  const talk = $("talk");
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  talk.addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    talk.classList.add("dropping");
  });
  talk.addEventListener("dragleave", (event) => {
    if (!talk.contains(event.relatedTarget)) talk.classList.remove("dropping");
  });
  talk.addEventListener("drop", (event) => {
    talk.classList.remove("dropping");
    if (!holdsFiles(event)) return;
    event.preventDefault();
    take([...event.dataTransfer.files], say);
  });
}
