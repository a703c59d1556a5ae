// Character references of HTML, as text: "&amp;" is "&". The names of HTML 4 and a few more that models write; one that is not
// known stays as it is written.

// From U+00A0 on, in order.
const kLatin = ("nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro para " +
  "middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml " +
  "Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave " +
  "aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde " +
  "ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml").split(" ");
const kOthers = "amp:& lt:< gt:> quot:\" apos:' AMP:& LT:< GT:> QUOT:\" OElig:Œ oelig:œ Scaron:Š scaron:š Yuml:Ÿ fnof:ƒ circ:ˆ tilde:˜ " +
  "Alpha:Α Beta:Β Gamma:Γ Delta:Δ Epsilon:Ε Zeta:Ζ Eta:Η Theta:Θ Iota:Ι Kappa:Κ Lambda:Λ Mu:Μ Nu:Ν Xi:Ξ Omicron:Ο Pi:Π Rho:Ρ Sigma:Σ " +
  "Tau:Τ Upsilon:Υ Phi:Φ Chi:Χ Psi:Ψ Omega:Ω alpha:α beta:β gamma:γ delta:δ epsilon:ε zeta:ζ eta:η theta:θ iota:ι kappa:κ lambda:λ mu:μ " +
  "nu:ν xi:ξ omicron:ο pi:π rho:ρ sigmaf:ς sigma:σ tau:τ upsilon:υ phi:φ chi:χ psi:ψ omega:ω thetasym:ϑ upsih:ϒ piv:ϖ " +
  "ndash:– mdash:— horbar:― lsquo:‘ rsquo:’ sbquo:‚ ldquo:“ rdquo:” bdquo:„ dagger:† Dagger:‡ bull:• hellip:… permil:‰ prime:′ Prime:″ " +
  "lsaquo:‹ rsaquo:› oline:‾ frasl:⁄ euro:€ image:ℑ weierp:℘ real:ℜ trade:™ alefsym:ℵ larr:← uarr:↑ rarr:→ darr:↓ harr:↔ crarr:↵ lArr:⇐ " +
  "uArr:⇑ rArr:⇒ dArr:⇓ hArr:⇔ forall:∀ part:∂ exist:∃ empty:∅ nabla:∇ isin:∈ notin:∉ ni:∋ prod:∏ sum:∑ minus:− lowast:∗ radic:√ prop:∝ " +
  "infin:∞ ang:∠ and:∧ or:∨ cap:∩ cup:∪ int:∫ there4:∴ sim:∼ cong:≅ asymp:≈ ne:≠ equiv:≡ le:≤ ge:≥ sub:⊂ sup:⊃ nsub:⊄ sube:⊆ supe:⊇ " +
  "oplus:⊕ otimes:⊗ perp:⊥ sdot:⋅ lceil:⌈ rceil:⌉ lfloor:⌊ rfloor:⌋ lang:⟨ rang:⟩ loz:◊ spades:♠ clubs:♣ hearts:♥ diams:♦ check:✓ " +
  "cross:✗ star:☆ phone:☎ female:♀ male:♂ num:# dollar:$ percnt:% lpar:( rpar:) ast:* plus:+ comma:, period:. sol:/ colon:: semi:; " +
  "equals:= quest:? commat:@ lsqb:[ lbrack:[ bsol:\\ rsqb:] rbrack:] Hat:^ lowbar:_ grave:` lcub:{ lbrace:{ verbar:| vert:| rcub:} rbrace:} " +
  "excl:! hyphen:‐ dash:‐ numsp:\u2007 Tab:\t NewLine:\n";
const kNames = new Map([
  ...kLatin.map((name, i) => [name, String.fromCodePoint(0xa0 + i)]),
  ...kOthers.split(/ (?=\S)/).map((pair) => [pair.slice(0, pair.indexOf(":")), pair.slice(pair.indexOf(":") + 1)]),
  ["ensp", "\u2002"], ["emsp", "\u2003"], ["thinsp", "\u2009"], ["zwnj", "\u200c"], ["zwj", "\u200d"], ["lrm", "\u200e"], ["rlm", "\u200f"],
]);
const kReference = /&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([A-Za-z][A-Za-z\d]{1,15}));/y;

// What stands at `i` of the text: [the characters, the place after it], or null.
export function characterAt(text, i) {
  kReference.lastIndex = i;
  const found = kReference.exec(text);
  if (!found) return null;
  const [, decimal, hex, name] = found;
  if (name) return kNames.has(name) ? [kNames.get(name), kReference.lastIndex] : null;
  const code = decimal ? Number(decimal) : Number.parseInt(hex, 16);
  const isOne = code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return [isOne ? String.fromCodePoint(code) : "\ufffd", kReference.lastIndex];
}
