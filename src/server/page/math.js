// Formulas: a subset of TeX as MathML, node by node. What is not read is null, and stays text. Linear in the text, which is
// bounded, and so is the depth.
import { bracketsGrow, hasLetter, rootsGrow } from "./math_fonts.js";

const kMost = 4000;     // characters
const kMaxDepth = 24;
const kSpace = "http://www.w3.org/1998/Math/MathML";
const pairs = (text) => text.split(" ").map((pair) => [pair.slice(0, pair.indexOf(":")), pair.slice(pair.indexOf(":") + 1)]);
const kLetters = new Map(pairs("alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ " +
  "lambda:λ mu:μ nu:ν xi:ξ pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ " +
  "Delta:Δ Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ ell:ℓ hbar:ℏ Re:ℜ Im:ℑ aleph:ℵ " +
  "emptyset:∅ varnothing:∅ imath:ı jmath:ȷ ldots:… dots:… cdots:⋯ vdots:⋮ ddots:⋱ prime:′ angle:∠ degree:° top:⊤ bot:⊥ hslash:ℏ"));
const kOperators = new Map(pairs("times:× cdot:⋅ div:÷ pm:± mp:∓ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ otimes:⊗ odot:⊙ le:≤ leq:≤ ge:≥ geq:≥ " +
  "leqslant:⩽ geqslant:⩾ ll:≪ gg:≫ ne:≠ neq:≠ approx:≈ equiv:≡ sim:∼ simeq:≃ cong:≅ propto:∝ in:∈ notin:∉ ni:∋ subset:⊂ subseteq:⊆ " +
  "supset:⊃ supseteq:⊇ cup:∪ cap:∩ setminus:∖ land:∧ wedge:∧ lor:∨ vee:∨ neg:¬ lnot:¬ forall:∀ exists:∃ to:→ rightarrow:→ " +
  "leftarrow:← gets:← leftrightarrow:↔ Rightarrow:⇒ Leftarrow:⇐ Leftrightarrow:⇔ implies:⟹ iff:⟺ mapsto:↦ longrightarrow:⟶ " +
  "uparrow:↑ downarrow:↓ mid:∣ parallel:∥ perp:⊥ langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ vert:| Vert:‖ lvert:| rvert:| " +
  "lVert:‖ rVert:‖ therefore:∴ because:∵ models:⊨ vdash:⊢ colon:: {:{ }:} |:‖ %:% $:$ &:& #:# _:_"));
const kBig = new Map(pairs("sum:∑ prod:∏ coprod:∐ int:∫ iint:∬ iiint:∭ oint:∮ bigcup:⋃ bigcap:⋂ bigoplus:⨁ bigotimes:⨂ bigvee:⋁ bigwedge:⋀"));
const kNames = new Set(("arccos arcsin arctan arg argmax argmin cos cosh cot csc deg det dim exp gcd hom inf ker lg lim liminf limsup " +
  "ln log max min mod Pr sec sin sinh sup tan tanh").split(" "));
const kBelow = new Set("argmax argmin det gcd inf lim liminf limsup max min Pr sup".split(" "));  // bounds stand below these
const kAccents = new Map(pairs("hat:^ widehat:^ bar:¯ vec:→ dot:˙ ddot:¨ tilde:~ widetilde:~ overrightarrow:→"));
const kFonts = new Map([["mathbf", [0x1d400, 0x1d41a]], ["boldsymbol", [0x1d400, 0x1d41a]], ["bm", [0x1d400, 0x1d41a]],
  ["mathcal", [0x1d4d0, 0x1d4ea]], ["mathscr", [0x1d4d0, 0x1d4ea]], ["mathfrak", [0x1d56c, 0x1d586]], ["mathsf", [0x1d5a0, 0x1d5ba]],
  ["mathtt", [0x1d670, 0x1d68a]], ["mathbb", [0x1d538, 0x1d552]]]);
