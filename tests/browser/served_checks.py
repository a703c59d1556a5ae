"""What the page knows of its server: how it samples, which models it has, how far a prompt is read, why an answer was cut."""
import json

from chat_checks import CHAT, ask, begin_long, ended, setting
from servers import harness
from work_checks import answered, events, say

FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens")
PLACEHOLDERS = f"Object.fromEntries({json.dumps(FIELDS)}.map((id) => [id, document.getElementById(id).placeholder]))"
NAMED = "document.getElementById('model').textContent"


def test_an_empty_field_is_the_servers(w):
    server = w.serve("--ctx", "512", "--temp", "0.1", "--top-k", "5", "--max-tokens", "20")
    page = w.page(server)
    page.until("document.getElementById('temperature').placeholder === '0.1'")
    assert page.js(PLACEHOLDERS) == {"temperature": "0.1", "top_p": "0.95", "top_k": "5", "min_p": "off", "repetition_penalty": "off",
                                     "seed": "random", "max_tokens": "20"}, page.js(PLACEHOLDERS)
    assert page.js(f"{json.dumps(FIELDS)}.map((id) => document.getElementById(id).value).join('')") == ""
    ask(page, "Tell me a story.")
    body, = page.bodies(CHAT)
    asked = {"messages", "stream", "stream_options", "return_progress"}
    assert set(body) == asked, body
    # It ends at the limit of the server's flag, and shows so: the context has room.
    assert page.text(".figures").endswith("ended at the server's max tokens"), page.text(".figures")
    page.until("!!document.querySelector('.go-on')")
    # What its user changed is sent, and no more.
    setting(page, "top_k", "7")
    ask(page, "And then?")
    assert set(page.bodies(CHAT)[-1]) == asked | {"top_k"}
    page.click("#drawer-button")
    page.click("#defaults")
    page.click("#drawer-close")
    ask(page, "And then?")
    assert set(page.bodies(CHAT)[-1]) == asked
    # Older pages wrote their own defaults into the settings, whatever the reader had changed.
    page.js("localStorage.setItem('ibid.settings', JSON.stringify({ temperature: 0.7, top_p: 0.95, min_p: 0.25 }))")
    page.go(server.url)
    assert page.js("['temperature', 'top_p', 'min_p'].map((id) => document.getElementById(id).value)") == ["", "", "0.25"]
    # A chosen 0.7 is a choice.
    setting(page, "temperature", "0.7")
    page.go(server.url)
    assert page.js("document.getElementById('temperature').value") == "0.7"
    server.kill()
    page.close()


def test_why_an_answer_was_cut(w):
    """Each bound is named: the reader's, the server's and the context, for one answer and for several."""
    page = w.page()
    page.until(NAMED + ".includes('2,048')")

    def stream(prompt_tokens, completion_tokens):
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        return events([{"content": "x"}], "length") .replace("data: [DONE]", "data: " + json.dumps({"choices": [], "usage": usage}) + "\n\ndata: [DONE]")

    def said():
        return page.text(".message:last-child .figures").rpartition(" · ")[2]

    answered(page, stream(34, 20), act=lambda: say(page, "A?"))
    assert said() == "ended at the server's max tokens" and page.js("!!document.querySelector('.message:last-child .go-on')")
    answered(page, stream(2000, 48), act=lambda: say(page, "B?"))
    assert said() == "ended because the context is full"
    assert not page.js("!!document.querySelector('.message:last-child .go-on')")  # it could not
    setting(page, "max_tokens", "48")
    answered(page, stream(2000, 48), act=lambda: say(page, "C?"))
    assert said() == "ended at max tokens"
    setting(page, "max_tokens", "500")
    answered(page, stream(2000, 48), act=lambda: say(page, "D?"))
    assert said() == "ended because the context is full"
    page.close()


