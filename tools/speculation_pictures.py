#!/usr/bin/env python3
"""Draws the pictures of docs/users/speculation.md: tools/speculation_pictures.py [FOLDER]

A step that verifies a chain, a tree with its paths and slots, and the proposers, with what was measured of them (MEASURED
below, from SlowSpeculationPrompts and docs/users/speculation.md). Plain SVG in both themes; the same bytes each time, which
tests/house/held_out_test.py holds the folder to.
"""
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "pictures"

# Accepted first draft tokens, over the even ones of the 40 prompts: of the lookup where it had one, and of ibid's head.
# build/cli_test --gtest_filter='SlowSpeculationPrompts.OwnHead*'
MEASURED = {  # text: (look-up, head) at T = 0, the same at 0.8
    "code": (0.31, 0.51, 0.20, 0.46),
    "edit": (0.67, 0.50, 0.51, 0.29),
    "summary": (0.49, 0.28, 0.34, 0.35),
    "JSON": (0.62, 0.65, 0.26, 0.55),
    "chat": (0.18, 0.34, 0.09, 0.29),
}

STYLE = """
  .ground { fill: #fbfaf7 } .box { fill: #ffffff; stroke: #8a8578 } .text { fill: #e3edf6; stroke: #5d7f9f } .right { fill: #d9ecd0; stroke: #4d8434 }
  .wrong { fill: #f4dbe3; stroke: #a34a6c } .drawn { fill: #fff6d6; stroke: #a48a2d } .t { fill: #1d1c1a; font-size: 15px } .h { fill: #1d1c1a; font-size: 17px; font-weight: 600 }
  .s { fill: #4d4a43; font-size: 13px } .go { stroke: #46433c; stroke-width: 1.8; fill: none } .hd { fill: #46433c } .thin { stroke: #8a8578; fill: none; stroke-dasharray: 3 4 }
  .look { fill: #5d7f9f } .head { fill: #5c9c3f }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #191917 } .box { fill: #302e29; stroke: #8f8a7d } .text { fill: #1d2b38; stroke: #7d9fbf } .right { fill: #26381f; stroke: #a3d182 }
    .wrong { fill: #3d222c; stroke: #d98aa5 } .drawn { fill: #453c17; stroke: #c3a94a } .t { fill: #f3f1ea } .h { fill: #f3f1ea }
    .s { fill: #cfcabd } .go { stroke: #cfcabd } .hd { fill: #cfcabd } .thin { stroke: #8f8a7d }
    .look { fill: #7d9fbf } .head { fill: #a3d182 }
  }
"""


