"""What a user does with chats: versions, files, tools, a form of the answer, several answers, going on, tokens; and with
many chats: search, names, export and import. Where the model's words matter they are the test's own."""
import json
import pathlib
import tempfile

from chat_checks import CHAT, ask, begin_long, ended, setting
from look_checks import looks

SHOWN = "[...document.querySelectorAll('.message > .text, .beside .text')].map((n) => n.innerText)"
WEATHER = {"name": "weather", "description": "The weather of a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
MANY = 120


def events(deltas, finish="stop", **more):
    def chunk(delta, finish=None, **extra):
        return "data: " + json.dumps({"seed": 1, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **extra}]}) + "\n\n"

    return "".join(chunk(delta, **more) for delta in deltas) + chunk({}, finish) + "data: [DONE]\n\n"


def answered(page, *streams, act):
    """What act() asks gets these streams for answers, one after the other; returns the bodies of the requests."""
    n = len(page.bodies(CHAT))
    page.hold("*" + CHAT)
    act()
    for stream in streams:
        page.answer(200, stream, Content_Type="text/event-stream")
        ended(page)
    page.let_go()
    return page.bodies(CHAT)[n:]


def say(page, text):
    page.js("document.getElementById('input').focus()")
    page.paste(text)
    page.key("Enter")


def chats(page, make):
    """Writes chats into the page's own database; `make` is JavaScript for chat number i."""
    page.js("""new Promise((done, fail) => {
        const request = indexedDB.open('ibid', 1);
        request.onerror = fail;
        request.onsuccess = () => {
          const write = request.result.transaction('chats', 'readwrite');
          for (let i = 0; i < %d; ++i) write.objectStore('chats').put((%s)(i));
          write.oncomplete = () => { request.result.close(); done(); };
        };
      })""" % (MANY, make))


def test_versions(w):
    page = w.page()
    words = [{"content": "one"}], [{"content": "two"}], [{"content": "three"}], [{"content": "four"}]
    first, second, third, fourth = map(events, words)
    answered(page, first, act=lambda: say(page, "A?"))
    answered(page, second, act=lambda: say(page, "B?"))
    assert page.js(SHOWN) == ["A?", "one", "B?", "two"]
    # Another answer to the first question: the second one stays, in the other version.
    body, = answered(page, third, act=lambda: page.click(".assistant .again"))
    assert [m["content"] for m in body["messages"]] == ["A?"]
    assert page.js(SHOWN) == ["A?", "three"] and page.text(".assistant .versions span") == "2 / 2"
    page.click(".assistant .earlier")
    assert page.js(SHOWN) == ["A?", "one", "B?", "two"] and page.text(".assistant .versions span") == "1 / 2"
    # Another question in the place of the second, by keyboard.
    def edit():
        page.js("document.getElementById('input').focus()")
        page.key("ArrowUp")
        assert page.js("document.activeElement.value") == "B?"
        page.js("document.activeElement.select()")
        page.paste("C?")
        page.key("Enter")

    body, = answered(page, fourth, act=edit)
    assert [m["content"] for m in body["messages"]] == ["A?", "one", "C?"]
    assert page.js(SHOWN) == ["A?", "one", "C?", "four"]
    page.go(w.server.url)
    page.until("document.querySelectorAll('.message').length === 4")
    assert page.js(SHOWN) == ["A?", "one", "C?", "four"]  # all of it is kept
    looks(page, w, "versions")
    page.click(".user:nth-child(3) .earlier")
    assert page.js(SHOWN) == ["A?", "one", "B?", "two"]
    assert page.complaints == [], page.complaints
    page.close()


