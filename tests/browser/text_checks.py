"""What a model writes is shown as text and harmless elements, whatever it writes and however it comes in pieces."""
import json
import pathlib
import sys

from chat_checks import CHAT, ended
from text_cases import ATTACKS, LONG, SHOWN

INSPECT = (pathlib.Path(__file__).resolve().parent / "inspect.js").read_text()
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "src" / "server"))
import bundle_page  # noqa: E402

LAST = "[...document.querySelectorAll('.assistant .text')].at(-1)"


def rendering(steps):
    """JavaScript that takes these steps with the page's render() and renderQuestion(), and an empty box."""
    modules, _ = bundle_page.modules(ROOT / "src/server/page", "markdown.js")
    return "(() => { %s const { render, renderQuestion } = module_markdown; const box = document.createElement('div'); %s })()" % (modules, steps)


def stream_of(pieces):
    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "data: " + json.dumps({"seed": 1, "choices": [choice]}) + "\n\n"

    return "".join(chunk({"content": piece}) for piece in pieces) + chunk({}, "stop") + "data: [DONE]\n\n"


def scripted(page, question, pieces):
    """An answer of the test's own, through all of the page."""
    page.hold("*" + CHAT)
    page.js("document.getElementById('input').focus()")
    page.paste(question)
    page.key("Enter")
    page.answer(200, stream_of(pieces), Content_Type="text/event-stream")
    ended(page)
    page.let_go()


def test_attacks_stay_text(w):
    page = w.page()
    for name, (attack, literal) in ATTACKS.items():
        scripted(page, name, attack)  # character by character
        n = len(page.requests)
        assert page.js(f"{INSPECT}({LAST})") == [], (name, page.js(f"{LAST}.outerHTML"))
        assert (literal or attack) in page.js(f"{LAST}.textContent"), (name, page.js(f"{LAST}.textContent"))
        bad, same = page.js(rendering(f"""
            const bad = [], text = {json.dumps(attack)}, whole = document.createElement('div');
            for (let i = 1; i <= text.length; ++i) {{
              render(box, text.slice(0, i), true);
              bad.push(...{INSPECT}(box));
            }}
            render(whole, text, true);
            return [bad, box.isEqualNode(whole)];"""))
        assert bad == [] and same, (name, bad)
        page.browser.wait(0.02)
        assert len(page.requests) == n, (name, list(page.requests.values())[n:])
    scripted(page, "<img src=x onerror=window.hit=1>", ["fine"])  # in one's own words, and in the list of chats
    page.click("#new")
    scripted(page, "<img src=x onerror=window.hit=1>", ["fine"])
    assert page.js("document.querySelectorAll('.user .text *, #history .open *').length") == 0
    assert page.js("window.hit ?? 0") == 0
    assert {r["url"].split("/")[2] for r in page.requests.values()} == {w.server.url.split("/")[2]}
    assert page.complaints == [], page.complaints
    page.close()


def test_the_inspection_sees_what_it_forbids(w):
    page = w.page()
    make = """((name, attributes) => {
        const box = document.createElement('div'), node = document.createElement(name);
        for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
        box.append(node);
        return box;
    })"""
    for name, attributes in (("img", {}), ("p", {"id": "x"}), ("div", {"style": "x"}), ("a", {"href": "https://x"}),
                             ("a", {"href": "javascript:x", "rel": "noopener noreferrer"})):
        assert page.js(f"{INSPECT}({make}({name!r}, {json.dumps(attributes)}))") != [], name
    page.close()


def test_markdown_is_shown(w):
    page = w.page()
    # Which fonts a machine has decides how roots and brackets are drawn (reach_checks.py looks at both ways).
    roots, brackets = page.js(rendering("return [module_math_fonts.rootsGrow(), module_math_fonts.bracketsGrow()];"))
    for source, html in SHOWN.items():
        if "pmatrix" in source and not brackets:
            continue
        if not roots:
            html = html.replace("<msqrt>", '<mrow><mo stretchy="false">√</mo><mrow class="lined-above">').replace("</msqrt>", "</mrow></mrow>")
        got = page.js(rendering(f"render(box, {json.dumps(source)}); return box.innerHTML;"))
        assert got == html, (source, got)
    page.close()


def test_rendering_is_linear(w):
    page = w.page()
    for name, text in LONG.items():
        took = page.js(rendering(f"""
            const began = performance.now();
            render(box, {json.dumps(text)}, true);
            return performance.now() - began;"""), seconds=600)
        assert took < 10_000, (name, took)  # some 100 ms on a quiet machine; a busy one must not decide
    page.close()


def test_a_growing_answer_keeps_selection_and_scroll(w):
    page = w.page()
    kept = page.js(rendering("""
        const text = 'one two\\n\\n```\\n' + 'x'.repeat(2000) + '\\n```\\n\\nmore';
        document.body.append(box);
        box.style.width = '100px';
        render(box, text);
        const pre = box.querySelector('pre'), p = box.querySelector('p');
        pre.scrollLeft = 50;
        getSelection().setBaseAndExtent(p.firstChild, 0, p.firstChild, 3);
        render(box, text + ' and more\\n\\n- and');
        return [pre.isConnected && pre.scrollLeft, String(getSelection()), box.lastChild.nodeName];"""))
    assert kept == [50, "one", "UL"], kept
    page.close()


TESTS = [test_attacks_stay_text, test_the_inspection_sees_what_it_forbids, test_markdown_is_shown,
         test_rendering_is_linear, test_a_growing_answer_keeps_selection_and_scroll]
