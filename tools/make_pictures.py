#!/usr/bin/env python3
"""Makes the README's pictures of the page again, and those of docs/users/speculation.md: tools/make_pictures.py [BUILD_DIR]

Needs a built ibid, the default model (`build/ibid pull default`) and a headless Chromium. Asks a question and shows the
answer in the light theme, then the second view in the dark one while answers grow and further prompts come in pieces.
Writes docs/pictures/chat.png and docs/pictures/engine.png; what tools/speculation_pictures.py draws needs none of these, and comes first.
"""
import contextlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "browser"))
import chat_checks  # noqa: E402
import chromium  # noqa: E402
import speculation_pictures  # noqa: E402
from servers import Server, Streams  # noqa: E402

QUESTION = "Write three short tips for better sleep, as a list."
SYSTEM = "You are the keeper of a lighthouse on a far island, and you write down what you see. " * 8
N_GROUPS, N_STREAMS = 4, 4


def chat(browser, server, path):
    page = browser.page(server.url + "/", width=1000, height=760)
    page.until("document.getElementById('model').innerText.includes('context')")
    page.hold("*" + chat_checks.CHAT)
    page.js("document.getElementById('input').focus()")
    page.write(QUESTION)
    page.key("Enter")
    page.pass_on(temperature=0)
    page.let_go()
    chat_checks.ended(page)
    page.picture(path)
    page.close()


def engine(browser, server, path):
    page = browser.page(server.url + "/", width=1000, height=760, dark=True)
    page.click("#tab-engine")
    with contextlib.ExitStack() as streams:
        for i in range(N_GROUPS):  # each after a system prompt of its own, which its members share
            begin = server.engine()["steps_total"]
            streams.enter_context(Streams(server, N_STREAMS, f"Island {i}. {SYSTEM} What do you see? Night", 900))
            server.until(lambda: server.engine()["steps_total"] > begin + 30, "steps are made", 120)
        browser.wait(1)
        page.picture(path)
    page.close()


def main():
    speculation_pictures.draw(ROOT / "docs" / "pictures")
    program = chromium.find()
    if program is None:
        sys.exit("there is no Chromium; scripts/common.sh names its package among slow_packages")
    folder = ROOT / "docs" / "pictures"
    browser, server = chromium.Chromium(program), Server("--max-sequences", "16", "--max-tokens-per-step", "96", "--ctx", "2048")
    try:
        chat(browser, server, folder / "chat.png")
        engine(browser, server, folder / "engine.png")
    finally:
        browser.close()
        server.kill()


main()