def test_many_chats(w):
    page = w.page()
    chats(page, "(i) => ({ id: 'c' + i, title: '', changed: i + 1, leaf: 1, messages: [{ role: 'user', parent: -1, content: 'Question ' + i },"
                " { role: 'assistant', parent: 0, content: i === 7 ? 'A heron on one leg' : 'Answer' }] })")
    page.go(w.server.url)
    page.until(f"document.querySelectorAll('#history li').length === {MANY}")
    assert page.texts("#history .open")[0] == f"Question {MANY - 1}"
    page.fill("#search", "heron LEG")
    page.until("document.querySelectorAll('#history li').length === 1")
    assert page.texts("#history .open") == ["Question 7"]
    page.click("#history .open")
    page.until("document.querySelectorAll('.message').length === 2")
    page.js("document.querySelector('#history .open').focus()")
    page.key("ArrowRight")
    page.key("Enter")
    page.js("document.activeElement.select()")
    page.paste("Birds <b>")
    page.key("Enter")
    assert page.texts("#history .open") == ["Birds <b>"] and page.js("document.activeElement.className") == "open", page.texts("#history .open")
    # What the list shows goes to a file; it comes back after it was deleted, and broken files are reported.
    with tempfile.TemporaryDirectory() as folder:
        page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder, browserContextId=page.context)
        page.click("#export")
        file = w.server.until(lambda: next(pathlib.Path(folder).glob("*.json"), None), "the file is there")
        w.server.until(lambda: file.read_text().endswith("}"), "the file is whole")
        kept = json.loads(file.read_text())
        assert [chat["title"] for chat in kept["chats"]] == ["Birds <b>"] and kept["ibid_chats"] == 1
        for _ in range(2):
            page.click("#history .drop")
        page.fill("#search", "")
        page.until(f"document.querySelectorAll('#history li').length === {MANY - 1}")
        broken = [{"id": "x", "messages": [{"role": "user", "parent": 5, "content": "a loop"}]}, 3, {"id": "y", "messages": [{"role": "system"}]}]
        file.write_text(json.dumps({"ibid_chats": 1, "chats": kept["chats"] + broken}))
        for said in ("1 imported. 3 could not be read.", "0 imported. 1 were here already. 3 could not be read."):
            node = page.send("DOM.querySelector", nodeId=page.send("DOM.getDocument")["root"]["nodeId"], selector="#import-file")
            page.send("DOM.setFileInputFiles", files=[str(file)], nodeId=node["nodeId"])
            page.until(f"document.getElementById('history-said').innerText === {said!r}")
        file.write_text('{"ibid_chats": 1}')
        page.send("DOM.setFileInputFiles", files=[str(file)], nodeId=node["nodeId"])
        page.until("document.getElementById('history-said').innerText.startsWith('The file holds no chats')")
    page.go(w.server.url)
    page.until(f"document.querySelectorAll('#history li').length === {MANY}")
    assert "Birds <b>" in page.texts("#history .open") and page.js("document.querySelectorAll('#history b').length") == 0
    assert page.complaints == [], page.complaints
    page.close()


def test_who_asks_before_the_chats_are_there_loses_nothing(w):
    page = w.page()
    # The database opens late: only when the answer is over.
    page.send("Page.addScriptToEvaluateOnNewDocument", source="""(() => {
        const open = IDBFactory.prototype.open;
        IDBFactory.prototype.open = function (...given) {
          const late = {}, wanted = new Promise((go) => { window.openNow = go; });
          wanted.then(() => {
            const request = open.apply(this, given);
            for (const name of ['onsuccess', 'onerror', 'onupgradeneeded'])
              request[name] = (event) => { late.result = request.result; late[name]?.(event); };
          });
          return late;
        };
      })()""")
    page.go(w.server.url)
    answered(page, events([{"content": "early"}]), act=lambda: say(page, "Soon?"))
    page.js("window.openNow()")
    page.browser.wait(0.3)
    page.go(w.server.url)
    page.js("window.openNow()")
    page.until("document.querySelectorAll('.message').length === 2")
    assert page.js(SHOWN) == ["Soon?", "early"]
    page.close()