const kOpen = new Map(Object.entries({ C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" }));  // of mathbb, in another place
const kSpaces = new Map([[",", "0.17em"], [":", "0.22em"], [";", "0.28em"], [" ", "0.25em"], ["!", "0"], ["quad", "1em"], ["qquad", "2em"]]);
const kFences = new Map([["matrix", ["", ""]], ["pmatrix", ["(", ")"]], ["bmatrix", ["[", "]"]], ["vmatrix", ["|", "|"]],
  ["Vmatrix", ["‖", "‖"]], ["Bmatrix", ["{", "}"]], ["cases", ["{", ""]], ["aligned", ["", ""]], ["align", ["", ""]], ["align*", ["", ""]],
  ["array", ["", ""]], ["gathered", ["", ""]], ["smallmatrix", ["", ""]], ["equation", ["", ""]], ["equation*", ["", ""]],
  ["gather", ["", ""]], ["gather*", ["", ""]], ["split", ["", ""]]]);
const kTokens = /\\(?:[A-Za-z]+|[^])|\d+(?:\.\d+)?|\s+|[^]/gu;

class Unread extends Error {}

function make(name, ...children) {
  const node = document.createElementNS(kSpace, name);
  node.append(...children);
  return node;
}
const operator = (text, stretchy) => {
  const node = make("mo", text);
  if (stretchy !== undefined) node.setAttribute("stretchy", stretchy);
  return node;
};
// Brackets that CSS can draw beside what they hold; the others stand there small, with a line at their side.
const kDrawn = new Map([["(", "round"], [")", "round"], ["[", "square"], ["]", "square"], ["|", "bar"], ["‖", "double"],
  ["⌊", "floor"], ["⌋", "floor"], ["⌈", "ceiling"], ["⌉", "ceiling"]]);

// What stands between two brackets ("" where there is none) that are as high as it is.
function fenced(open, close, inner) {
  if (bracketsGrow() || !inner.some((node) => node.matches("mtable, mfrac, munderover") || node.querySelector("mtable, mfrac, munderover")))
    return make("mrow", ...(open ? [operator(open, true)] : []), ...inner, ...(close ? [operator(close, true)] : []));
  const held = make("mrow", ...inner);
  const sides = [];
  if (open) sides.push(`left-${kDrawn.get(open) ?? "bar"}`);
  if (close) sides.push(`right-${kDrawn.get(close) ?? "bar"}`);
  held.setAttribute("class", sides.join(" "));
  return make("mrow", ...(open && !kDrawn.has(open) ? [operator(open, false)] : []), held,
              ...(close && !kDrawn.has(close) ? [operator(close, false)] : []));
}

// With a line above or below all of it.
function lined(side, node) {
  const held = make("mrow", node);
  held.setAttribute("class", side);
  return held;
}

const row = (nodes) => nodes.length === 1 ? nodes[0] : make("mrow", ...nodes);

class Reader {
  #tokens;
  #at = 0;
  #depth = 0;

  constructor(text) { this.#tokens = text.match(kTokens) ?? []; }

  #skip() { while (/^\s/.test(this.#tokens[this.#at] ?? "")) ++this.#at; }
  #peek() {
    this.#skip();
    return this.#tokens[this.#at];
  }
  #take() {
    const token = this.#peek();
    if (token === undefined) throw new Unread();
    ++this.#at;
    return token;
  }
  #want(token) { if (this.#take() !== token) throw new Unread(); }

  whole() {
    const nodes = this.#until(() => false);
    if (this.#peek() !== undefined) throw new Unread();
    return nodes;
  }

  #until(ends) {
    if (++this.#depth > kMaxDepth) throw new Unread();
    const nodes = [];
    for (let token; (token = this.#peek()) !== undefined && !ends(token);) nodes.push(this.#scripted());
    --this.#depth;
    return nodes;
  }

  #scripted() {
    const token = this.#peek();
    let base = token === "^" || token === "_" ? make("mrow") : this.#atom();
    let low, high;
    for (let next; (next = this.#peek()) === "^" || next === "_" || next === "'";) {
      this.#take();
      if (next === "'") {
        high = high ? make("mrow", high, operator("′")) : operator("′");
      } else if (next === "^") {
        if (high && high.textContent[0] !== "′") throw new Unread();
        high = high ? make("mrow", high, this.#argument()) : this.#argument();
      } else {
        if (low) throw new Unread();
        low = this.#argument();
      }
    }
    const bounds = base.localName === "mo" && base.hasAttribute("movablelimits");
    const names = bounds ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (low && high) return make(names[2], base, low, high);
    if (low || high) return make(names[low ? 0 : 1], base, low ?? high);
    return base;
  }

  #argument() {
    if (++this.#depth > kMaxDepth) throw new Unread();
    const node = this.#peek() === "{" ? this.#group() : this.#atom();
    --this.#depth;
    return node;
  }

  #group() {
    this.#want("{");
    const nodes = this.#until((token) => token === "}");
    this.#want("}");
    return row(nodes);
  }

  // The letters between braces, as they stand.
  #words() {
    this.#want("{");
    let text = "";
    for (let depth = 1;;) {
      const token = this.#tokens[this.#at++];
      if (token === undefined) throw new Unread();
      if (token === "{") ++depth;
      if (token === "}" && --depth === 0) return text;
      text += token.replace(/^\\(?=[^A-Za-z])/, "");
    }
  }

  #fence() {
    const token = this.#take();
    if (token === ".") return "";
    return token.startsWith("\\") ? kOperators.get(token.slice(1)) ?? "" : token;
  }

  #atom() {
    const token = this.#take();
    if (token === "{") {
      --this.#at;
      return this.#group();
    }
    if (token === "}" || token === "&" || token === "^" || token === "_" || token === "\\\\") throw new Unread();
    if (token.startsWith("\\")) return this.#command(token.slice(1));
    if (/^\d/.test(token)) return make("mn", token);
    if (/^\p{L}/u.test(token)) return make("mi", token);
    return operator({ "-": "−", "*": "∗", "'": "′" }[token] ?? token, /[()[\]|/]/.test(token) ? false : undefined);
  }

  #command(name) {
    if (kLetters.has(name)) return make("mi", kLetters.get(name));
    if (kOperators.has(name)) return operator(kOperators.get(name), /[⟨⟩⌊⌋⌈⌉|‖{}]/.test(kOperators.get(name)) ? false : undefined);
    if (kBig.has(name)) return this.#big(operator(kBig.get(name)), !name.endsWith("int"));
    if (kNames.has(name)) return kBelow.has(name) ? this.#big(operator(name), true) : make("mi", name);
    if (kSpaces.has(name)) {
      const node = make("mspace");
      node.setAttribute("width", kSpaces.get(name));
      return node;
    }
    if (name === "overline") return lined("lined-above", this.#argument());
    if (kAccents.has(name)) {
      const node = make("mover", this.#argument(), operator(kAccents.get(name)));
      node.setAttribute("accent", "true");
      return node;
    }
    if (kFonts.has(name)) return this.#font(name, this.#peek() === "{" ? this.#words() : this.#take());
    switch (name) {
      case "frac": case "dfrac": case "tfrac": return make("mfrac", this.#argument(), this.#argument());
      case "binom": {
        const node = make("mfrac", this.#argument(), this.#argument());
        node.setAttribute("linethickness", "0");
        return bracketsGrow() ? make("mrow", operator("("), node, operator(")")) : fenced("(", ")", [node]);
      }
      case "sqrt": return this.#root();
      case "underline": return lined("lined-below", this.#argument());
      case "text": case "textrm": case "textbf": case "textit": case "mbox": return make("mtext", this.#words().replaceAll(" ", "\u00a0"));
      case "mathrm": case "operatorname": return make("mi", this.#peek() === "{" ? this.#words().trim() : this.#take());
      case "left": return this.#fenced();
      case "begin": return this.#table();
      case "bmod": case "pmod": return operator("mod");
      case "displaystyle": case "textstyle": case "limits": case "nolimits": case "big": case "Big": case "bigg": case "Bigg":
      case "bigl": case "bigr": case "Bigl": case "Bigr": case "nonumber": return make("mrow");
      default: throw new Unread();
    }
  }

  #big(node, moves) {
    if (moves) node.setAttribute("movablelimits", "true");
    return node;
  }

  // In another alphabet; where no font has its letters, in plain ones that CSS makes look like it.
  #font(name, text) {
    const [upper, lower] = kFonts.get(name);
    if (!hasLetter(String.fromCodePoint(upper))) {
      const node = make("mi", name === "mathbb" ? text.replace(/[A-Z]/g, (c) => kOpen.get(c) ?? c) : text);
      node.setAttribute("class", name === "boldsymbol" || name === "bm" ? "mathbf" : name);
      return node;
    }
    return make("mi", [...text].map((c) => {
      if (name === "mathbb" && kOpen.has(c)) return kOpen.get(c);
      if (c >= "A" && c <= "Z") return String.fromCodePoint(upper + c.charCodeAt(0) - 65);
      return c >= "a" && c <= "z" ? String.fromCodePoint(lower + c.charCodeAt(0) - 97) : c;
    }).join(""));
  }

  #root() {
    let index = null;
    if (this.#peek() === "[") {
      this.#take();
      index = row(this.#until((token) => token === "]"));
      this.#want("]");
    }
    const held = this.#argument();
    if (rootsGrow()) return index ? make("mroot", held, index) : make("msqrt", held);
    return make("mrow", ...(index ? [make("msup", make("mrow"), index)] : []), operator("√", false), lined("lined-above", held));
  }

  #fenced() {
    const open = this.#fence();
    const inner = this.#until((token) => token === "\\right");
    this.#want("\\right");
    return fenced(open, this.#fence(), inner);
  }

  #table() {
    const kind = this.#words();
    const fences = kFences.get(kind);
    if (!fences) throw new Unread();
    if (kind === "array") this.#words();
    const table = make("mtable", make("mtr"));
    const aligned = /^(align|split|cases)/.test(kind);
    for (;;) {
      const cell = make("mtd", ...this.#until((token) => token === "&" || token === "\\\\" || token === "\\end"));
      if (aligned) cell.setAttribute("class", kind !== "cases" && table.lastChild.childElementCount % 2 === 0 ? "right" : "left");
      table.lastChild.append(cell);
      const end = this.#take();
      if (end === "\\end") break;
      if (end === "\\\\") table.append(make("mtr"));
    }
    if (this.#words() !== kind) throw new Unread();
    const [open, close] = fences;
    return fenced(open, close, [table]);
  }
}

// A <math>, or null where this is none that is read here.
export function formula(text, display) {
  if (text.length > kMost || text.trim() === "") return null;
  try {
    const nodes = new Reader(text).whole();
    const math = make("math", make("mrow", ...nodes));
    if (display) math.setAttribute("display", "block");
    math.setAttribute("alttext", text.trim());
    return math;
  } catch (error) {
    if (error instanceof Unread) return null;
    throw error;
  }
}
