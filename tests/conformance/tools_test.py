"""Calls of tools by the default model, which knows none: tools_test.py BUILD_DIR."""
import concurrent.futures
import json
import urllib.request

from harness import IBID, Server, default_model, main

WEATHER = {"type": "object", "additionalProperties": False, "required": ["place", "days"],
           "properties": {"place": {"type": "string", "maxLength": 40}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                          "unit": {"enum": ["C", "F"]}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a place.", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "now", "description": "The time."}}]


def ask(server, seed, **more):
    body = {"messages": [{"role": "user", "content": f"What is the weather in city {seed}?"}], "tools": TOOLS, "seed": seed,
            "tool_choice": "required", "temperature": 1, "top_p": 1, **more}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]


def check(choice, names):
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
    (call,) = choice["message"]["tool_calls"]
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    assert name in names, choice
    if name == "get_weather":
        assert set(arguments) <= {"place", "days", "unit"} and isinstance(arguments["place"], str), choice
        assert 1 <= arguments["days"] <= 9 and arguments.get("unit", "C") in ("C", "F"), choice


def test_a_required_call_is_whole_and_valid_every_time():
    named = {"type": "function", "function": {"name": "get_weather"}}
    with Server([IBID, "serve", *default_model(), "--port", 0], seconds=600) as server, concurrent.futures.ThreadPoolExecutor(16) as pool:
        for choice in pool.map(lambda seed: ask(server, seed), range(150)):
            check(choice, ("get_weather", "now"))
        for choice in pool.map(lambda seed: ask(server, seed, tool_choice=named), range(50)):
            check(choice, ("get_weather",))
        alone, again = (ask(server, 7)["message"]["tool_calls"][0]["function"] for _ in range(2))
        assert alone == again
        cut = ask(server, 7, max_tokens=12)
        assert cut["finish_reason"] == "length", cut
    return "200 of 200"


if __name__ == "__main__":
    main(test_a_required_call_is_whole_and_valid_every_time)
