#!/usr/bin/env python3
"""Makes tests/golden/pictures: small pictures of every kind, and what Pillow and transformers' image processors make of them.

    python3 -m venv v && v/bin/pip install -r tools/requirements-golden.txt pillow==13.0.0 torchvision==0.29.2
    v/bin/python tools/make_golden_images.py

  files/*       pictures in PNG, JPEG and WebP
  bombs/*       small files of large pictures, or with a large text
  decoded.txt   file width height SHA-256: the pixels of ImageOps.exif_transpose(Image.open(file)).convert("RGB")
  resized.txt   filter width height new_width new_height SHA-256: torchvision's antialiased resize of tensors of uint8
  rules/*.json  settings of image processors
  patches.txt   rule width height grid_h grid_w tokens SHA-256: the values (F32) of AutoImageProcessor, in rows of patches
  grids.txt     rule width height grid_h grid_w: the processors' sizes alone

Pictures that are resized are made by formula(), as src/image/golden_pictures.h makes them. Needs a processor with AVX2 (torchvision
has other pixels for bilinear filters without it) and no network.
"""
import hashlib
import io
import json
import shutil
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as tvF
from transformers import AutoImageProcessor
from transformers.image_utils import SizeDict
from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size
from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "pictures"
FILES = ROOT / "files"