def test_chats_of_older_pages_are_taken_over(w):
    page = w.page()
    page.js("""localStorage.setItem('ibid.chats', JSON.stringify([{ id: 'old', messages: [{ role: 'user', content: 'Hello' },
        { role: 'error', content: 'busy' }, { role: 'user', content: 'Hello?' }, { role: 'assistant', content: 'Hi' }] }, 5]))""")
    page.go(w.server.url)
    page.until("document.querySelectorAll('#history li').length === 1")
    page.click("#history .open")
    assert page.js(SHOWN) == ["Hello", "Hello?", "Hi"]
    page.until("localStorage.getItem('ibid.chats') === null")  # once they are kept
    page.close()


def test_chats_that_are_not_kept_yet_stay_where_they_were(w):
    """A page that is left before its database has them: the next one finds them where the older one put them."""
    page = w.page()
    script = page.send("Page.addScriptToEvaluateOnNewDocument", source="""(() => {
        const put = IDBObjectStore.prototype.put;
        IDBObjectStore.prototype.put = function (...given) {
          const request = put.apply(this, given);
          this.transaction.abort();
          return request;
        };
      })()""")["identifier"]
    page.go(w.server.url)
    chat = "{ id: 'old', messages: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: 'Hi' }] }"
    page.js(f"localStorage.setItem('ibid.chats', JSON.stringify([{chat}]))")
    page.go(w.server.url)
    page.until("document.querySelectorAll('#history li').length === 1")
    page.browser.wait(0.3)
    assert page.js("localStorage.getItem('ibid.chats') !== null")
    page.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    page.go(w.server.url)
    page.until("document.querySelectorAll('#history li').length === 1")
    page.until("localStorage.getItem('ibid.chats') === null")
    page.go(w.server.url)
    page.until("document.querySelectorAll('#history li').length === 1")
    page.close()


