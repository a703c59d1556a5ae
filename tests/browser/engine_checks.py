"""The second view under load: it shows the numbers of /engine."""
import json
import pathlib
import re

from servers import Streams

N_STREAMS = 20
PROMPT = "You are the keeper of a lighthouse on a far island. " * 12 + "What do you see tonight? Night"

SHOWN = (pathlib.Path(__file__).resolve().parent / "engine_shown.js").read_text()


def expected(engine, steps):
    tokens, blocks, last = engine["tokens"], engine["blocks"], steps[-1]
    return {"running": engine["running"], "waiting": engine["waiting"], "steps": engine["steps_total"],
            "generated": tokens["generated"], "prompt": tokens["prompt"], "hit-tokens": tokens["cached"],
            "hits": int(100 * tokens["cached"] / tokens["prompt"] + 0.5), "preemptions": engine["preemptions"],
            "cancelled": engine["cancelled"], "blocks-total": blocks["total"], "shared": blocks["shared"],
            "in_use": blocks["in_use"], "cached": blocks["cached"], "free": blocks["free"],
            **{"last-" + kind: last[kind] for kind in ("prefill", "decode", "accepted", "refused")},
            **{"last-" + part: float(f"{last[part + '_ms']:.2f}") for part in ("forward", "sample", "plan", "settle")}}


def agree(shown, want):
    return all(abs(shown[key] - value) < (0.011 if isinstance(value, float) else 0.001) for key, value in want.items())


class Answers:
    """What the page received from /engine, in order."""

    def __init__(self, page):
        self.page, self.bodies, self.taken = page, [], set()

    def take(self):
        for request, r in list(self.page.requests.items()):
            if "/engine?" in r["url"] and request not in self.taken:
                try:
                    body = self.page.send("Network.getResponseBody", requestId=request)["body"]
                    self.bodies.append(json.loads(body))
                    self.taken.add(request)
                except AssertionError:
                    pass  # still on its way
        return self.bodies

    def steps(self):
        return [step for body in self.bodies for step in body["steps"]]


def test_engine_view_shows_what_the_engine_reports(w):
    page = w.page()
    page.click("#tab-engine")
    page.until("document.getElementById('running').innerText === '0'")
    answers = Answers(page)
    most = dict.fromkeys(("running", "waiting", "shared", "in_use"), 0)
    n_agreed = 0
    before = w.server.engine()["steps_total"]
    with Streams(w.server, N_STREAMS, PROMPT, 1500):
        w.server.until(lambda: w.server.engine()["running"] == 16, "the streams run")
        w.server.until(lambda: w.server.engine()["steps_total"] > before + 10, "steps are made")
        for _ in range(12):
            w.browser.wait(0.35)
            shown = page.js(SHOWN)
            told = answers.take()
            ahead = [body["steps_total"] for body in told]
            match = [body for i, body in enumerate(told) if body["steps_total"] == shown["steps"]
                     and agree(shown, expected(body, [s for b in told[:i + 1] for s in b["steps"]]))]
            assert match or shown["steps"] not in ahead, (shown, told[-1])
            if not match:
                continue  # its answer had not been read back yet
            n_agreed += 1
            for key in most:
                most[key] = max(most[key], shown[key])
            heights = {step["n"]: {k: step[k] for k in ("decode", "accepted", "refused", "prefill") if step[k]} for step in answers.steps()}
            assert len(shown["bars"]) > 3 and all(bar == heights[n] for n, bar in shown["bars"]), shown["bars"]
            assert len(shown["rows"]) == N_STREAMS == len(match[-1]["requests"])
            for row, r in zip(shown["rows"], match[-1]["requests"]):
                assert row[0] == r["route"] and abs(float(row[1][:-2]) - r["age"]) < 0.051, (row, r)
                assert row[2:] == [str(r["prompt_tokens"]), str(r["generated"]), str(r["choices"])], (row, r)
            blocks = match[-1]["blocks"]
            kinds = {"shared": blocks["shared"], "in_use": blocks["in_use"] - blocks["shared"],
                     "cached": blocks["cached"], "free": blocks["free"]}
            for kind, n in kinds.items():
                assert abs(shown["squares"].get(kind, 0) - n / shown["square"]) <= 2, (kind, n, shown["squares"])
            assert blocks["free"] + blocks["cached"] + blocks["in_use"] == blocks["total"]
        for dark in (False, True):
            for phone in (False, True):
                page.look(390 if phone else 1280, 2000 if phone else 1400, dark, phone)  # high enough for all of it
                w.browser.wait(0.5)
                w.check_look(page, "engine", dark, phone)
    assert n_agreed >= 6, n_agreed
    assert most["running"] == 16 and most["waiting"] == N_STREAMS - 16, most
    assert most["shared"] > 5 and most["in_use"] > most["shared"], most
    # At rest it equals what other clients get.
    w.server.until(lambda: w.server.engine()["running"] == 0, "the streams end")
    page.look()
    engine = w.server.engine()
    page.until(f"document.getElementById('steps').innerText.replaceAll(',', '') === '{engine['steps_total']}'")
    w.browser.wait(0.5)
    want, shown = expected(engine, engine["steps"]), page.js(SHOWN)
    assert agree(shown, want), (shown, want)
    assert shown["in_use"] == 0 and shown["hits"] > 50 and shown["rows"] == [], shown
    assert re.match("Nothing. Ask something", page.text("#row-words"))
    # No looks at the engine while the view is not seen.
    page.click("#tab-chat")
    w.browser.wait(0.6)
    n = len(page.requests)
    w.browser.wait(1)
    assert len(page.requests) == n
    assert page.complaints == [], page.complaints
    page.close()