def formula(width, height):
    """[height, width, 3]: slopes, stripes and noise."""
    y, x, c = np.meshgrid(np.arange(height, dtype=np.uint32), np.arange(width, dtype=np.uint32), np.arange(3, dtype=np.uint32),
                          indexing="ij")
    mixed = (x * 2654435761 + y * 2246822519 + c * 3266489917) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    noise = (mixed >> 24) & 63
    slope = (x * 3 + y * 2 + c * 40) & 127
    stripe = np.where(((x // 5) + (y // 7)) % 3 == 0, 64, 0).astype(np.uint32)
    return (noise + slope + stripe).astype(np.uint8)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


# PNG with every depth and colour type, interlaced or not, which Pillow does not write.

def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_rows(samples, depth):
    """Samples [height, width, channels] as filtered rows; the filter changes from row to row."""
    out, before, bpp = b"", None, max(1, samples.shape[2] * depth // 8)
    for i, row in enumerate(samples.reshape(samples.shape[0], -1)):
        if depth == 16:
            line = np.frombuffer(row.astype(">u2").tobytes(), np.uint8)
        elif depth == 8:
            line = row.astype(np.uint8)
        else:
            bits = ((row[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
            line = np.packbits(bits.reshape(-1))
        above = np.zeros_like(line) if before is None else before
        left = np.concatenate([np.zeros(bpp, np.uint8), line])[:len(line)].astype(int)
        corner = np.concatenate([np.zeros(bpp, np.uint8), above])[:len(line)].astype(int)
        kind, up = i % 5, above.astype(int)
        p = left + up - corner
        distances = np.stack([abs(p - left), abs(p - up), abs(p - corner)])
        paeth = np.choose(distances.argmin(0), [left, up, corner])
        guess = [0 * left, left, up, (left + up) // 2, paeth][kind]
        out += bytes([kind]) + ((line.astype(int) - guess) % 256).astype(np.uint8).tobytes()
        before = line
    return out


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(samples, depth, colour, before=b"", after=b"", interlaced=False):
    height, width, _ = samples.shape
    passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7] if interlaced else [samples]
    data = zlib.compress(b"".join(png_rows(p, depth) for p in passes if p.size), 9)
    half = len(data) // 2
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + before + png_chunk(b"IDAT", data[:half]) +
            png_chunk(b"IDAT", data[half:]) + after + png_chunk(b"IEND", b""))


def exif(orientation, big=False):
    order = ">" if big else "<"
    return (b"MM\0*" if big else b"II*\0") + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def xmp(orientation):
    return f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()


def png_files():
    rgb = formula(23, 17)
    grey = rgb[:, :, :1]
    alpha = formula(17, 23).transpose(1, 0, 2)[:, :, 1:2]
    for interlaced in (False, True):
        end = "_interlaced.png" if interlaced else ".png"
        for depth in (1, 2, 4, 8, 16):
            samples = grey.astype(np.uint32) * 257 >> (16 - depth) if depth < 16 else grey.astype(np.uint32) * 3
            yield f"grey{depth}{end}", png(samples, depth, 0, interlaced=interlaced)
            if depth <= 8:
                n = 1 << min(depth, 6)
                palette = png_chunk(b"PLTE", formula(n, 1)[0].tobytes())
                yield f"palette{depth}{end}", png(grey.astype(np.uint32) % n, depth, 3, palette, interlaced=interlaced)
        wide = rgb.astype(np.uint32) * 257 + formula(23, 17)[::-1]
        for depth, colours, clear in ((8, rgb.astype(np.uint32), alpha), (16, np.minimum(wide, 65535), alpha.astype(np.uint32) * 200)):
            yield f"rgb{depth}{end}", png(colours, depth, 2, interlaced=interlaced)
            yield f"rgba{depth}{end}", png(np.concatenate([colours, clear], 2), depth, 6, interlaced=interlaced)
            yield f"grey_alpha{depth}{end}", png(np.concatenate([colours[:, :, :1], clear], 2), depth, 4, interlaced=interlaced)
    samples = rgb.astype(np.uint32)
    palette = png_chunk(b"PLTE", formula(8, 1)[0].tobytes())
    yield "palette_transparent.png", png(grey.astype(np.uint32) % 8, 4, 3, palette + png_chunk(b"tRNS", bytes(range(0, 240, 30))))
    yield "rgb_transparent.png", png(samples, 8, 2, png_chunk(b"tRNS", struct.pack(">HHH", *rgb[3, 3])))
    for orientation in range(1, 9):
        yield f"exif{orientation}.png", png(samples[:5, :9], 8, 2, png_chunk(b"eXIf", exif(orientation, orientation % 2 == 0)))
    yield "exif_after.png", png(samples[:5, :9], 8, 2, after=png_chunk(b"eXIf", exif(6)))
    text = b"XML:com.adobe.xmp\0\0\0\0\0"
    yield "xmp.png", png(samples[:5, :9], 8, 2, png_chunk(b"iTXt", text + xmp(8)))
    yield "exif_and_xmp.png", png(samples[:5, :9], 8, 2, png_chunk(b"iTXt", text + xmp(8)) + png_chunk(b"eXIf", exif(3)))
    yield "texts.png", png(samples, 8, 2, png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"a" * 5000)) +
                           png_chunk(b"gAMA", struct.pack(">I", 30000)) + png_chunk(b"pHYs", struct.pack(">IIB", 1, 2, 0)))
    frame = png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 23, 17, 0, 0, 1, 10, 0, 0))
    second = zlib.compress(png_rows(255 - samples, 8))
    animation = png_chunk(b"acTL", struct.pack(">II", 2, 0)) + frame
    yield "animated.png", png(samples, 8, 2, animation, png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 1, 23, 17, 0, 0, 1, 10, 0, 0)) +
                              png_chunk(b"fdAT", struct.pack(">I", 2) + second))
    yield "one.png", png(samples[:1, :1], 8, 2)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def smooth(width, height):
    """What JPEG is made for: low frequencies, and an edge."""
    y, x = np.mgrid[0:height, 0:width]
    red = 128 + 100 * np.sin(x / 7.0) * np.cos(y / 9.0)
    green = 255.0 * x / max(1, width - 1)
    blue = np.where((x + y) % 40 < 20, 220, 30)
    return np.stack([red, green, blue], 2).clip(0, 255).astype(np.uint8)


