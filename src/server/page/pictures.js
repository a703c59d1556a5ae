// Pictures of a question: { name, url }, the file's own bytes as a data URL. They are drawn small on a canvas, which needs
// no address that the page's policy would have to allow.

const kKinds = [["png", /^\x89PNG\r\n\x1a\n/], ["jpeg", /^\xff\xd8\xff/], ["webp", /^RIFF[^]{4}WEBP/]];
const kSide = 224;  // pixels of a small one; CSS shows half as many
const kMostUrl = 8 << 20;
const drawn = new WeakMap();  // a small ImageBitmap of each that was shown

// "png", "jpeg", "webp", or undefined, by a file's first bytes.
export function pictureKind(bytes) {
  const head = String.fromCharCode(...bytes.subarray(0, 16));
  return kKinds.find(([, begins]) => begins.test(head))?.[0];
}

export function isPictureUrl(url) {
  return typeof url === "string" && url.length <= kMostUrl && kKinds.some(([kind]) => url.startsWith(`data:image/${kind};base64,`));
}

async function shrink(blob) {
  const whole = await createImageBitmap(blob);
  const scale = Math.min(1, kSide / Math.max(whole.width, whole.height));
  const side = (n) => Math.max(1, Math.round(n * scale));
  const small = await createImageBitmap(whole, { resizeWidth: side(whole.width), resizeHeight: side(whole.height), resizeQuality: "medium" });
  whole.close();
  return small;
}

function blobOf(url) {
  const comma = url.indexOf(",");
  return new Blob([Uint8Array.from(atob(url.slice(comma + 1)), (c) => c.charCodeAt(0))], { type: url.slice(5, url.indexOf(";")) });
}

// Throws where the browser cannot decode it.
export async function readPicture(name, bytes, kind) {
  const blob = new Blob([bytes], { type: `image/${kind}` });
  const small = await shrink(blob);
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
  const picture = { name, url };
  drawn.set(picture, small);
  return picture;
}

// A picture at a size of its own, whatever comes of it.
export function pictureNode(picture) {
  const node = document.createElement("canvas");
  node.className = "picture";
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", `Picture ${picture.name}`);
  node.title = picture.name;
  const draw = (small) => {
    node.width = small.width;
    node.height = small.height;
    node.getContext("2d").drawImage(small, 0, 0);
  };
  const known = drawn.get(picture);
  if (known) draw(known);
  else {
    (async () => shrink(blobOf(picture.url)))().then((small) => {
      drawn.set(picture, small);
      draw(small);
    }, () => { node.classList.add("unreadable"); });
  }
  return node;
}
