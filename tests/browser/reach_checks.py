"""What is reached by keyboard and seen in narrow windows: the list of chats, shortcuts, the header, tables, zoom, formulas."""
import json
import tempfile

import chromium
from chat_checks import CHAT, ask, ended, nth_chat, setting
from chromium import CONTROL, SHIFT
from look_checks import looks
from text_checks import scripted
from work_checks import MANY, SHOWN, answered, chats, events, say

ACTIVE = "document.activeElement"
# A clock that stands: at noon of a day.
NOON = """(() => { const noon = new Date(2026, 5, 17, 12).getTime(); Date.now = () => noon; window.noon = noon; })()"""
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>/usr/share/fonts</dir><cachedir>%s</cachedir>
<selectfont><rejectfont><glob>*Math*</glob><glob>*math*</glob></rejectfont></selectfont></fontconfig>"""
FORMULAS = r"""$\sqrt{\frac{a}{b}}$ $\sqrt[3]{xy}$ $\overline{AB}$ $\mathcal{L}$ $\mathbf{v}$

$$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} \begin{cases} 1 & x > 0 \\ 0 & x \le 0 \end{cases} \left|\frac{p}{q}\right|$$"""


def test_the_list_of_chats_is_one_stop(w):
    page = w.page()
    chats(page, "(i) => ({ id: 'c' + i, title: '', changed: i + 1, leaf: 0, messages: [{ role: 'user', parent: -1, content: 'Question ' + i }] })")
    page.go(w.server.url)
    page.until(f"document.querySelectorAll('#history li').length === {MANY}")
    page.js("document.getElementById('search').focus()")
    page.key("Tab")
    assert page.js(ACTIVE + ".className") == "open" and page.js(ACTIVE + ".innerText") == f"Question {MANY - 1}"
    page.key("Tab")
    assert page.js(ACTIVE + ".id") == "export"
    page.key("Tab", SHIFT)
    for key, name in (("ArrowDown", MANY - 2), ("ArrowDown", MANY - 3), ("ArrowUp", MANY - 2), ("End", 0), ("Home", MANY - 1), ("ArrowUp", MANY - 1)):
        page.key(key)
        assert page.js(ACTIVE + ".innerText") == f"Question {name}", (key, page.js(ACTIVE + ".innerText"))
    page.key("ArrowDown")
    page.key("Tab")
    page.key("Tab", SHIFT)
    assert page.js(ACTIVE + ".innerText") == f"Question {MANY - 2}"  # Tab comes back to where it was
    seen = "getComputedStyle(document.activeElement.closest('li').querySelector('.drop')).opacity"
    assert page.js(seen) == "1" and page.js("getComputedStyle(document.querySelector('#history li .drop')).opacity") == "0"
    for key, name in (("ArrowRight", "rename"), ("ArrowRight", "drop"), ("ArrowRight", "drop"), ("ArrowLeft", "rename"), ("Escape", "open")):
        page.key(key)
        assert page.js(ACTIVE + ".className") == name, (key, page.js(ACTIVE + ".className"))
    page.key("F2")
    page.paste("Renamed")
    page.key("Enter")
    assert page.js(ACTIVE + ".innerText") == "Renamed"
    for _ in range(2):
        page.key("Delete")
    page.until(f"document.querySelectorAll('#history li').length === {MANY - 1}")
    assert "Renamed" not in page.texts("#history .open")
    assert page.js(ACTIVE + ".className") == "open"  # not lost with the line
    assert page.complaints == [], page.complaints
    page.close()


def test_skip_link_and_shortcuts(w):
    page = w.page()
    scripted(page, "Hello", ["Hi"])
    for phone in (False, True):
        page.look(390 if phone else 1280, 844 if phone else 800, phone=phone)
        page.js("document.getElementById('skip').focus()")
        assert page.js(ACTIVE + ".getBoundingClientRect().width") > 100  # seen
        assert page.js("[...document.querySelectorAll('a, button, input, select, textarea')][0].id") == "skip"
        page.key("Enter")
        assert page.js(ACTIVE + ".id") == "scroll"
    for name in ("panel-button", "drawer-button"):  # what stands in its place on a phone goes
        page.click("#" + name)
        page.js("document.getElementById('skip').focus()")
        page.key("Enter")
        assert page.js(ACTIVE + ".id") == "scroll", name
    page.look()
    page.key("k", CONTROL)
    assert page.js(ACTIVE + ".id") == "search"
    page.key("o", CONTROL | SHIFT)
    assert page.js(ACTIVE + ".id") == "input" and page.texts(".message") == []
    page.write("why?")
    assert page.js("document.getElementById('keys').open") is False  # it is a letter here
    page.js("document.activeElement.blur()")
    page.key("?", SHIFT)
    assert page.js("document.getElementById('keys').open") is True
    looks_of_keys = page.text("#keys")
    for word in ("Ctrl K", "Shift Ctrl O", "searches the chats", "begins a new chat"):
        assert word in looks_of_keys, looks_of_keys
    for key in ("o", "k"):
        page.key(key, CONTROL | SHIFT if key == "o" else CONTROL)  # nothing happens after it
    for _ in range(3):
        page.key("Tab")
        assert page.js("document.getElementById('keys').contains(document.activeElement) || document.activeElement === document.body")
    page.key("Escape")
    assert page.js("document.getElementById('keys').open") is False
    page.click("#keys-button")
    page.click("#keys-close")
    assert page.js("document.getElementById('keys').open") is False
    page.look(390, 844, phone=True)
    page.js("document.activeElement.blur()")
    page.key("k", CONTROL)
    assert page.js(ACTIVE + ".id") == "search" and page.js("document.getElementById('history').checkVisibility()")
    page.key("Escape")
    assert not page.js("document.getElementById('history').checkVisibility()")
    assert page.complaints == [], page.complaints
    page.close()


def test_chats_stand_below_their_days(w):
    page = w.page()
    script = page.send("Page.addScriptToEvaluateOnNewDocument", source=NOON)
    assert script["identifier"]
    page.go(w.server.url)
    ages = [0, 0.4, 0.6, 1.4, 1.6, 6.4, 6.6, 20, 400]  # days before noon
    page.js("""new Promise((done, fail) => {
        const request = indexedDB.open('ibid', 1);
        request.onerror = fail;
        request.onsuccess = () => {
          const write = request.result.transaction('chats', 'readwrite');
          %s.forEach((age, i) => write.objectStore('chats').put({ id: 'c' + i, title: 'Chat ' + i, changed: window.noon - age * 864e5, leaf: 0,
            messages: [{ role: 'user', parent: -1, content: 'x' }] }));
          write.oncomplete = () => { request.result.close(); done(); };
        };
      })""" % json.dumps(ages))
    page.go(w.server.url)
    page.until(f"document.querySelectorAll('#history li').length === {len(ages)}")
    got = page.js("[...document.querySelectorAll('#history ul')].map((list) => [list.previousSibling.textContent, list.getAttribute('aria-label'),"
                  " ...[...list.querySelectorAll('.open')].map((n) => n.innerText.slice(5))])")
    assert got == [["Today", "Today", "0", "1"], ["Yesterday", "Yesterday", "2", "3"], ["Last 7 days", "Last 7 days", "4", "5"],
                   ["June 2026", "June 2026", "6"], ["May 2026", "May 2026", "7"], ["May 2025", "May 2025", "8"]], got
    looks(page, w, "days")
    # The whole line is the name's until the pointer is there.
    name = nth_chat(page, 3, ".open")
    wide = page.js(f"document.querySelector({json.dumps(name)}).getBoundingClientRect().width")
    x, y = page.js(f"(({{ x, y }}) => [x + 20, y + 10])(document.querySelector({json.dumps(name)}).getBoundingClientRect())")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.until(f"document.querySelector({json.dumps(name)}).getBoundingClientRect().width < {wide} - 50")
    page.close()


def test_what_is_narrow(w):
    page = w.page()
    page.until("document.getElementById('model-name').textContent !== ''")
    table = "| name | what it does | n |\n|---|---|--:|\n| alpha | " + "A long cell of many words that would be squeezed. " * 3 + "| 12 |\n| beta | short | 7 |"
    scripted(page, "A table?", [table + "\n\n" + "|a|b|c|d|\n|-|-|-|-|\n|1|2|3|4|"])
    page.look(390, 844, phone=True)
    width = page.js("document.querySelector('td.long').getBoundingClientRect().width")
    assert width >= 180, width
    widths = page.js("[...document.querySelectorAll('.wide:last-of-type td')].slice(-4).map((n) => n.getBoundingClientRect().width)")
    assert max(widths) < 100, widths  # short ones stay narrow
    assert page.js("[...document.querySelectorAll('tr')].every((row) => row.getBoundingClientRect().height < 200)")
    # The header: a name that is longer than others is whole, and so is the context of a short one.
    whole = """(() => { const n = document.getElementById('%s'), box = n.getBoundingClientRect(), out = document.getElementById('model').getBoundingClientRect();
        return n.scrollWidth <= n.clientWidth + 1 && n.scrollHeight <= n.clientHeight + 1 && box.bottom <= out.bottom + 1 && box.height > 5; })()"""
    assert page.js(whole % "model-name") and page.js(whole % "model-context"), page.js("document.getElementById('model').outerHTML")
    page.js("document.getElementById('model-name').textContent = 'Qwen2.5-0.5B-Instruct-Q4_K_M'")
    assert page.js(whole % "model-name")
    for width, height in ((640, 400), (320, 640)):  # a window of 1280 x 800 at 200 %, and the narrowest phones
        page.look(width, height)
        assert page.js("document.scrollingElement.scrollWidth") <= width
        page.click("#drawer-button")
        page.js("document.getElementById('defaults').scrollIntoView()")
        page.click("#drawer-button")
        assert page.js("(({ bottom }) => bottom <= innerHeight)(document.getElementById('send').getBoundingClientRect())")
    page.close()


def test_a_question_shows_its_code(w):
    page = w.page()
    question = "Use `a*b` **here** &amp; there:\n\n```py\nfor x in y:\n    print(x)\n```\nand <b>\n1. one"
    body, = answered(page, events([{"content": "Yes."}]), act=lambda: say(page, question))
    assert body["messages"][0]["content"] == question
    assert page.texts(".user .text > code") == ["a*b"] and page.texts(".user .code code") == ["for x in y:\n    print(x)"]
    assert page.js("document.querySelector('.user .code .word').textContent") == "for"
    shown = page.js("document.querySelector('.user .text').textContent")
    assert "**here** &amp; there:" in shown and "and <b>\n1. one" in shown, shown
    assert page.js("document.querySelectorAll('.user .text b, .user .text strong, .user .text ol').length") == 0
    page.key("ArrowUp")
    assert page.js(ACTIVE + ".value") == question  # it is edited as it was typed
    page.key("Escape")
    looks(page, w, "question")
    page.close()


def test_an_answer_that_is_json_is_code(w):
    page = w.page()
    text = '{\n  "a": [1, 2.50],\n  "b": "<i>"\n}'
    scripted(page, "Object?", [*text])
    assert page.text(".assistant .code code") == text and page.js("document.querySelector('.assistant .code .bar span').textContent") == "json"
    scripted(page, "Prose?", ['{"a": 1} is an object'])
    assert page.js("document.querySelectorAll('.message:last-child .code').length") == 0
    # Of a schema it is code while it grows, and where it was cut.
    setting(page, "schema", '{"type": "object"}')
    answered(page, events([{"content": '{"a": '}], "length"), act=lambda: say(page, "Cut?"))
    assert page.text(".message:last-child .code code") == '{"a":'
    page.go(w.server.url)
    page.until("document.querySelectorAll('.message').length === 6")
    assert page.text(".message:last-child .code code") == '{"a":'
    page.close()


def test_formulas_without_a_font_of_mathematics(w):
    """In a browser that has none: roots have their line, bars are as long as what they stand on, no letter is lost."""
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/fonts.conf", "w") as file:
            file.write(FONTS % folder)
        browser = chromium.Chromium(chromium.find(), FONTCONFIG_FILE=folder + "/fonts.conf")
        try:
            page = browser.page(w.server.url + "/")
            scripted(page, "Formulas?", [FORMULAS])
            page.picture(w.pictures / "formulas_without_fonts.png")
            assert page.js("document.querySelectorAll('msqrt, mroot').length") == 0
            box = "(({ left, right, top }) => [left, right, top])(document.querySelectorAll('.lined-above')[%d].getBoundingClientRect())"
            for i, inner in enumerate(("a", "xy", "AB")):
                lined = f"document.querySelectorAll('.lined-above')[{i}]"
                assert inner in page.js(lined + ".textContent") and page.js(f"getComputedStyle({lined}).borderTopWidth") != "0px"
                left, right, _ = page.js(box % i)
                assert right - left > 8
            assert page.js("[...document.querySelectorAll('mo')].filter((n) => n.textContent === '√').length") == 2
            tall = page.js("document.querySelector('mtable').getBoundingClientRect().height")
            assert page.js("""[...document.querySelectorAll('mo[stretchy=true], [class*=left-]')].map((n) => n.getBoundingClientRect().height)""")[0] > 0.8 * tall
            letters = page.js("[...document.querySelectorAll('math')].map((n) => n.textContent.normalize('NFKD')).join('')")
            for letter in "√ab√xyABLv1234pq":
                assert letter in letters, (letter, letters)
            page.close()
        finally:
            browser.close()
    # Here the fonts are what they are; a root is one in either way.
    page = w.page()
    scripted(page, "Formulas?", [FORMULAS])
    assert page.js("document.querySelectorAll('msqrt, mroot, math .lined-above').length") == 3
    looks(page, w, "formulas")
    page.close()


def test_texts_from_right_to_left(w):
    page = w.page()
    scripted(page, "مرحبا بالعالم", ["- مرحبا\n- עולם $x+1$\n\n> اقتباس\n\n- [x] مهمة\n\n| א | ב |\n|---|---|\n| ג | ד |\n\n```\nx = 1\n```"])
    right = "(({ right }) => right)(document.querySelector('%s').getBoundingClientRect())"
    assert page.js("getComputedStyle(document.querySelector('.assistant ul')).direction") == "rtl"
    assert page.js("getComputedStyle(document.querySelector('.assistant blockquote')).borderRightWidth") == "3px"
    assert page.js("getComputedStyle(document.querySelector('.assistant math')).direction") == "ltr"
    assert page.js("getComputedStyle(document.querySelector('.assistant .code')).direction") == "ltr"
    assert page.js(right % ".assistant li.task > input") > page.js(right % ".assistant li.task") - 2
    looks(page, w, "right_to_left")
    page.close()


TESTS = [test_the_list_of_chats_is_one_stop, test_skip_link_and_shortcuts, test_chats_stand_below_their_days, test_what_is_narrow,
         test_a_question_shows_its_code, test_an_answer_that_is_json_is_code, test_formulas_without_a_font_of_mathematics,
         test_texts_from_right_to_left]
