// What stands in an answer and may not: all but these elements with these attributes, and targets but http and https.
((root) => {
  const kAllowed = {
    P: ["class"], UL: ["dir"], OL: ["start", "dir"], LI: ["class"], STRONG: [], EM: [], DEL: [], CODE: [], PRE: ["tabindex"],
    BLOCKQUOTE: ["dir"], SUP: ["class"], SUB: [], KBD: [], BR: [], INPUT: ["type", "disabled", "aria-label", "checked"],
    A: ["href", "title", "rel", "target"], H3: [], H4: [], H5: [], H6: [], HR: [], TABLE: [], TR: [],
    math: ["display", "alttext"], mrow: ["class"], mi: ["class"], mn: [], mo: ["stretchy", "movablelimits"], mtext: [], mspace: ["width"],
    mfrac: ["linethickness"], msqrt: [], mroot: [], msub: [], msup: [], msubsup: [], munder: [], mover: ["accent"], munderover: [],
    mtable: [], mtr: [], mtd: ["class"],
    TH: ["class"], TD: ["class"], DIV: ["class", "tabindex", "dir"], SPAN: ["class"], BUTTON: ["class"],
  };
  const kMaxDepth = 60;
  const bad = [];
  for (const node of root.querySelectorAll("*")) {
    const attributes = kAllowed[node.nodeName];
    if (!attributes) bad.push(node.nodeName);
    for (const { name } of node.attributes) if (!attributes?.includes(name)) bad.push(`${node.nodeName} ${name}`);
    if (node.nodeName === "A") {
      if (!/^https?:\/\/\S+$/.test(node.getAttribute("href"))) bad.push(`target ${node.getAttribute("href")}`);
      if (!node.relList.contains("noopener") || !node.relList.contains("noreferrer")) bad.push(`rel ${node.rel}`);
    }
    if (node.nodeName === "INPUT" && (node.type !== "checkbox" || !node.disabled)) bad.push("a field");
    let depth = 0;
    for (let n = node; n !== root; n = n.parentNode) ++depth;
    if (depth > kMaxDepth) bad.push(`depth ${depth}`);
  }
  return bad;
})