def jpeg_files():
    image = Image.fromarray(smooth(45, 35))
    for sampling in ("4:4:4", "4:2:2", "4:2:0", "4:1:1"):
        name = sampling.replace(":", "")
        yield f"{name}.jpg", saved(image, "JPEG", quality=85, subsampling=sampling)
        yield f"{name}_progressive.jpg", saved(image, "JPEG", quality=75, subsampling=sampling, progressive=True)
    yield "noise.jpg", saved(Image.fromarray(formula(45, 35)), "JPEG", quality=30)
    yield "best.jpg", saved(Image.fromarray(formula(21, 18)), "JPEG", quality=100, subsampling="4:4:4")
    yield "restarts.jpg", saved(image, "JPEG", quality=80, restart_marker_blocks=2)
    yield "grey.jpg", saved(image.convert("L"), "JPEG", quality=80)
    yield "grey_progressive.jpg", saved(image.convert("L"), "JPEG", quality=80, progressive=True)
    yield "inks.jpg", saved(Image.merge("CMYK", [Image.fromarray(formula(24, 19)[:, :, i % 3] ^ i) for i in range(4)]), "JPEG", quality=85)
    yield "rgb.jpg", saved(image, "JPEG", quality=85, keep_rgb=True)
    yield "one.jpg", saved(Image.fromarray(smooth(1, 1)), "JPEG")
    yield "thin.jpg", saved(Image.fromarray(smooth(3, 65)), "JPEG", subsampling="4:2:0")
    for orientation in range(1, 9):
        tags = Image.Exif()
        tags[0x0112] = orientation
        yield f"exif{orientation}.jpg", saved(Image.fromarray(smooth(13, 7)), "JPEG", exif=tags.tobytes(), quality=60)
    yield "xmp.jpg", saved(Image.fromarray(smooth(13, 7)), "JPEG", xmp=xmp(5), quality=60)


def riff(*chunks):
    body = b"WEBP" + b"".join(kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_files():
    image = Image.fromarray(smooth(45, 35))
    clear = image.copy()
    clear.putalpha(Image.fromarray(formula(45, 35)[:, :, 0]))
    yield "lossy.webp", saved(image, "WEBP", quality=70)
    yield "lossy_noise.webp", saved(Image.fromarray(formula(31, 33)), "WEBP", quality=20)
    yield "lossy_alpha.webp", saved(clear, "WEBP", quality=70)
    yield "lossless.webp", saved(image, "WEBP", lossless=True)
    yield "lossless_noise.webp", saved(Image.fromarray(formula(31, 33)), "WEBP", lossless=True)
    yield "lossless_alpha.webp", saved(clear, "WEBP", lossless=True, exact=True)
    few = Image.fromarray((formula(40, 30) // 64 * 64).astype(np.uint8)).quantize(6).convert("RGB")
    yield "lossless_few.webp", saved(few, "WEBP", lossless=True)
    for orientation in (1, 3, 6, 7):
        yield f"exif{orientation}.webp", saved(Image.fromarray(smooth(13, 7)), "WEBP", exif=exif(orientation), quality=60)
    yield "xmp.webp", saved(Image.fromarray(smooth(13, 7)), "WEBP", xmp=xmp(8), quality=60)
    yield "animated.webp", saved(image, "WEBP", save_all=True, append_images=[ImageOps.invert(image)], duration=50, quality=70)
    # A first frame that is smaller than its canvas.
    frame = saved(Image.fromarray(formula(10, 8)), "WEBP", lossless=True)[12:]
    def three(n):
        return struct.pack("<I", n)[:3]
    head = three(4 // 2) + three(6 // 2) + three(9) + three(7) + three(50) + b"\2"
    yield "frame.webp", riff((b"VP8X", b"\2\0\0\0" + three(29) + three(19)), (b"ANIM", b"\xff\xff\xff\xff\0\0"), (b"ANMF", head + frame))
    yield "one.webp", saved(Image.fromarray(smooth(1, 1)), "WEBP")


def make_files():
    lines = []
    for name, data in [*png_files(), *jpeg_files(), *webp_files()]:
        (FILES / name).write_bytes(data)
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        lines.append(f"{name} {image.width} {image.height} {digest(np.array(image))}")
    return lines


def make_bombs():
    for name, data in (
            ("wide.png", png_of_zeros(7900, 8000)),
            ("text.png", png(formula(4, 4).astype(np.uint32), 8, 2, png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 24), 9)))),
            ("profile.png", png(formula(4, 4).astype(np.uint32), 8, 2, png_chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(1 << 24), 9)))),
            ("wide.webp", saved(Image.new("RGB", (7900, 8000)), "WEBP", lossless=True)),
            ("wide.jpg", saved(Image.new("L", (3000, 2000)), "JPEG", progressive=True))):
        (ROOT / "bombs" / name).write_bytes(data)