def test_files(w):
    page = w.page()
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "notes.txt").write_text("line one\n```\nline two")
        (pathlib.Path(folder) / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
        node = page.send("DOM.querySelector", nodeId=page.send("DOM.getDocument")["root"]["nodeId"], selector="#attach-file")
        page.send("DOM.setFileInputFiles", files=[f"{folder}/notes.txt", f"{folder}/cat.png"], nodeId=node["nodeId"])
        page.until("document.querySelectorAll('#attached li').length === 1")
        page.until("document.getElementById('status').innerText === 'cat.png is a picture. This model reads no pictures.'")
    transfer = """((kind, text) => { const data = new DataTransfer();
        kind === 'drop' ? data.items.add(new File([text], 'dropped.csv')) : data.setData('text/plain', text);
        const event = kind === 'drop' ? new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }) :
          new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true });
        document.getElementById('input').dispatchEvent(event);
        return event.defaultPrevented; })"""
    assert page.js(transfer + "('drop', 'a,b')")
    page.until("document.querySelectorAll('#attached li').length === 2")  # a file is read in its own time, a paste at once
    assert page.js(transfer + "('paste', 'line\\n'.repeat(50))")
    assert not page.js(transfer + "('paste', 'short')")
    page.until("document.querySelectorAll('#attached li').length === 3")
    looks(page, w, "attached")
    page.click("#attached li:nth-child(3) button")
    body, = answered(page, events([{"content": "Read."}]), act=lambda: say(page, "Sum it up."))
    sent = body["messages"][0]["content"]
    assert sent == "notes.txt:\n````\nline one\n```\nline two\n````\n\ndropped.csv:\n```\na,b\n```\n\nSum it up.", sent
    assert page.texts(".user summary") == ["notes.txt · 21 characters", "dropped.csv · 3 characters"]
    assert not page.js("document.querySelector('.user details').open") and page.js("document.getElementById('attached').hidden")
    page.go(w.server.url)
    page.until("document.querySelectorAll('.user summary').length === 2")
    page.close()


def test_tools_and_reasoning(w):
    page = w.page()
    page.click("#drawer-button")
    page.fill("#tools", '{"name": 3}')
    assert page.text("#tools-wrong").startswith("Each tool in the settings needs a name")
    say(page, "Weather?")
    page.until("document.querySelector('.message.error .text')?.innerText.startsWith('Each tool in the settings needs a name')")
    page.fill("#tools", json.dumps([WEATHER]))
    page.click("#drawer-button")
    call = [{"reasoning_content": "I **look** "}, {"reasoning_content": "it up."}, {"content": "Let me see."},
            {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '"<b>Bonn</b>"}'}}]}]
    body, = answered(page, events(call, "tool_calls"), act=lambda: page.click(".message.error button"))
    assert body["tools"] == [{"type": "function", "function": WEATHER}] and "tool_choice" not in body, body
    assert page.texts(".call h3") == ["weather"] and json.loads(page.text(".call pre")) == {"city": "<b>Bonn</b>"}
    assert not page.js("document.querySelector('.think').open")
    page.click(".think summary")
    page.until("document.querySelector('.think strong')?.innerText === 'look'")
    looks(page, w, "calls")
    page.js("document.querySelector('.call-form textarea').focus()")
    page.paste("rain")
    body, = answered(page, events([{"content": "It rains."}]), act=lambda: page.click(".call-form button"))
    asked, called, result = body["messages"]
    assert called == {"role": "assistant", "content": "Let me see.", "reasoning_content": "I **look** it up.", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"<b>Bonn</b>"}'}}]}, called
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "rain"} and asked["content"] == "Weather?"
    assert page.texts(".result pre") == ["rain"] and page.text(".message:last-child > .text") == "It rains."
    # The real engine takes such a history, and a call that must be made is one.
    page.click("#drawer-button")
    page.js("(() => { const n = document.getElementById('tool_choice'); n.value = 'required'; n.dispatchEvent(new Event('input')); })()")
    page.click("#drawer-button")
    ask(page, "And in Rome?")
    page.until("document.querySelectorAll('.call').length === 2")
    assert "city" in json.loads(page.texts(".call pre")[1])
    page.js("[...document.querySelectorAll('.call-form button')].at(-1).scrollIntoView()")
    body, = answered(page, events([{"content": "Well."}]), act=lambda: page.click(".call-form button[type=button]"))
    assert body["messages"][-1]["content"] == "The user refused this call."
    assert page.complaints == [], page.complaints
    page.close()


def test_an_answer_of_a_schema(w):
    page = w.page()
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"], "additionalProperties": False}
    setting(page, "schema", json.dumps(schema))
    ask(page, "A colour?")
    assert json.loads(page.text(".message:last-child > .text code"))["colour"] in ("red", "blue")
    setting(page, "schema", "{")
    say(page, "Another?")
    page.until("document.querySelector('.message.error .text')?.innerText.startsWith('The JSON Schema in the settings is no JSON')")
    page.close()