def test_models_are_listed_and_kept_with_the_chat(w):
    path = w.server_model()
    server = harness.Server([harness.IBID, "serve", "--model", f"first={path}", "--model", f"second={path}", "--ctx", "512", "--port", "0", "--log-json"], seconds=600)
    try:
        page = w.browser.page(server.url + "/")
        page.until("!document.getElementById('model-choice').hidden")
        options = "[...document.getElementById('model-choice').options].map((o) => o.value)"
        assert page.js(options) == ["first", "second"], page.js(options)
        setting(page, "max_tokens", "4")
        take = "(() => { const n = document.getElementById('model-choice'); n.value = %r; n.dispatchEvent(new Event('change')); })()"
        ask(page, "Hello")
        assert page.bodies(CHAT)[-1]["model"] == "first"
        assert page.text(".figures").startswith("first · first token"), page.text(".figures")
        page.click("#new")
        page.js(take % "second")
        ask(page, "Hello to the second")
        assert page.bodies(CHAT)[-1]["model"] == "second"
        page.until("[...document.getElementById('model-choice').options].every((o) => o.text === o.value)", what="both are loaded")
        page.click("#new")
        assert page.js("document.getElementById('model-choice').value") == "second"  # the one that was chosen last
        page.js("[...document.querySelectorAll('#history .open')].find((n) => n.innerText === 'Hello').click()")
        assert page.js("document.getElementById('model-choice').value") == "first"
        page.go(server.url)  # and a reload knows it
        page.until("document.getElementById('model-choice').value === 'first' && document.querySelectorAll('.message').length === 2")
        ask(page, "Again")
        assert page.bodies(CHAT)[-1]["model"] == "first"
        page.click("#tab-engine")  # which shows the engine of that model
        page.until("document.getElementById('running').innerText === '0'")
        assert any("/engine?" in r["url"] and r["url"].endswith("&model=first") for r in page.requests.values())
        page.click("#tab-chat")
        for phone in (False, True):
            for dark in (False, True):
                page.look(390 if phone else 1280, 844 if phone else 800, dark, phone)
                w.check_look(page, "models", dark, phone)
        page.close()
    finally:
        server.kill()


def test_a_long_prompt_shows_how_far_it_is_read(w):
    server = w.serve("--ctx", "2048", "--max-tokens-per-step", "64")
    page = w.page(server)
    setting(page, "max_tokens", "2")
    page.js("""(() => {
        window.seen = [];
        const status = document.getElementById('status');
        new MutationObserver(() => window.seen.push(status.textContent)).observe(status, { childList: true });
      })()""")
    page.js("document.getElementById('input').focus()")
    page.paste("one two three four five " * 250)
    page.key("Enter")
    ended(page, 120)
    read = page.js("""window.seen.map((text) => /^Reading ([\\d,]+) of ([\\d,]+) tokens …/.exec(text))
        .filter(Boolean).map(([, n, of]) => [n, of].map((t) => Number(t.replace(',', ''))))""")
    numbers, total = [n for n, _ in read], {of for _, of in read}
    line = server.until(lambda: server.lines("chat"), "the request is logged")[-1]
    assert total == {line["prompt_tokens"]}, (read, line)
    assert len(set(numbers)) >= 5 and numbers == sorted(numbers), numbers
    server.kill()
    page.close()


def test_a_server_that_was_started_again_is_asked_again(w):
    server = w.serve("--ctx", "2048", "--temp", "0.2")
    page = w.page(server)
    page.until(NAMED + ".includes('2,048')")
    begin_long(page)
    server.kill()
    again = w.serve("--ctx", "512", "--temp", "0.9", port=server.port)
    page.until(NAMED + ".includes('context 512')")
    page.until("document.getElementById('temperature').placeholder === '0.9'")
    assert page.js("document.getElementById('fill-bar').max") == 512
    again.kill()
    # Where nothing failed, the next question finds it out.
    last = w.serve("--ctx", "1024", port=server.port)
    setting(page, "max_tokens", "4")
    page.click("#new")
    ask(page, "Hello")
    page.until(NAMED + ".includes('context 1,024')")
    assert page.js("document.getElementById('fill-bar').max") == 1024
    last.kill()
    page.close()


TESTS = [test_an_empty_field_is_the_servers, test_why_an_answer_was_cut, test_models_are_listed_and_kept_with_the_chat,
         test_a_long_prompt_shows_how_far_it_is_read, test_a_server_that_was_started_again_is_asked_again]