def png_of_zeros(width, height):
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(((width + 7) // 8 + 1) * height), 9)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", rows) + png_chunk(b"IEND", b"")


SIZES = [((64, 48), (30, 20)), ((30, 20), (64, 48)), ((33, 77), (33, 28)), ((77, 33), (28, 33)), ((500, 300), (112, 70)),
         ((101, 67), (100, 66)), ((101, 67), (102, 68)), ((640, 480), (336, 252)), ((1, 1), (28, 28)), ((200, 1), (64, 3)),
         ((3, 500), (2, 7)), ((7, 7), (2, 1)), ((896, 20), (224, 224)), ((2000, 30), (11, 5)), ((16, 16), (16, 16))]


def resized(array, size, mode):
    tensor = torch.from_numpy(array).permute(2, 0, 1).contiguous()
    out = tvF.resize(tensor, [size[1], size[0]], interpolation=tvF.InterpolationMode(mode), antialias=True)
    return out.permute(1, 2, 0).numpy()


def make_resized():
    lines = []
    for old, new in SIZES:
        for mode, filter_of_pillow in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)):
            out = resized(formula(*old), new, mode)
            other = np.array(Image.fromarray(formula(*old)).resize(new, filter_of_pillow))
            differ = np.abs(out.astype(int) - other.astype(int))
            print(f"{mode} {old} to {new}: Pillow differs in {(differ > 0).mean():.3%} of the values, by {differ.max()} at most")
            lines.append(f"{mode} {old[0]} {old[1]} {new[0]} {new[1]} {digest(out)}")
    return lines


RULES = {
    "gemma3": dict(image_processor_type="Gemma3ImageProcessor", size=dict(height=896, width=896), do_normalize=True, resample=2,
                   image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5], do_pan_and_scan=None, rescale_factor=1 / 255),
    "qwen2_vl": dict(image_processor_type="Qwen2VLImageProcessor", min_pixels=3136, max_pixels=200704, patch_size=14,
                     temporal_patch_size=2, merge_size=2, image_mean=[0.48145466, 0.4578275, 0.40821073],
                     image_std=[0.26862954, 0.26130258, 0.27577711]),
    "qwen3_vl": dict(image_processor_type="Qwen2VLImageProcessorFast", size=dict(longest_edge=131072, shortest_edge=4096),
                     patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5]),
    "qwen_default": dict(image_processor_type="Qwen2VLImageProcessor"),
    "gemma4": dict(image_processor=dict(image_processor_type="Gemma4ImageProcessor", max_soft_tokens=70, patch_size=16,
                                        pooling_kernel_size=3, do_normalize=False), processor_class="Gemma4Processor"),
    "pixtral": dict(image_processor_type="PixtralImageProcessor", size=dict(longest_edge=256), patch_size=dict(height=16, width=16)),
    "mistral3": dict(image_processor=dict(image_processor_type="PixtralImageProcessorFast", size=dict(longest_edge=392),
                                          patch_size=14), patch_size=14, spatial_merge_size=2),
    "llava": dict(image_processor_type="CLIPImageProcessor", size=dict(shortest_edge=336), crop_size=dict(height=336, width=336)),
    "llava_old": dict(image_processor_type="CLIPImageProcessor", size=224, crop_size=224, resample=3, do_center_crop=True),
    "llava_own": dict(image_processor_type="LlavaImageProcessor", size=dict(shortest_edge=336), crop_size=dict(height=280, width=336),
                      image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711]),
}
PICTURES = {
    "gemma3": [(300, 200), (50, 900)],
    "qwen2_vl": [(300, 200), (31, 17), (2000, 150), (20, 3000), (28, 28)],
    "qwen3_vl": [(300, 200), (31, 17), (1900, 150), (64, 64)],
    "qwen_default": [(100, 75)],
    "gemma4": [(300, 200), (17, 31), (1000, 60), (30, 900), (432, 336)],
    "pixtral": [(300, 200), (17, 31), (250, 250), (33, 700)],
    "mistral3": [(300, 200), (17, 31), (1000, 90)],
    "llava": [(300, 200), (100, 351), (336, 336)],
    "llava_old": [(301, 200), (20, 21)],
    "llava_own": [(500, 300)],
}
# Of the model, not of the processor: patches, and patches a side that become one token.
TOWERS = {"gemma3": (14, 4), "llava": (14, 1), "llava_old": (14, 1), "llava_own": (14, 1), "mistral3": (14, 2)}