def test_several_answers_and_going_on(w):
    page = w.page()
    for name, value in {"n": 3, "max_tokens": 12, "seed": 5, "temperature": 1}.items():
        setting(page, name, value)
    ask(page, "Name a fruit.")
    three = page.texts(".beside .text")
    assert len(three) == 3 and all(three) and len(page.texts(".beside .take")) == 2, three
    same = w.server.post(CHAT, {**page.bodies(CHAT)[0], "stream": False, "stream_options": None})["choices"]
    shown = page.js("[...document.querySelectorAll('.beside .text')].map((n) => n.textContent.trim().slice(0, 10))")
    assert [c["message"]["content"].strip()[:10] for c in same] == shown, (same, shown)
    looks(page, w, "beside")
    page.click(".beside .message:nth-child(2) .take")
    assert page.js("document.querySelector('.beside .message:nth-child(2)').classList.contains('chosen')")
    setting(page, "n", "")
    ask(page, "Why?")
    assert page.js("document.querySelectorAll('.beside').length") == 0
    body = page.bodies(CHAT)[1]
    assert body["messages"][1]["content"] == same[1]["message"]["content"], body
    assert page.text(".assistant .versions span") == "2 / 3"
    # Cut at max tokens, it goes on from its last byte: twice 12 tokens are 24 at once.
    setting(page, "temperature", 0)
    ask(page, "Tell me about the sea.")
    page.until("!!document.querySelector('.go-on')")
    assert page.text(".message:last-child .figures").endswith("ended at max tokens")
    page.click(".go-on")
    ended(page)
    body = page.bodies(CHAT)[-1]
    assert body["continue_final_message"] is True and body["add_generation_prompt"] is False and body["messages"][-1]["role"] == "assistant"
    question = {**body, "messages": body["messages"][:-1], "stream": False, "max_tokens": 24}
    for field in ("stream_options", "continue_final_message", "add_generation_prompt"):
        del question[field]
    at_once = w.server.post(CHAT, question)["choices"][0]["message"]["content"]
    page.hold("*" + CHAT)
    page.click(".go-on")
    both = page.held()["request"]
    assert json.loads(both["postData"])["messages"][-1]["content"] == at_once
    page.let_go()
    page.key("Escape")
    assert page.complaints == [], page.complaints
    page.close()


def test_tokens_rate_and_context(w):
    page = w.page()
    setting(page, "max_tokens", 10)
    setting(page, "seed", 4)
    page.click("#drawer-button")
    page.click("#logprobs")
    page.click("#drawer-button")
    ask(page, "Name a colour.")
    said = page.js("document.querySelector('.assistant > .text').textContent")
    page.click(".tokens-button")
    choice, = w.server.post(CHAT, {**page.bodies(CHAT)[0], "stream": False, "stream_options": None})["choices"]
    assert page.js("document.querySelector('.token-line').textContent") == choice["message"]["content"]
    tokens = page.texts(".token-line span")
    page.js("document.querySelector('.token-line').focus()")
    for i in range(1, 3):
        page.key("ArrowRight")
        assert page.js("[...document.querySelectorAll('.token-line span')].findIndex((n) => n.classList.contains('at'))") == i
        chosen = page.js("document.querySelector('.token-card .chosen').cells[0].innerText")
        assert chosen.replace("␣", " ").strip() == tokens[i].strip(), (chosen, tokens[i])
        assert page.js("document.querySelectorAll('.token-card tr').length") >= 5
    x, y = page.js("(({ x, y, width, height }) => [x + width / 2, y + height / 2])(document.querySelector('.token-line span').getBoundingClientRect())")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.until("document.querySelector('.token-line span').classList.contains('at')")
    looks(page, w, "tokens")
    page.click(".tokens-button")
    assert page.js("document.querySelector('.assistant > .text').textContent") == said
    used = w.server.until(lambda: w.server.lines("chat"), "the request is logged")[-1]
    used = used["prompt_tokens"] + used["completion_tokens"]
    assert page.text("#fill-words") == f"{used} of 2,048" and page.js("document.getElementById('fill-bar').value") == used, (used, page.text("#fill"))
    page.click("#new")
    assert page.js("document.getElementById('fill').hidden")
    begin_long(page)
    page.until("/^[\\d.]+ tokens\\/s · \\d+ tokens$/.test(document.getElementById('status').innerText)")
    fill = page.js("document.getElementById('fill-bar').value")
    page.until(f"document.getElementById('fill-bar').value > {fill + 5}")
    page.key("Escape")
    ended(page)
    assert page.complaints == [], page.complaints
    page.close()


TESTS = [test_versions, test_many_chats, test_who_asks_before_the_chats_are_there_loses_nothing, test_chats_of_older_pages_are_taken_over,
         test_chats_that_are_not_kept_yet_stay_where_they_were, test_files, test_tools_and_reasoning,
         test_an_answer_of_a_schema, test_several_answers_and_going_on, test_tokens_rate_and_context]
