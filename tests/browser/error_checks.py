"""The page's messages for errors, and that trying again helps. Each on a server of its own."""
from chat_checks import CHAT, ask, begin_long, ended, setting
from servers import Streams, harness

KEY = "first-secret-key"
SENTENCE = "document.querySelector('.message.error .text')?.innerText"


def sentence(page):
    return page.until(SENTENCE, what="an error is shown")


def try_again(page):
    assert page.texts(".message.error button") == ["Try again"]
    page.click(".message.error button")
    ended(page)
    assert page.texts(".message.error") == [] and page.text(".assistant .text") != ""


def test_key_is_asked_for_and_a_wrong_one_is_reported(w):
    server = w.serve("--ctx", "512", key=KEY)
    page = w.browser.page()
    page.give_key(server.url + "/", KEY)
    setting(page, "max_tokens", "8")
    ask(page, "Hello")  # the browser sends the key by itself
    assert len(page.texts(".assistant")) == 1 and page.texts(".error") == []
    server.kill()
    again = w.serve("--ctx", "512", key="another-secret-key", port=server.port)
    ask(page, "Hello again")
    assert sentence(page) == "The server needs an API key. Reload this page and give the key as the password."
    page.click("#tab-engine")
    page.until("document.getElementById('engine-gone').innerText.startsWith('The server needs an API key')")
    page.click("#tab-chat")
    again.kill()
    last = w.serve("--ctx", "512", key=KEY, port=server.port)
    page.give_key(server.url + "/", KEY)  # the reload: the browser asks again, the chat is still there
    try_again(page)
    assert len(page.texts(".assistant")) == 2 and page.bodies(CHAT)[-1] == page.bodies(CHAT)[-2], page.bodies(CHAT)
    last.kill()
    page.close()


def test_busy(w):
    server = w.serve("--max-sequences", "1", "--max-waiting", "1", "--ctx", "2048")
    page = w.page(server)
    setting(page, "max_tokens", "8")
    with Streams(server, 1, "Tell me a story."):
        server.until(lambda: server.engine()["running"] == 1, "the first runs")
        with Streams(server, 1, "Tell me another."):
            server.until(lambda: server.engine()["waiting"] == 1, "the queue is full")
            ask(page, "Hello")
            assert sentence(page) == "The server is busy: as many requests wait as it takes. Try again in 1 s."
            ask(page, "Hello?")  # the unanswered question is not sent along
            assert page.bodies(CHAT)[-1]["messages"] == [{"role": "user", "content": "Hello?"}]
            assert "Not answered, so not sent along." in page.texts(".user")[0], page.texts(".message")
            assert len(page.texts(".error")) == 1, page.texts(".message")
    server.until(lambda: server.engine()["running"] == 0, "the others have gone")
    try_again(page)
    server.kill()
    page.close()


def test_server_goes_and_comes_back(w):
    server = w.serve("--ctx", "2048")
    page = w.page(server)
    begin_long(page)
    server.kill()
    assert sentence(page) == "The connection ended before the answer did."
    assert len(page.text(".assistant .text")) > 40  # what came is kept
    setting(page, "max_tokens", "8")
    page.click(".message.error button")
    page.until(SENTENCE + " === 'The server does not answer. Is it still running?'")
    page.click("#tab-engine")
    page.until("document.getElementById('engine-gone').innerText.startsWith('The server does not answer')")
    back = w.serve("--ctx", "2048", port=server.port)
    page.until("document.getElementById('engine-gone').hidden && document.getElementById('running').innerText === '0'")
    page.click("#tab-chat")
    try_again(page)
    back.kill()
    page.close()


def test_opened_while_the_model_loads(w):
    with harness.Server([harness.FAKE, 0, 1, 2500], ready=False) as server:
        page = w.page(server)
        page.until("document.getElementById('model').innerText === 'the model is loading …'")
        ask(page, "Hello")
        assert sentence(page) == "The model is still loading. Try again in 1 s."
        page.click("#tab-engine")
        page.until("document.getElementById('engine-gone').innerText === 'The model is still loading.'")
        page.until("document.getElementById('model').innerText.startsWith('fake-1 · context')")
        page.until("document.getElementById('engine-gone').hidden")
        page.click("#tab-chat")
        try_again(page)
        page.close()


def test_context_full(w):
    server = w.serve("--ctx", "256")
    page = w.page(server)
    page.js("document.getElementById('input').focus()")
    page.paste("one two three " * 400)
    page.key("Enter")
    said = sentence(page)  # a new chat has no more room, and is not offered
    assert said.startswith("The question is too long. ") and "256" in said, said
    assert page.texts(".error button") == []
    page.click("#new")
    setting(page, "max_tokens", "8")
    ask(page, "Hello")
    page.js("document.getElementById('input').focus()")
    page.paste("one two three " * 400)
    page.key("Enter")
    said = sentence(page)
    assert said.startswith("The context is full. ") and said.endswith("Start a new chat, or ask for less."), said
    assert page.texts(".error button") == ["New chat"]
    page.click(".error button")
    assert page.texts(".message") == [] and page.js("document.activeElement.id") == "input"
    setting(page, "max_tokens", "")
    page.js("document.getElementById('input').focus()")
    page.hold("*" + CHAT)
    page.write("Hello")
    page.key("Enter")
    page.pass_on(ignore_eos=True)
    page.let_go()
    ended(page)
    assert page.text(".figures").endswith("ended because the context is full"), page.text(".figures")
    server.kill()
    page.close()


def test_a_wrong_parameter_is_named(w):
    page = w.page()
    setting(page, "temperature", "-1")
    assert page.js("document.getElementById('temperature').matches(':invalid')")
    ask(page, "Hello")
    assert sentence(page).startswith("temperature must be a number from 0"), sentence(page)
    setting(page, "temperature", "0")
    setting(page, "max_tokens", "8")
    try_again(page)
    page.close()


def test_a_proxys_page_is_no_riddle(w):
    page = w.page()
    page.hold("*" + CHAT)
    page.js("document.getElementById('input').focus()")
    page.write("Hello")
    page.key("Enter")
    page.answer(502, "<h1>Bad gateway</h1>", Content_Type="text/html")
    assert sentence(page) == "The server answered with status 502."
    page.click(".message.error button")
    page.answer(200, "data: {nonsense\n\n", Content_Type="text/event-stream")
    page.until(SENTENCE + "?.startsWith('The answer of the server could not be read')")
    page.let_go()
    page.close()


TESTS = [test_key_is_asked_for_and_a_wrong_one_is_reported, test_busy, test_server_goes_and_comes_back,
         test_opened_while_the_model_loads, test_context_full, test_a_wrong_parameter_is_named,
         test_a_proxys_page_is_no_riddle]
