"""Headless Chromium over its DevTools pipe: the standard library alone. A Page acts as a user does (real keys, real
clicks at a place on the screen) and keeps what the browser reports: requests, console, exceptions, breaches of policy."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowLeft": (37, ""), "ArrowRight": (39, ""),
        " ": (32, " "), "PageUp": (33, ""), "ArrowUp": (38, ""), "/": (191, "/"),
        "ArrowDown": (40, ""), "Home": (36, ""), "End": (35, ""), "F2": (113, ""), "Delete": (46, ""), "?": (191, "?")}
SHIFT, CONTROL = 8, 2


def find():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    def __init__(self, program, **environment):
        self.folder = tempfile.mkdtemp(prefix="ibid-chromium-")
        ends = [*os.pipe(), *os.pipe()]
        theirs_in, self.out, self.inp, theirs_out = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
        for end in ends:
            os.close(end)

        def place():  # the browser reads from 3 and writes to 4
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        flags = ["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
                 "--user-data-dir=" + self.folder]
        if os.getuid() == 0:
            flags.append("--no-sandbox")
        null = subprocess.DEVNULL
        self.process = subprocess.Popen([program, *flags, "about:blank"], stdin=null, stdout=null, stderr=null,
                                        preexec_fn=place, pass_fds=(3, 4), env={**os.environ, **environment})
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest, self.last_id, self.pages = b"", 0, {}
        self.version = self.send("Browser.getVersion")["product"]

    def _take(self, seconds):
        """The messages that have come, or come within so many seconds."""
        if not select.select([self.inp], [], [], max(0, seconds))[0]:
            return []
        piece = os.read(self.inp, 1 << 20)
        if not piece:
            raise AssertionError("the browser has ended")
        *whole, self.rest = (self.rest + piece).split(b"\0")
        return [json.loads(text) for text in whole]

    def _note(self, message):
        if (page := self.pages.get(message.get("sessionId"))) and "method" in message:
            page.note(message["method"], message["params"])

    def send(self, method, session=None, seconds=600, **params):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        end, answer = time.monotonic() + seconds, None
        while answer is None:
            left = end - time.monotonic()
            assert left > 0, f"{method} was not answered"
            for got in self._take(left):
                if got.get("id") == message["id"]:
                    answer = got
                else:
                    self._note(got)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for message in self._take(left):
                self._note(message)

    def page(self, url=None, **look):
        """A page in a profile of its own: nothing is remembered from others."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        self.pages[session] = page
        page.look(**look)
        if url:
            page.go(url)
        return page

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.inp)
        os.close(self.out)
        for _ in range(50):  # its children end a little later, and write until then
            shutil.rmtree(self.folder, ignore_errors=True)
            if not os.path.exists(self.folder):
                break
            time.sleep(0.1)


