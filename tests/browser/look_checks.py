"""How the page looks: contrast, overlaps, sizes and focus, in both themes and two widths, with a picture of each."""
import pathlib

from chat_checks import begin_long, ended
from chromium import SHIFT
from text_checks import scripted

ANSWER = """Here is how to count words:

1. Read the file.
2. Split it:
   - at blanks,
   - at line ends.
3. Count with `Counter`.

```python
from collections import Counter

def count(path: str) -> Counter[str]:
    # One pass over the file; nothing is kept but the counts, whatever its size, and this comment is a long one.
    return Counter(word.lower() for line in open(path) for word in line.split())
```

| word | times | share |
|:-----|------:|------:|
| the | 1,204 | 6.1 % |
| and | 873 | 4.4 % |

> Words are what lies between blanks.

It takes **linear** time; see [the manual](https://docs.example.org/collections).
A long word: """ + "Donaudampfschifffahrt" * 6 + "."

HERE = pathlib.Path(__file__).resolve().parent
CHECK = (HERE / "look.js").read_text()
# Of what has the focus; the line that is written in shows it by its box.
FOCUS = """(() => {
  const n = document.activeElement, box = n.getBoundingClientRect();
  const style = getComputedStyle(n.id === 'input' ? n.closest('#ask') : n);
  return {
    name: n.id || n.className || n.localName,
    width: style.outlineStyle === 'solid' ? parseFloat(style.outlineWidth) : 0,
    color: style.outlineColor,
    accent: getComputedStyle(document.querySelector('#tabs [aria-selected=true]')).backgroundColor,
    inside: box.top >= -1 && box.bottom <= innerHeight + 1 && box.left >= -1 && box.right <= innerWidth + 1,
  };
})()"""
SETTINGS = ["drawer-close", "system", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens", "stop", "n",
            "reasoning_effort", "logprobs", "tools", "tool_choice", "schema", "defaults"]
BARS = "document.querySelector('header').getBoundingClientRect().height / innerHeight"


def check(page, name, dark, phone):
    problems = page.js(f"{CHECK}({'true' if phone else 'false'})")
    assert problems == [], (name, "dark" if dark else "light", "phone" if phone else "desktop", problems)


def looks(page, w, name, only_phone=False):
    for phone in (True,) if only_phone else (False, True):
        for dark in (False, True):
            page.look(390 if phone else 1280, 844 if phone else 800, dark, phone)
            w.browser.wait(0.15)
            w.check_look(page, name, dark, phone)
    page.look()


def test_looks_of_the_chat(w):
    page = w.page()
    page.until("document.getElementById('model').innerText.includes('context')")
    looks(page, w, "empty")
    scripted(page, "How do I count the words of a file?", [ANSWER])
    looks(page, w, "chat")
    page.look(390, 844, phone=True)
    assert page.js(BARS) <= 0.08, page.js(BARS)
    page.click("#panel-button")
    looks(page, w, "panel", only_phone=True)
    page.look(390, 844, phone=True)
    page.click("#panel-button")
    page.look()
    page.click("#drawer-button")
    page.fill("#tools", "no list")
    looks(page, w, "drawer")
    page.fill("#tools", "")
    page.click("#drawer-close")
    page.look(390, 844, phone=True)
    w.browser.wait(0.1)
    page.js("document.getElementById('scroll').scrollTop = 0")
    page.until("!document.getElementById('latest').hidden")
    looks(page, w, "scrolled", only_phone=True)
    page.hold("*/v1/chat/completions")
    page.js("document.getElementById('input').focus()")
    page.write("And the letters?")
    page.key("Enter")
    page.answer(429, "{}", Retry_After="2")
    ended(page)
    page.let_go()
    looks(page, w, "error")
    page.click("#new")
    begin_long(page)
    looks(page, w, "writing")
    page.key("Escape")
    ended(page)
    page.click("#tab-engine")
    page.until("document.getElementById('running').innerText === '0'")
    looks(page, w, "engine_idle")
    page.hold("*/engine?*")
    for _ in range(2):
        page.answer(500, "")
    page.until("!document.getElementById('engine-gone').hidden")
    looks(page, w, "engine_gone")
    page.close()


