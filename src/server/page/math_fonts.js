// What the browser's fonts can draw of formulas, each measured once. Without a font of mathematics a root's sign stays small or
// is not there at all, brackets do not grow, and letters of other alphabets are empty boxes; math.js draws those in other ways then.

const kSpace = "http://www.w3.org/1998/Math/MathML";
const kSize = 20, kTall = 8;  // pixels, and how many times as high as a letter

// Whether an operator grows with what stands beside it.
function grows(sign) {
  const [math, row, operator, tall] = ["math", "mrow", "mo", "mspace"].map((name) => document.createElementNS(kSpace, name));
  operator.setAttribute("stretchy", "true");
  operator.append(sign);
  tall.setAttribute("height", `${kTall}em`);
  tall.setAttribute("width", "1em");
  row.append(operator, tall);
  math.append(row);
  const box = document.createElement("div");
  box.className = "unseen";
  box.style.fontSize = `${kSize}px`;
  box.append(math);
  document.body.append(box);
  const { height } = operator.getBoundingClientRect();
  box.remove();
  return height > kSize * kTall / 3;
}

// Whether a letter looks like one: not like a character that no font has.
function isDrawn(letter) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 2 * kSize;
  const ink = canvas.getContext("2d", { willReadFrequently: true });
  if (!ink) return false;
  ink.font = `${kSize}px "STIX Two Math", "Cambria Math", "Latin Modern Math", "DejaVu Math TeX Gyre", serif`;
  ink.textBaseline = "top";
  const picture = (text) => {
    ink.clearRect(0, 0, canvas.width, canvas.height);
    ink.fillText(text, 4, 4);
    return ink.getImageData(0, 0, canvas.width, canvas.height).data.join();
  };
  return picture(letter) !== picture("\u{1fbfe}");  // not assigned
}

const known = new Map();
function once(key, measure) {
  if (!known.has(key)) known.set(key, measure());
  return known.get(key);
}

export const rootsGrow = () => once("√", () => grows("√"));
export const bracketsGrow = () => once("(", () => grows("("));
export const hasLetter = (letter) => once(letter, () => isDrawn(letter));