def processor_of(rule):
    settings = rule.get("image_processor", rule)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "preprocessor_config.json").write_text(json.dumps(settings))
        return AutoImageProcessor.from_pretrained(folder)


def rows_of(pixels, patch):
    """[3, height, width] as the rows of a convolution's product; what does not fill a patch is left out."""
    height, width = pixels.shape[1] // patch, pixels.shape[2] // patch
    cut = pixels[:, :height * patch, :width * patch].reshape(3, height, patch, width, patch)
    return cut.permute(1, 3, 0, 2, 4).reshape(height * width, -1), height, width


def make_patches():
    lines = []
    for name, rule in RULES.items():
        (ROOT / "rules" / f"{name}.json").write_text(json.dumps(rule, indent=1) + "\n")
        processor = processor_of(rule)
        for width, height in PICTURES[name]:
            extra = dict(patch_size=28) if name == "mistral3" else {}
            out = processor(Image.fromarray(formula(width, height)), return_tensors="pt", **extra)
            pixels = out["pixel_values"]
            if name.startswith("qwen"):
                _, grid_h, grid_w = out["image_grid_thw"][0].tolist()
                tokens = grid_h * grid_w // processor.merge_size ** 2
                assert processor.get_number_of_image_patches(height, width) == grid_h * grid_w
            elif name == "gemma4":
                tokens = int(out["num_soft_tokens_per_image"][0])
                positions = out["image_position_ids"][0]
                grid_w, grid_h = (positions.max(0).values + 1).tolist()
                pixels = pixels[0][:grid_h * grid_w]
                assert (out["pixel_values"][0][grid_h * grid_w:] == 0).all()
                assert positions[:grid_h * grid_w].tolist() == [[x, y] for y in range(grid_h) for x in range(grid_w)]
            else:
                patch, merge = TOWERS.get(name, (16, 1))
                pixels, grid_h, grid_w = rows_of(pixels[0], patch)
                tokens = grid_h * grid_w // merge ** 2
            lines.append(f"{name} {width} {height} {grid_h} {grid_w} {tokens} {digest(pixels.numpy().astype('<f4'))}")
    return lines


def make_grids():
    lines, random = [], np.random.default_rng(5)
    sizes = [tuple(int(2 ** random.uniform(0, 12.5)) for _ in range(2)) for _ in range(400)]
    sizes = [(w, h) for w, h in sizes if max(w, h) <= 200 * min(w, h)]
    for name, sides in {
        "qwen2_vl": lambda w, h: [n // 14 for n in smart_resize(h, w, 28, 3136, 200704)],
        "qwen3_vl": lambda w, h: [n // 16 for n in smart_resize(h, w, 32, 4096, 131072)],
        "gemma4": lambda w, h: [n // 16 for n in get_aspect_ratio_preserving_size(h, w, 16, 70 * 9, 3)],
        "mistral3": lambda w, h: [n // 14 for n in get_resize_output_image_size(np.zeros((h, w, 3), np.uint8), 392, 28, "channels_last")],
    }.items():
        for w, h in sizes[:120]:
            grid_h, grid_w = sides(w, h)
            lines.append(f"{name} {w} {h} {grid_h} {grid_w}")
    return lines


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    FILES.mkdir(parents=True)
    (ROOT / "rules").mkdir()
    (ROOT / "bombs").mkdir()
    make_bombs()
    for name, make in (("decoded", make_files), ("resized", make_resized), ("patches", make_patches), ("grids", make_grids)):
        (ROOT / f"{name}.txt").write_text("\n".join(make()) + "\n")


if __name__ == "__main__":
    main()
