"""What a user does in the first view, on the real engine."""
import re
import urllib.request

from chromium import SHIFT

LONG = "Tell me a long story about a lighthouse, its keeper and the sea."
CHAT = "/v1/chat/completions"
# What has one of these roles must have a name.
ROLES = ("button", "tab", "textbox", "spinbutton", "link", "img", "tabpanel", "tablist", "region", "complementary")
# Pixels between what is seen of the messages and their end; how far down it is; how long all are.
AWAY = "((n) => n.scrollHeight - n.scrollTop - n.clientHeight)(document.getElementById('scroll'))"
TOP = "document.getElementById('scroll').scrollTop"
HIGH = "document.getElementById('scroll').scrollHeight"


def ask(page, text, seconds=600):
    """By keyboard; returns when the answer has ended."""
    page.js("document.getElementById('input').focus()")
    page.write(text)
    page.key("Enter")
    ended(page, seconds)


def setting(page, name, value):
    """In the drawer, which is closed again."""
    page.click("#drawer-button")
    page.fill("#" + name, str(value))
    page.click("#drawer-button")


def nth_chat(page, i, part):
    """A selector of a part of the list's line i, which may stand below any of its days."""
    page.js("document.querySelectorAll('#history [data-nth]').forEach((n) => delete n.dataset.nth)")
    page.js(f"document.querySelectorAll('#history li')[{i}].dataset.nth = {i}")
    return f"#history [data-nth='{i}'] {part}"


def ended(page, seconds=600):
    done = "document.getElementById('halt').hidden && !document.querySelector('.writing')"
    page.until(done, seconds, "the answer ends")


def begin_long(page, text=LONG, n_tokens=2000):
    """Asks for an answer that does not end by itself; returns when some of it is there."""
    page.hold("*" + CHAT)
    page.js("document.getElementById('input').focus()")
    page.write(text)
    page.key("Enter")
    page.pass_on(ignore_eos=True, max_tokens=n_tokens, seed=1)  # other seeds may have few lines
    page.let_go()
    page.until("document.querySelector('.writing .text')?.innerText.length > 40", what="text streams in")


def test_loads_offline_under_a_strict_policy(w):
    page = w.page()
    page.until("document.getElementById('model').innerText.includes('context')")
    # The page, its script, its style sheet and its picture; then which models there are and how they sample.
    paths = sorted(r["url"][len(w.server.url):].partition("?")[0] for r in page.requests.values())
    assert paths == ["/", "/app.css", "/app.js", "/icon.svg", "/props", "/v1/models"], paths
    origins = {re.match(r"[a-z]+://[^/]+|[a-z]+:", r["url"])[0] for r in page.requests.values()}
    assert origins == {w.server.url}, origins
    assert page.complaints == [], page.complaints
    for path in sorted({r["url"][len(w.server.url):] for r in page.requests.values() if "/v1/" not in r["url"] and "/props" not in r["url"]}):
        with urllib.request.urlopen(w.server.url + path) as response:
            parts = response.headers["Content-Security-Policy"].split(";")
            policy = dict(part.strip().partition(" ")[::2] for part in parts)
            assert response.headers["X-Content-Type-Options"] == "nosniff", path
        assert policy["default-src"] == "'none'" and policy["base-uri"] == policy["form-action"] == "'none'", policy
        for source in ("script-src", "style-src", "connect-src", "img-src"):
            assert policy[source] == "'self'", policy
        assert policy["frame-ancestors"] == "'none'" and policy["require-trusted-types-for"] == "'script'", policy
    # The policy holds, and a breach of it would have been noted above.
    assert page.js("Promise.try(() => { document.body.innerHTML = '<b>'; }).catch((e) => e.name)") == "TypeError"
    assert page.js("fetch('http://localhost:1/').then(() => 'sent', (e) => e.name)") == "TypeError"
    assert len(page.complaints) >= 2, page.complaints
    page.close()


def test_files_are_readable(w):
    for path in (w.root / "src/server/page").iterdir():
        text = path.read_text()
        assert text.count("\n") <= 400, path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), path
        assert not re.search(r"https?://(?!www\.w3\.org/)[a-z]", text), path


