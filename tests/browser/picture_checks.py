"""Pictures of a question: chosen, dropped and pasted, sent, shown and kept, for a model that reads them and for one that
does not. The model is the golden one of tests/golden/qwen3vl_chat."""
import base64
import json

from chat_checks import CHAT, ask
from look_checks import looks
from work_checks import answered, events, say

# Pixels of a picture that are not those of an empty canvas.
DRAWN = """((n) => n && n.width !== 300 && n.getContext('2d').getImageData(0, 0, n.width, n.height).data.some((v) => v !== 0))(
    document.querySelector('%s'))"""
GIVE = """((kind, name, type, base64) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], name, { type }));
    const event = kind === 'drop' ? new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }) :
      new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true });
    document.getElementById('input').dispatchEvent(event);
    return event.defaultPrevented; })"""
# Another format of the same picture, as the browser writes it.
AS_TYPE = """createImageBitmap(new Blob([Uint8Array.from(atob('%s'), (c) => c.charCodeAt(0))])).then((bitmap) => {
    const node = document.createElement('canvas');
    node.width = bitmap.width, node.height = bitmap.height;
    node.getContext('2d').drawImage(bitmap, 0, 0);
    return node.toDataURL('%s').split(',')[1]; })"""


def give(page, kind, name, mime, data):
    assert page.js(f"{GIVE}({json.dumps(kind)}, {json.dumps(name)}, {json.dumps(mime)}, {json.dumps(data)})"), name


def choose(page, *files):
    node = page.send("DOM.querySelector", nodeId=page.send("DOM.getDocument")["root"]["nodeId"], selector="#attach-file")
    page.send("DOM.setFileInputFiles", files=[str(file) for file in files], nodeId=node["nodeId"])


def attached(page, n):
    page.until(f"document.querySelectorAll('#attached li').length === {n}")


def url(kind, data):
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def says(page, sentence):
    page.until(f"document.getElementById('status').innerText === {json.dumps(sentence)}")


def reads(w):
    """A page of a server whose model reads pictures."""
    model = w.root / "tests/golden/qwen3vl_chat"
    server = w.serve(model=model)
    page = w.page(server)
    page.until("document.getElementById('model').innerText.includes('context')")
    return model, server, page


def test_pictures(w):
    model, server, page = reads(w)
    one, two = (base64.b64encode((model / name).read_bytes()).decode() for name in ("one.png", "two.png"))
    jpeg, webp = (page.js(AS_TYPE % (two, f"image/{kind}")) for kind in ("jpeg", "webp"))
    choose(page, model / "one.png")
    attached(page, 1)
    give(page, "drop", "photo.jpg", "image/jpeg", jpeg)
    attached(page, 2)
    give(page, "paste", "image.webp", "", webp)  # what it is, is read from its bytes
    attached(page, 3)
    give(page, "drop", "gone.png", "image/png", two)
    attached(page, 4)
    page.click("#attached li:nth-child(4) button")
    attached(page, 3)
    assert page.js(DRAWN % "#attached li:nth-child(3) .picture")
    looks(page, w, "attached_pictures")
    body, = answered(page, events([{"content": "Three."}]), act=lambda: say(page, "What are they?"))
    parts = [url("png", one), url("jpeg", jpeg), url("webp", webp)]
    assert body["messages"] == [{"role": "user", "content": [*parts, {"type": "text", "text": "What are they?"}]}], body
    shown = "[...document.querySelectorAll('.user .picture')].map((n) => n.getAttribute('aria-label'))"
    names = ["Picture one.png", "Picture photo.jpg", "Picture image.webp"]
    assert page.js(shown) == names and page.js("document.getElementById('attached').hidden")
    looks(page, w, "pictures")
    # They are kept, sent with the next question, and with another version of theirs.
    page.go(server.url)
    page.until(f"{shown}.length === 3")
    page.until(DRAWN % ".user .picture")
    page.until("document.getElementById('model').innerText.includes('context')")
    ask(page, "And now?")
    assert page.bodies(CHAT)[-1]["messages"][0] == body["messages"][0] and len(page.bodies(CHAT)[-1]["messages"]) == 3
    assert page.js("document.querySelectorAll('.message.error').length") == 0, page.text("#messages")
    page.click(".user .edit-button")
    page.paste("Which of ")
    another, = answered(page, events([{"content": "This."}]), act=lambda: page.key("Enter"))
    assert another["messages"][0]["content"][:3] == parts and another["messages"][0]["content"][3]["text"] != "What are they?"
    assert page.js(shown) == names and page.complaints == [], page.complaints
    page.close()