def histogram(name, n, total, below_tenth):
    return (f'{name}_bucket{{le="0.1"}} {below_tenth}\n{name}_bucket{{le="2"}} {n}\n{name}_bucket{{le="+Inf"}} {n}\n'
            f"{name}_sum {total}\n{name}_count {n}\n")


def test_cards_and_a_look_at_one_step(w):
    page = w.page()
    page.hold("*/metrics")
    page.click("#tab-engine")
    first, gap = "ibid_time_to_first_token_seconds", "ibid_inter_token_latency_seconds"
    page.answer(200, histogram(first, 10, 5, 10) + histogram(gap, 100, 1, 100))
    page.until("document.getElementById('ttft').innerText === '500 ms'")
    assert page.text("#ttft-tail") == "95 % within 100 ms, since the start", page.text("#ttft-tail")
    page.answer(200, histogram(first, 14, 11, 13) + histogram(gap, 100, 1, 100) + "process_resident_memory_bytes 2147483648\n")
    page.until("document.getElementById('ttft').innerText === '1.50 s'")  # 6 s in 4 of the last minute
    assert page.text("#ttft-tail") == "95 % within 2.00 s" and page.text("#itl") == "10.0 ms"
    page.until("document.getElementById('memory-held').innerText === 'process 2.00 GiB'")
    page.let_go()
    before = w.server.engine()["tokens"]["generated"]
    with Streams(w.server, 4, PROMPT, 1500):
        page.until("parseFloat(document.getElementById('rate').innerText) > 5")
        w.browser.wait(1)
    w.server.until(lambda: w.server.engine()["running"] == 0, "the streams end")
    engine = w.server.engine()
    assert engine["tokens"]["generated"] > before
    page.until(f"document.getElementById('steps').innerText.replaceAll(',', '') === '{engine['steps_total']}'")
    page.js("document.getElementById('batch').focus()")
    for key, i in (("ArrowLeft", -1), ("ArrowLeft", -2), ("ArrowLeft", -3), ("ArrowRight", -2)):
        page.key(key)
        step, said = engine["steps"][i], page.text("#batch-said")
        assert said.startswith(f"Step {step['n']:,}, " + ("the newest" if i == -1 else "")), (said, step)
        assert f"forward {step['forward_ms']:.2f} + sample {step['sample_ms']:.2f}" in said and f"{step['running']} running" in said, (said, step)
    # The forward lane's scale is of powers of ten, from 0.1 ms; the others' are linear.
    heights = page.js("[...document.querySelectorAll('#times rect.forward')].slice(-5).map((n) => Number(n.getAttribute('height')))")
    for height, step in zip(heights, engine["steps"][-5:]):
        assert abs(0.1 * 10**height - step["forward_ms"]) < 0.01 * step["forward_ms"] + 0.01, (height, step)
    page.js("document.getElementById('times').scrollIntoView({ block: 'center' })")
    x, y, width = page.js("(({ x, y, width, height }) => [x, y + height / 2, width])(document.getElementById('times').getBoundingClientRect())")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + width - 5, y=y)
    # Bars are as wide as their steps' times: five pixels from the end is one of the last, seldom the very last.
    page.until(f"parseInt(document.getElementById('times-said').innerText.replace('Step ', '').replaceAll(',', '')) > {engine['steps'][-1]['n'] - 40}")
    w.check_look(page, "engine_hover", False, False)
    assert "−15 s" in page.js("document.getElementById('times').textContent")
    page.js("(() => { const n = document.getElementById('span'); n.value = '60'; n.dispatchEvent(new Event('change')); })()")
    assert "−50 s" in page.js("document.getElementById('times').textContent")
    assert page.complaints == [], page.complaints
    page.close()


def test_drafts_that_were_right_and_wrong_have_colours_of_their_own(w):
    page = w.page()
    page.click("#tab-engine")
    with Streams(w.server, 1, "Say it again and again: the cat sat on the mat. " * 12, 1500):
        # Asked of the bars, which show every step: the newest step is seen twice a second, so seldom with a draft.
        for kind in ("accepted", "refused"):
            page.until(f"[...document.querySelectorAll('#batch rect.{kind}')].some((bar) => Number(bar.getAttribute('height')) > 0)")
        fills = page.js("['decode', 'accepted', 'refused'].map((kind) => getComputedStyle(document.querySelector(`#batch rect.${kind}`)).fill)")
    assert len(set(fills)) == 3 and all(fill.startswith("rgb") for fill in fills), fills
    legend = page.js("['accepted', 'refused'].map((kind) => getComputedStyle(document.querySelector(`dt i.${kind}`)).backgroundColor)")
    assert legend == fills[1:], (legend, fills)
    assert page.complaints == [], page.complaints
    page.close()


TESTS = [test_cards_and_a_look_at_one_step, test_engine_view_shows_what_the_engine_reports,
         test_drafts_that_were_right_and_wrong_have_colours_of_their_own]