def test_keyboard_streaming_and_figures(w):
    page = w.page()
    assert page.js("document.activeElement.id") == "input"
    page.js("document.activeElement.blur()")
    page.key("/")
    assert page.js("document.activeElement.id") == "input"
    page.write("Tell me a story.")
    page.key("Enter", SHIFT)
    page.write("A long one.")
    assert page.js("document.getElementById('input').value") == "Tell me a story.\nA long one."
    page.hold("*" + CHAT)
    page.key("Enter")
    assert page.js("document.getElementById('input').value") == ""
    page.pass_on(ignore_eos=True, max_tokens=150)
    page.let_go()
    lengths = []
    page.until("!!document.querySelector('.writing')")
    while page.js("!!document.querySelector('.writing')"):
        lengths.append(page.js("document.querySelector('.assistant .text').innerText.length"))
        w.browser.wait(0.05)
    assert len(set(lengths)) >= 4 and lengths == sorted(lengths), lengths
    shown = page.text(".figures")
    first, speed, tokens, prompt = map(float, re.match(
        r"first token ([\d.]+) s · ([\d.]+) tokens/s · (\d+) tokens · (\d+) prompt tokens", shown).groups())
    line = w.server.until(lambda: w.server.lines("chat"), "the request is logged")[-1]
    assert tokens == line["completion_tokens"] == 150 and prompt == line["prompt_tokens"], (shown, line)
    assert line["ttft_ms"] / 1000 - 0.01 <= first <= line["ttft_ms"] / 1000 + 1.5, (shown, line)
    theirs = 149000 / (line["total_ms"] - line["ttft_ms"])
    assert theirs / 2.5 < speed < 2.5 * theirs, (shown, line)
    page.close()


def test_history_and_parameters_reach_the_request(w):
    page = w.page()
    values = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "max_tokens": 24,
              "seed": 12345, "stop": "\u00a7"}
    for name, value in {"system": "You are terse.", **values}.items():
        setting(page, name, value)
    ask(page, "Name a colour.")
    ask(page, "And another?")
    first, second = page.bodies(CHAT)
    common = {"stream": True, "return_progress": True,
              "stream_options": {"include_usage": True, "continuous_usage_stats": True}, **values}
    system = {"role": "system", "content": "You are terse."}
    assert first == {"messages": [system, {"role": "user", "content": "Name a colour."}], **common}, first
    # The same request gives the same bytes: what the page took for the answer is the answer.
    answer = w.server.post(CHAT, {**first, "stream": False, "stream_options": None})["choices"][0]["message"]["content"]
    assert second == {"messages": [*first["messages"], {"role": "assistant", "content": answer},
                                   {"role": "user", "content": "And another?"}], **common}, (second, answer)
    assert "of them cached" in page.texts(".figures")[1], page.texts(".figures")
    page.click("#drawer-button")
    page.click("#defaults")
    page.click("#drawer-close")
    ask(page, "A third.")
    assert {k: v for k, v in page.bodies(CHAT)[2].items() if k in values} == {}
    page.close()


def test_reload_keeps_new_chat_clears_delete_forgets(w):
    page = w.page()
    setting(page, "max_tokens", "12")
    ask(page, "First chat, one.")
    ask(page, "First chat, two.")
    before = page.texts(".message > .text")
    assert len(before) == 4, before
    page.go(w.server.url)
    page.until("document.querySelectorAll('.message').length === 4")
    assert page.texts(".message > .text") == before and page.js("document.getElementById('max_tokens').value") == "12"
    page.click("#new")
    assert page.texts(".message > .text") == [] and page.texts("#history .open") == ["First chat, one."]
    ask(page, "Second chat.")
    assert page.bodies(CHAT)[-1]["messages"] == [{"role": "user", "content": "Second chat."}]
    assert page.texts("#history .open") == ["Second chat.", "First chat, one."]
    page.click(nth_chat(page, 1, ".open"))
    assert page.texts(".message > .text") == before
    ask(page, "First chat, three.")
    assert len(page.bodies(CHAT)[-1]["messages"]) == 5
    for press in ("×", "Delete?"):
        assert page.text(nth_chat(page, 0, ".drop")) == press
        page.click(nth_chat(page, 0, ".drop"))
    assert page.texts("#history .open") == ["Second chat."] and page.texts(".message > .text") == []
    # A reload in the midst of an answer loses nothing that was there.
    begin_long(page)
    page.go(w.server.url)
    page.until("document.querySelectorAll('.message').length === 2")
    assert page.texts(".message > .text")[0] == LONG and len(page.texts(".message > .text")[1]) > 40
    page.close()


