// Text files and pictures that go with a question: chosen, dropped, or pasted; a long paste is a file too.
import { readsPictures } from "./models.js";
import { pictureKind, pictureNode, readPicture } from "./pictures.js";

const $ = (id) => document.getElementById(id);
const kMostBytes = 1 << 20;     // of a text file
const kMostPictures = 5 << 20;  // of a question's pictures; as base64 they fit into a request's body
const kLongPaste = 3000;        // characters
const kLongLines = 40;
let files = [];  // { name, text }, and pictures: { name, url }

const size = (text) => text.length < 1000 ? `${text.length} characters` : `${Math.round(text.length / 1000)}k characters`;
const make = (name, className, text = "") => Object.assign(document.createElement(name), { className, textContent: text });

// The question as the model reads it: pictures, files, and the reader's words.
export function withFiles({ content, files: given, pictures }) {
  const text = (given?.length ? fenced(given) : "") + content;
  if (!pictures?.length) return text;
  const parts = pictures.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

function fenced(given) {
  return given.map(({ name, text }) => {
    let fence = "```";
    while (text.includes(fence)) fence += "`";
    return `${name}:\n${fence}\n${text}\n${fence}\n\n`;
  }).join("");
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
    if (file.url) node.append(pictureNode(file), make("span", "", file.name), drop);
    else node.append(make("span", "", `${file.name} · ${size(file.text)}`), drop);
    return node;
  }));
}

function add(file) {
  files.push(file);
  draw();
}

async function takePicture(file, bytes, kind, say) {
  if (!readsPictures()) return say(`${file.name} is a picture. This model reads no pictures.`);
  let picture = null;
  try {
    picture = await readPicture(file.name, bytes, kind);
  } catch {
    return say(`${file.name} cannot be read as a picture.`);
  }
  const n_bytes = files.reduce((n, { url }) => n + (url?.length ?? 0), picture.url.length) * 3 / 4;
  if (n_bytes > kMostPictures) return say(`${file.name} is too large: the pictures of a question have at most 5 MiB.`);
  add(picture);
}

async function take(list, say) {
  for (const file of list) {
    try {
      const kind = pictureKind(new Uint8Array(await file.slice(0, 16).arrayBuffer()));
      const most = kind ? kMostPictures : kMostBytes;
      if (file.size > most) {
        say(`${file.name} is larger than ${most >> 20} MiB.`);
        continue;
      }
      const bytes = new Uint8Array(await file.arrayBuffer());
      if (kind) {
        await takePicture(file, bytes, kind, say);
        continue;
      }
      const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
      if (text.includes("\0")) throw new TypeError();
      add({ name: file.name, text });
    } catch {
      say(`${file.name} is neither text nor a picture (PNG, JPEG, WebP), and cannot be read.`);
    }
  }
}

// What is attached, and nothing is any more: { files, pictures }, each only where there are any.
export function takeFiles() {
  const texts = files.filter(({ url }) => !url), pictures = files.filter(({ url }) => url);
  files = [];
  draw();
  return { ...(texts.length > 0 && { files: texts }), ...(pictures.length > 0 && { pictures }) };
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
    if (text) add({ name: "Pasted text", text });
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
