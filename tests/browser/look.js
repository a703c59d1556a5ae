// The problems of what the page shows now, as sentences: contrast, overlaps, sizes, what is cut off or scrolls sideways.
((phone) => {
  const problems = new Set();
  const say = (text) => problems.add(text);
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const style = (n, pseudo) => getComputedStyle(n, pseudo);
  function seen(n) {
    return n.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !n.closest(".unseen") &&
      n.getClientRects().length > 0;
  }
  function name(n) {
    if (n.id) return "#" + n.id;
    return `${n.localName}.${n.className?.baseVal ?? n.className} "${(n.textContent ?? "").trim().slice(0, 30)}"`;
  }

  // ---- contrast, as WCAG computes it
  function parse(text) {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  }
  const over = (top, low) => [0, 1, 2].map((i) => top[i] * top[3] + low[i] * (1 - top[3])).concat(1);
  function luminance(color) {
    const [r, g, b] = color.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(a, b) {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  }
  function following(n) {
    const layers = [];
    for (; n; n = n.parentElement) layers.push(parse(style(n).backgroundColor));
    return layers.reverse().reduce((low, top) => over(top, low), [255, 255, 255, 1]);
  }
  function demand(what, color, on, least) {
    const back = following(on), ratio = contrast(over(parse(color), back), back);
    if (ratio < least) say(`${what}: contrast ${ratio.toFixed(2)}`);
  }

  // ---- texts
  const texts = [];
  for (let walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), t; (t = walk.nextNode());) {
    if (t.data.trim() !== "" && seen(t.parentElement) && !t.parentElement.closest("svg")) texts.push(t);
  }
  if (texts.length < 5) say(`only ${texts.length} texts were seen`);
  for (const { parentElement: n } of texts) demand(name(n), style(n).color, n, 4.5);
  for (const n of all("input:not([type=checkbox]), textarea, select")) {
    if (n.placeholder) demand(name(n) + " placeholder", style(n, "::placeholder").color, n, 4.5);
    demand(name(n) + " value", style(n).color, n, 4.5);
    const box = n.closest("#ask") ?? n;
    demand(name(box) + " edge", style(box).borderTopColor, box.parentElement, 3);
    if (phone && parseFloat(style(n).fontSize) < 16) say(`${name(n)} makes a phone zoom`);
  }
  for (const n of all(".keys i:not(.free), #blocks i:not(.free)")) {
    demand(name(n), style(n).backgroundColor, n.parentElement, 3);
  }
  for (const n of all("svg rect")) demand(name(n), style(n).fill, n.closest(".chart"), 3);

  // ---- places; what scrolls within a box is seen as far as the box
  function clip(n) {
    let { left, top, right, bottom } = n.getBoundingClientRect();
    for (let p = n.parentElement; p; p = p.parentElement) {
      if (style(p).overflowY === "visible") continue;
      const box = p.getBoundingClientRect();
      left = Math.max(left, box.left);
      top = Math.max(top, box.top);
      right = Math.min(right, box.right);
      bottom = Math.min(bottom, box.bottom);
    }
    return { n, left, top, right, bottom };
  }
  const isPlace = (a) => a.right - a.left > 1 && a.bottom - a.top > 1;
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const floats = (n) => n?.closest("#latest");  // it lies above the messages, and is meant to
  const controls = all("button, input:not([type=checkbox]), textarea, select, a");
  const boxes = controls.map(clip).filter(isPlace);
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (meet(a, b) && !floats(a.n) && !floats(b.n)) say(`${name(a.n)} and ${name(b.n)} overlap`);
  }));
  for (const { left, top, right, bottom, n } of boxes) {
    const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    if (!n.contains(hit) && !floats(hit)) say(`${name(n)} lies below ${hit ? name(hit) : "nothing"}`);
  }
  const lines = texts.filter((t) => !floats(t.parentElement)).flatMap((t) => {
    const range = document.createRange(), box = clip(t.parentElement);
    range.selectNodeContents(t);
    return [...range.getClientRects()].map((r) => ({
      t, n: t.parentElement, left: Math.max(r.left, box.left), right: Math.min(r.right, box.right),
      top: Math.max(r.top, box.top) + 3, bottom: Math.min(r.bottom, box.bottom) - 3,
    }));
  }).filter(isPlace);
  lines.forEach((a, i) => lines.slice(i + 1).forEach((b) => {
    if (a.t !== b.t && meet(a, b)) say(`the texts ${name(a.n)} and ${name(b.n)} overlap`);
  }));

  // ---- sizes
  const least = phone ? 44 : 32;
  for (const n of controls) {
    const { width, height } = n.getBoundingClientRect();
    if (n.localName !== "a" && Math.min(width, height) < least)
      say(`${name(n)} is ${width} x ${height}, less than ${least}`);
    if (!n.matches("#history .open, input, textarea, select") && n.scrollWidth > n.clientWidth + 1)
      say(`${name(n)} does not show all of its text`);
  }
  for (const n of all("label, dt, dd, h1, h2, h3, th, td, p, summary")) {
    if (n.scrollWidth > n.clientWidth + 1 && !n.closest(".wide")) say(`${name(n)} is wider than its box`);
  }
  const { scrollWidth, scrollHeight } = document.scrollingElement;
  if (scrollWidth > innerWidth) say(`the page is ${scrollWidth} wide`);
  if (scrollHeight > innerHeight) say(`the page is ${scrollHeight} high`);
  for (const n of all("#scroll, #view-engine, #side, #history, #settings")) {
    if (n.scrollWidth > n.clientWidth) say(`${name(n)} scrolls sideways`);
  }
  return [...problems];
})