class Page:
    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context
        self.requests, self.complaints, self.answers = {}, [], None
        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
            self.send(domain + ".enable")

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def note(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests[params["requestId"]] = params["request"]
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([arg.get("value") for arg in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Audits.issueAdded" and params["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.complaints.append(str(params["issue"]["details"]))
        elif method == "Fetch.requestPaused":
            self.answers.append(params)
        elif method == "Fetch.authRequired":
            self.asked.append(params)

    # ---- what the page is
    def js(self, expression, seconds=600):
        result = self.browser.send("Runtime.evaluate", self.session, seconds=seconds, expression=expression,
                                   returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"].get("exception", result["exceptionDetails"])
        return result["result"].get("value")

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def texts(self, selector):
        return self.js(f"[...document.querySelectorAll({json.dumps(selector)})].map((n) => n.innerText)")

    def until(self, expression, seconds=600, what=None):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.js(expression):
                return value
            self.browser.wait(0.03)
        raise AssertionError(f"{what or expression}: not within {seconds} s; the page says:\n{self.text('body')}")

    def look(self, width=1280, height=800, dark=False, phone=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.send("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def go(self, url):
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'", what="the page loads")

    def give_key(self, url, key):
        """Opens a page that asks for user and password, and gives the key as the password."""
        self.answers, self.asked = [], []
        self.send("Fetch.enable", patterns=[{"urlPattern": "*"}], handleAuthRequests=True)
        self.js(f"void setTimeout(() => {{ location.href = {json.dumps(url)}; }})")
        end = time.monotonic() + 60
        n_asked = 0
        is_loaded = "document.getElementById('model')?.innerText.includes('context') ?? false"
        while time.monotonic() < end:
            self.browser.wait(0.05)
            while self.asked:
                n_asked += 1
                self.send("Fetch.continueWithAuth", requestId=self.asked.pop(0)["requestId"],
                          authChallengeResponse={"response": "ProvideCredentials", "username": "user", "password": key})
            while self.answers:
                self.send("Fetch.continueRequest", requestId=self.answers.pop(0)["requestId"])
            if n_asked and not self.answers and self.js(is_loaded):
                break
        assert n_asked == 1, f"asked for a key {n_asked} times"
        self.send("Fetch.disable")

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    # ---- what a user does
    def key(self, name, modifiers=0):
        code, text = KEYS.get(name) or (ord(name.upper()), name)
        event = {"key": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        down = {"type": "keyDown", "text": text} if text and not modifiers & CONTROL else {"type": "rawKeyDown"}
        self.send("Input.dispatchKeyEvent", **down, **event)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text):
        for c in text:
            self.send("Input.dispatchKeyEvent", type="char", text=c)

    def paste(self, text):
        self.send("Input.insertText", text=text)

    def click(self, selector):
        """At the middle of what is seen; whatever lies above gets the click."""
        name = json.dumps(selector)
        self.js(f"document.querySelector({name}).scrollIntoView({{block: 'nearest'}})")
        x, y = self.js(f"""(() => {{ const box = document.querySelector({name}).getBoundingClientRect();
                           return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        self.click_at(x, y)

    def click_at(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def fill(self, selector, text):
        self.js(f"document.querySelector({json.dumps(selector)}).select()")
        self.paste(text)

    # ---- between page and server
    def hold(self, pattern):
        """Requests whose address matches wait for pass_on() or answer()."""
        self.answers = []
        self.send("Fetch.enable", patterns=[{"urlPattern": pattern}, {"urlPattern": "*/version?held"}])
        # The browser reports it before its network does it.
        for _ in range(100):
            self.js("void fetch('/version?held').catch(() => {})")
            self.browser.wait(0.02)
            if self.answers:
                return
        raise AssertionError("the browser does not hold requests")

    def held(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self.browser.wait(0.01)
            while self.answers:
                paused = self.answers.pop(0)
                if not paused["request"]["url"].endswith("?held"):
                    return paused
                self.send("Fetch.fulfillRequest", requestId=paused["requestId"], responseCode=204)
        raise AssertionError("the page asked nothing")

    def pass_on(self, **changes):
        """Sends the request on, with fields added to its JSON body."""
        paused = self.held()
        body = {**json.loads(paused["request"]["postData"]), **changes}
        self.send("Fetch.continueRequest", requestId=paused["requestId"],
                  postData=base64.b64encode(json.dumps(body).encode()).decode())
        return body

    def answer(self, status, body, **headers):
        self.send("Fetch.fulfillRequest", requestId=self.held()["requestId"], responseCode=status,
                  responseHeaders=[{"name": n.replace("_", "-"), "value": v} for n, v in headers.items()],
                  body=base64.b64encode(body.encode()).decode())

    def let_go(self):
        self.send("Fetch.disable")

    def bodies(self, path):
        """The JSON that the page posted to an address that ends so, in order."""
        requests = [r for r in self.requests.values() if r["url"].endswith(path) and "postData" in r]
        return [json.loads(r["postData"]) for r in requests]

    def close(self):
        self.browser.pages.pop(self.session)
        self.browser.send("Target.disposeBrowserContext", browserContextId=self.context)