def test_stop_frees_the_engine(w):
    page = w.page()
    for stop in (lambda: page.click("#halt"), lambda: page.key("Escape"),
                 lambda: (page.js("document.getElementById('halt').focus()"), page.key("Enter"))):
        aborted = w.server.metric('ibid_aborts_total{cause="client_gone"}')
        n_lines = len(w.server.lines("chat"))
        begin_long(page)
        assert w.server.engine()["running"] == 1, w.server.engine()
        stop()
        w.server.until(lambda: w.server.engine()["running"] == 0, "the engine stops")
        assert w.server.engine()["blocks"]["in_use"] == 0
        line = w.server.until(lambda: w.server.lines("chat")[n_lines:], "the request is logged")[0]
        assert line["finish"] == "client_gone" and 0 < line["completion_tokens"] < 1990, line
        assert w.server.metric('ibid_aborts_total{cause="client_gone"}') == aborted + 1
        text = page.text(".message:last-child > .text")
        assert page.js("!document.getElementById('send').hidden && document.getElementById('halt').hidden")
        assert page.text(".message:last-child .figures").endswith("stopped")
        w.browser.wait(0.2)
        assert page.text(".message:last-child > .text") == text
    assert page.js("document.activeElement.id") == "input"  # not lost with the button
    assert page.complaints == [], page.complaints
    page.close()


def test_again_asks_the_same(w):
    page = w.page()
    setting(page, "max_tokens", "16")
    setting(page, "seed", "7")
    ask(page, "Name three rivers.")
    said = page.text(".assistant .text")
    page.click(".assistant .again")
    ended(page)
    first, second = page.bodies(CHAT)
    assert first == second and page.texts(".user .text") == ["Name three rivers."]
    assert page.texts(".assistant .text") == [said]
    page.close()


def test_a_screen_reader_hears_sentences(w):
    page = w.page()
    assert page.js("document.getElementById('spoken').getAttribute('aria-live')") == "polite"
    begin_long(page, n_tokens=250)
    assert page.js("document.querySelector('.writing').getAttribute('aria-busy')") == "true"
    heard = []
    while page.js("!!document.querySelector('.writing')"):
        heard.append(page.js("[...document.querySelectorAll('#spoken p')].map((n) => n.textContent)"))
        w.browser.wait(0.05)
    last = page.js("[...document.querySelectorAll('#spoken p')].map((n) => n.textContent)")
    for one, next_one in zip(heard, [*heard[1:], last]):
        assert next_one[:len(one)] == one  # what was said is not said again
    assert len(last) > 2 and all(re.search(r"[.!?:\n]\s?$", part) for part in last[:-1]), last
    whole = page.js("document.querySelector('.assistant .text').textContent")
    assert "".join("".join(last).split()) == "".join(whole.split())
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in ROLES:
            assert node["name"].get("value") or node.get("ignored"), node
    page.close()


def test_long_chats_follow_only_who_is_at_the_end(w):
    page = w.page(height=500)
    begin_long(page)
    page.until(f"{HIGH} > 900")
    assert page.js(AWAY) < 60 and page.js("document.getElementById('latest').hidden")
    page.send("Input.dispatchMouseEvent", type="mouseWheel", x=700, y=200, deltaX=0, deltaY=-400)
    page.until("!document.getElementById('latest').hidden")
    place, high = page.js(TOP), page.js(HIGH)
    page.until(f"{HIGH} > {high + 60}")
    assert page.js(TOP) == place
    page.click("#latest")
    page.until(f"{AWAY} < 60")
    high = page.js(HIGH)
    page.until(f"{HIGH} > {high + 60}")
    assert page.js(AWAY) < 60
    page.key("Escape")
    ended(page)
    page.close()


TESTS = [test_loads_offline_under_a_strict_policy, test_files_are_readable, test_keyboard_streaming_and_figures,
         test_history_and_parameters_reach_the_request, test_reload_keeps_new_chat_clears_delete_forgets,
         test_stop_frees_the_engine, test_again_asks_the_same, test_a_screen_reader_hears_sentences,
         test_long_chats_follow_only_who_is_at_the_end]