class Picture:
    def __init__(self, title, width, height):
        self.width, self.height, self.parts = width, height, []
        self.head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, \'Segoe UI\', Helvetica, Arial, sans-serif" '
                     f'role="img" aria-labelledby="title">\n<title id="title">{title}</title>\n<style>{STYLE}</style>\n'
                     '<defs><marker id="a" markerWidth="9" markerHeight="9" refX="7.5" refY="4" orient="auto" markerUnits="userSpaceOnUse">'
                     '<path class="hd" d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
                     f'<rect class="ground" width="{width}" height="{height}" rx="8"/>\n')

    def text(self, x, y, words, kind="t", anchor="middle"):
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>')

    def box(self, x, y, width, height, kind, words="", below=""):
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>')
        if words:
            self.text(x + width // 2, y + height // 2 + (0 if below else 5), words)
        if below:
            self.text(x + width // 2, y + height // 2 + 17, below, "s")

    def go(self, *points):
        way = " ".join(f"{'L' if i else 'M'}{x} {y}" for i, (x, y) in enumerate(points))
        self.parts.append(f'<path class="go" marker-end="url(#a)" d="{way}"/>')

    def line(self, x1, y1, x2, y2, kind="thin"):
        self.parts.append(f'<path class="{kind}" d="M{x1} {y1} L{x2} {y2}"/>')

    def write(self, path):
        path.write_text(self.head + "\n".join(self.parts) + "\n</svg>\n")


def chain(path):
    p = Picture("A step that verifies a chain of draft tokens", 1000, 400)
    p.text(24, 34, "One step verifies three draft tokens: each row is sampled as in plain decoding", "h", "start")
    columns = [("mat", "text", "last token", "and", "and"), ("and", "right", "1st draft", "the", "the"),
               ("the", "right", "2nd draft", "dog", "cat"), ("dog", "wrong", "3rd draft", "–", "–")]
    for i, (token, kind, name, draft, drawn) in enumerate(columns):
        x = 170 + 200 * i
        p.text(x + 65, 74, name, "s")
        p.box(x, 84, 130, 40, kind, token)
        p.go((x + 65, 124), (x + 65, 158))
        p.box(x, 160, 130, 46, "box", f"row {i}", "of logits")
        p.go((x + 65, 206), (x + 65, 240))
        if i < 3:
            p.box(x, 242, 130, 46, "drawn", drawn, f"position {41 + i}")
            same = draft == drawn
            p.go((x + 130, 265), (x + 165, 265), (x + 165, 104), (x + 198, 104))
            p.text(x + 165, 312, "equals it:" if same else "differs:", "s")
            p.text(x + 165, 330, "accepted" if same else "rejected", "s")
        else:
            p.box(x, 242, 130, 46, "wrong", "not drawn", "after an error")
    for y, words in ((108, "one forward pass"), (186, "weights read once"), (270, "sampler, seed, state")):
        p.text(24, y, words, "s", "start")
    p.text(24, 372, "Three tokens of one step, “and the cat”, with the bytes of three steps. The third draft token's keys and values are overwritten.", "s", "start")
    p.write(path)


def tree(path):
    p = Picture("A tree of draft tokens: paths, positions and slots", 1000, 430)
    p.text(24, 34, "A tree in one step: siblings share a position, each attends to its own path, and each has its own slot", "h", "start")
    nodes = [("mat", "text", 90, 150, -1), ("and", "right", 290, 100, 0), ("with", "wrong", 290, 200, 0), ("the", "right", 490, 60, 1),
             ("a", "wrong", 490, 130, 1), ("cat", "right", 690, 60, 3), ("its", "wrong", 490, 205, 2)]
    for x, words in ((135, "position 40"), (335, "41"), (535, "42"), (735, "43")):
        p.text(x, 268, words, "s")
        p.line(x, 62 if x > 135 else 140, x, 252)
    for token, kind, x, y, parent in nodes:
        p.box(x, y, 90, 36, kind, token)
        if parent >= 0:
            px, py = nodes[parent][2], nodes[parent][3]
            p.go((px + 92, py + 18), (x - 4, y + 18))
    p.text(24, 304, "slots", "s", "start")
    kinds = [kind for _, kind, *_ in nodes]
    for i, (token, *_rest) in enumerate(nodes):
        p.box(90 + 84 * i, 286, 80, 30, kinds[i], token)
        p.text(130 + 84 * i, 334, f"slot {40 + i}", "s")
    p.text(24, 374, "after", "s", "start")
    for i, token in enumerate(("mat", "and", "the", "cat")):
        p.box(90 + 84 * i, 354, 80, 30, "right" if i else "text", token)
        p.text(130 + 84 * i, 402, f"slot {40 + i}", "s")
    p.text(450, 366, "Accepted tokens are in slots 41, 43 and 45; they move to their positions", "s", "start")
    p.text(450, 386, "before a block is published. Rejected ones are truncated.", "s", "start")
    p.write(path)


def proposers(path):
    p = Picture("The proposers, their order, and the acceptance of the first draft token", 1000, 470)
    p.text(24, 34, "A later proposer replaces draft tokens only if its own are more likely", "h", "start")
    stages = [("grammar", "one token may follow"), ("lookup", "and a client's prediction"), ("stores", "texts, own answers"),
              ("a network", "EAGLE, heads, a model"), ("a view", "the model, of a part")]
    for i, (name, what) in enumerate(stages):
        x = 24 + 192 * i
        p.box(x, 54, 176, 62, "text" if i < 2 else "box", name, what)
        if i:
            p.go((x - 16, 85), (x - 2, 85))
    p.text(24, 140, "mode ngram uses only the first two, which take almost no time", "s", "start")
    p.text(24, 176, "First draft token accepted, default model", "h", "start")
    p.box(430, 162, 16, 16, "look")
    p.text(452, 176, "lookup, where it has a draft token", "s", "start")
    p.box(690, 162, 16, 16, "head")
    p.text(712, 176, "ibid's EAGLE head", "s", "start")
    for column, (name, at) in enumerate((("T = 0", 0), ("T = 0.8", 2))):
        left = 130 + 440 * column
        p.text(left, 204, name, "t", "start")
        for part in (0, 25, 50, 75, 100):
            p.line(left + 3 * part, 214, left + 3 * part, 440)
            p.text(left + 3 * part, 456, f"{part} %", "s")
        for row, (kind, values) in enumerate(MEASURED.items()):
            y = 222 + 44 * row
            if column == 0:
                p.text(118, y + 22, kind, "t", "end")
            for bar, value in enumerate(values[at:at + 2]):
                p.parts.append(f'<rect class="{("look", "head")[bar]}" x="{left}" y="{y + 17 * bar}" width="{round(300 * value)}" height="14"/>')
                p.text(left + round(300 * value) + 6, y + 12 + 17 * bar, f"{value:.2f}"[1:] if value < 1 else "1", "s", "start")
    p.write(path)


PICTURES = {"chain.svg": chain, "tree.svg": tree, "proposers.svg": proposers}


def draw(folder):
    for name, picture in PICTURES.items():
        picture(pathlib.Path(folder) / name)


if __name__ == "__main__":
    draw(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