def test_a_picture_without_words_is_a_question(w):
    model, server, page = reads(w)
    choose(page, model / "two.png")
    attached(page, 1)
    page.js("document.getElementById('input').focus()")
    two = base64.b64encode((model / "two.png").read_bytes()).decode()
    body, = answered(page, events([{"content": "A picture."}]), act=lambda: page.key("Enter"))
    assert body["messages"] == [{"role": "user", "content": [url("png", two)]}], body
    assert page.texts("#history .open") == ["two.png"]
    page.close()


def test_what_is_no_picture_is_not_attached(w):
    model, server, page = reads(w)
    data = (model / "one.png").read_bytes()
    encoded = lambda content: base64.b64encode(content).decode()
    give(page, "drop", "cut.png", "image/png", encoded(data[:30]))
    says(page, "cut.png cannot be read as a picture.")
    give(page, "drop", "cat.gif", "image/gif", encoded(b"GIF89a\0\xff" + data))
    says(page, "cat.gif is neither text nor a picture (PNG, JPEG, WebP), and cannot be read.")
    page.js("""(() => { const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from([0xff, 0xd8, 0xff]), new Uint8Array(6 << 20)], 'large.jpg'));
        document.getElementById('input').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })); })()""")
    says(page, "large.jpg is larger than 5 MiB.")
    assert page.js("document.getElementById('attached').hidden")
    # What an import brings is no address of elsewhere.
    given = {"ibid_chats": 1, "chats": [{"id": "x", "title": "", "changed": 1, "leaf": 0, "messages": [
        {"role": "user", "parent": -1, "content": "A", "pictures": [
            {"name": "far", "url": "http://localhost:1/a.png"}, {"name": "bad", "url": "data:image/png;base64,@"},
            {"name": "svg", "url": "data:image/svg+xml;base64,AAAA"}, {"name": "near", "url": "data:image/png;base64," + encoded(data)}]}]}]}
    page.js("""(() => { const data = new DataTransfer(), field = document.getElementById('import-file');
        data.items.add(new File([%s], 'chats.json'));
        field.files = data.files;
        field.dispatchEvent(new Event('change')); })()""" % json.dumps(json.dumps(given)))
    page.until("document.querySelectorAll('#history .open').length === 1")
    page.click("#history .open")
    page.until("document.querySelectorAll('.user .picture').length === 2")
    page.until("document.querySelectorAll('.user .picture.unreadable').length === 1")
    page.until(DRAWN % ".user .picture:not(.unreadable)")
    assert page.complaints == [], page.complaints
    page.close()


def test_a_model_without_a_tower_gets_no_pictures(w):
    server = w.serve("--mmproj", "none", model=w.root / "tests/golden/qwen3vl_chat")
    page = w.page(server)
    page.until("document.getElementById('model').innerText.includes('context')")
    choose(page, w.root / "tests/golden/qwen3vl_chat/one.png")
    says(page, "one.png is a picture. This model reads no pictures.")
    assert page.js("document.getElementById('attached').hidden")
    page.close()


TESTS = [test_pictures, test_a_picture_without_words_is_a_question, test_what_is_no_picture_is_not_attached,
         test_a_model_without_a_tower_gets_no_pictures]