def test_the_check_sees_what_is_wrong(w):
    page = w.page()
    page.click("#drawer-button")
    faults = {
        "#send { color: #7a9 }": "#send: contrast",
        "::placeholder { color: #bbb }": "#input placeholder: contrast",
        "#temperature { border-color: #ddd }": "#temperature edge: contrast",
        "#input { margin-right: -6rem }": "#input and #send overlap",
        "#status { position: absolute; inset: 0 }": "#send lies below #status",
        "#model { margin-left: -3rem }": "the texts #brand",
        "#theme { min-height: 20px }": "#theme is",
        "#new { align-self: start; width: 2.5rem; white-space: nowrap }": "#new does not show all",
        "body { min-width: 90rem }": "the page is 1440 wide",
        "#talk { min-height: 70rem }": "high",
        "#no-history { width: 40rem }": "#side scrolls sideways",
    }
    for style, word in faults.items():
        page.js(f"""(() => {{
            const sheet = new CSSStyleSheet();
            sheet.replaceSync({style!r});
            document.adoptedStyleSheets = [sheet];
        }})()""")
        problems = page.js(f"{CHECK}(false)")
        assert any(word in problem for problem in problems), (style, problems)
    page.close()


def test_theme_follows_the_system_until_chosen(w):
    page = w.page(dark=True)
    back = "getComputedStyle(document.body).backgroundColor"
    dark = page.js(back)
    assert page.js("document.getElementById('theme').getAttribute('aria-pressed')") == "true"
    page.look(dark=False)
    pressed = "document.getElementById('theme').getAttribute('aria-pressed')"
    page.until(pressed + " === 'false'")
    light = page.js(back)
    assert light != dark
    page.click("#theme")
    assert page.js(back) == dark and page.js(pressed) == "true"
    page.go(w.server.url)
    assert page.js(back) == dark  # kept
    page.click("#theme")
    assert page.js(back) == light
    page.look(dark=True)
    assert page.js(back) == dark  # and follows the system again
    page.go(w.server.url)
    assert page.js(back) == dark
    page.close()


def test_keyboard_alone(w):
    page = w.page()
    scripted(page, "Hello", ["Hi\n\n```\nx\n```"])
    for phone in (False, True):
        for dark in (False, True):
            page.look(390 if phone else 1280, 844 if phone else 800, dark, phone)
            page.go(w.server.url)
            page.until("document.querySelectorAll('.assistant').length === 1")
            page.js("document.activeElement.blur()")
            page.click_at(2, 2)  # the tab order begins at the page's edge
            order = []
            for _ in range(40):
                page.key("Tab")
                focus = page.js(FOCUS)
                if focus["name"] == "body":
                    break
                assert focus["width"] >= 2 and focus["color"] == focus["accent"] and focus["inside"], focus
                order.append(focus["name"])
                if focus["name"] == "send":
                    break
            start = ["tab-chat", "drawer-button", "theme"]
            start = ["panel-button", *start] if phone else [*start, "new", "search", "open", "export", "import", "keys-button"]
            assert order[:len(start)] == start, order
            assert order[-2:] == ["input", "send"] and "scroll" in order and "pre" in order, order
    # Tabs by arrows, the panel and the drawer by Enter and Escape.
    page.js("document.getElementById('tab-chat').focus()")
    page.key("ArrowRight")
    assert page.js("document.activeElement.id") == "tab-engine"
    assert not page.js("document.getElementById('view-engine').hidden")
    page.key("ArrowLeft")
    page.js("document.getElementById('panel-button').focus()")
    page.key("Enter")
    chats_seen = "document.getElementById('history').checkVisibility()"
    assert page.js(chats_seen)
    page.key("Escape")
    assert page.js("document.activeElement.id") == "panel-button" and not page.js(chats_seen)
    page.look()
    page.js("document.getElementById('drawer-button').focus()")
    page.key("Enter")
    order = [page.js("document.activeElement.id")]
    assert page.js(chats_seen)  # the drawer pushes no chats away
    page.key("Tab", SHIFT)
    order.insert(0, page.js("document.activeElement.id"))
    for name in SETTINGS[1:]:
        page.js(f"document.getElementById({name!r}).focus()")
        assert page.js(FOCUS)["width"] >= 2, name
        order.append(name)
        page.key("Tab")
        if name != SETTINGS[-1]:
            assert page.js("document.activeElement.id") == SETTINGS[SETTINGS.index(name) + 1], name
    assert order[:2] == SETTINGS[:2], order
    page.js("document.getElementById('seed').focus()")
    page.key("Escape")
    assert page.js("document.activeElement.id") == "drawer-button" and page.js("document.getElementById('drawer').hidden")
    page.close()


TESTS = [test_looks_of_the_chat, test_the_check_sees_what_is_wrong, test_theme_follows_the_system_until_chosen,
         test_keyboard_alone]
