"""Frameworks that people build agents with, unchanged, against a server: frameworks_client_test.py URL scripted|real.
Scripted, the last message determines the answer, so each answer is known; the default model's answers are only held to
what the server enforces. Prints one line a test."""
import asyncio
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable
from typing import Literal

os.environ.update(OPENAI_API_KEY="none", ANTHROPIC_API_KEY="none", OPENAI_AGENTS_DISABLE_TRACING="1", LITELLM_LOCAL_MODEL_COST_MAP="True")
import anthropic
import instructor
import openai
import pydantic

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")

URL, IS_SCRIPTED = sys.argv[1].rstrip("/"), sys.argv[2] == "scripted"
MODEL = openai.OpenAI(base_url=URL + "/v1").models.list().data[0].id


class Weather(pydantic.BaseModel):
    """The weather of a place."""
    model_config = pydantic.ConfigDict(extra="forbid")
    place: str = pydantic.Field(max_length=40)
    days: int = pydantic.Field(ge=1, le=9)


OSLO = Weather(place="Oslo", days=2)


def asked(scripted, real="How is the weather in Oslo for two days?"):
    return scripted if IS_SCRIPTED else real


def check(weather):
    assert isinstance(weather, Weather), weather
    assert not IS_SCRIPTED or (weather.place, weather.days) == ("Oslo", 2), weather


def instructor_client(mode):
    return instructor.from_openai(openai.OpenAI(base_url=URL + "/v1", max_retries=0, timeout=300), mode=mode)


def ask_instructor(mode, text, **more):
    return instructor_client(mode).create(model=MODEL, response_model=Weather, max_retries=0, max_tokens=300,
                                          messages=[{"role": "user", "content": text}], **more)


def test_instructor_by_tools():
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
        check(ask_instructor(mode, asked("call Weather"), temperature=0))


def test_instructor_by_schema():
    check(ask_instructor(instructor.Mode.JSON_SCHEMA, asked("object"), temperature=0))


def test_instructor_streams_what_is_not_whole():
    for mode, text in ((instructor.Mode.TOOLS, "call Weather"), (instructor.Mode.JSON_SCHEMA, "object")):
        parts = list(instructor_client(mode).create_partial(model=MODEL, response_model=Weather, max_retries=0, max_tokens=300,
                                                            messages=[{"role": "user", "content": asked(text)}]))
        assert len(parts) > 1 and parts[-1].place is not None and 1 <= parts[-1].days <= 9, parts
        assert not IS_SCRIPTED or (parts[-1].place, parts[-1].days) == ("Oslo", 2), parts[-1]


def test_instructor_by_responses():
    client = instructor.from_openai(openai.OpenAI(base_url=URL + "/v1", max_retries=0), mode=instructor.Mode.RESPONSES_TOOLS)
    check(client.create(model=MODEL, response_model=Weather, max_retries=0, max_tokens=300,
                        messages=[{"role": "user", "content": asked("call Weather")}]))


def test_instructor_by_anthropics_tools():
    client = instructor.from_anthropic(anthropic.Anthropic(base_url=URL, max_retries=0), mode=instructor.Mode.ANTHROPIC_TOOLS)
    check(client.create(model=MODEL, response_model=Weather, max_retries=0, max_tokens=300,
                        messages=[{"role": "user", "content": asked("call Weather")}]))


def test_scripted_instructor_in_modes_that_nothing_enforces():
    for mode, text in ((instructor.Mode.MD_JSON, "fenced"), (instructor.Mode.JSON, "object")):
        check(ask_instructor(mode, text))
    several = instructor_client(instructor.Mode.PARALLEL_TOOLS).create(
        model=MODEL, response_model=Iterable[Weather], max_retries=0, max_tokens=300, messages=[{"role": "user", "content": "call Weather"}])
    check(*several)


def test_langchain_structured_output():
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(base_url=URL + "/v1", model=MODEL, max_tokens=300, temperature=0)
    for method, text in (("json_schema", "object"), ("function_calling", "call Weather")):
        check(model.with_structured_output(Weather, method=method).invoke(asked(text)))
        *_, last = model.with_structured_output(Weather, method=method).stream(asked(text))
        check(last)


def test_langchain_tools():
    from langchain_core.messages import ToolMessage
    from langchain_openai import ChatOpenAI

    def get_weather(place: str, days: int) -> str:
        """The weather of a place."""
        return "21 C"

    # A place of any length, drawn at a temperature, may take all tokens of an answer, so that the days may be missing.
    for chat in (ChatOpenAI(base_url=URL + "/v1", model=MODEL, max_tokens=300, temperature=0),
                 ChatOpenAI(base_url=URL + "/v1", model=MODEL, max_tokens=300, temperature=0, use_responses_api=True)):
        model = chat.bind_tools([get_weather], tool_choice="any")
        question = asked("call get_weather")
        whole = model.invoke(question)
        streamed = None
        for chunk in model.stream(question):
            streamed = chunk if streamed is None else streamed + chunk
        for message in (whole, streamed):
            (call,) = message.tool_calls
            assert call["name"] == "get_weather" and isinstance(call["args"]["days"], int), call
            assert not IS_SCRIPTED or call["args"] == OSLO.model_dump(), call
        if IS_SCRIPTED:
            said = chat.invoke([("user", question), whole, ToolMessage("21 C", tool_call_id=whole.tool_calls[0]["id"])])
            assert said.text.strip() == "It is 21 degrees.", said


def test_langchain_of_other_apis():
    from langchain_anthropic import ChatAnthropic
    from langchain_ollama import ChatOllama
    for model in (ChatAnthropic(base_url=URL, model=MODEL, max_tokens=300), ChatOllama(base_url=URL, model=MODEL, num_predict=300)):
        if IS_SCRIPTED:
            assert model.invoke("plain").text == "The sea is wide."
            assert "".join(c.text for c in model.stream("plain")) == "The sea is wide."
            (call,) = model.bind_tools([Weather]).invoke("call Weather").tool_calls
            assert (call["name"], call["args"]) == ("Weather", OSLO.model_dump()), call
    check(ChatOllama(base_url=URL, model=MODEL, num_predict=300).with_structured_output(Weather, method="json_schema").invoke(asked("object")))
    check(ChatAnthropic(base_url=URL, model=MODEL, max_tokens=300).with_structured_output(Weather).invoke(asked("call Weather")))


def test_pydantic_ai_output():
    from pydantic_ai import Agent, NativeOutput, PromptedOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=URL + "/v1", api_key="none")
    for model in (OpenAIChatModel(MODEL, provider=provider), OpenAIResponsesModel(MODEL, provider=provider)):
        settings = {"max_tokens": 300, "temperature": 0}
        check(Agent(model, output_type=Weather, retries=0, model_settings=settings).run_sync(asked("call final_result")).output)
        check(Agent(model, output_type=NativeOutput(Weather), retries=0, model_settings=settings).run_sync(asked("object")).output)
        if IS_SCRIPTED:
            check(Agent(model, output_type=PromptedOutput(Weather), retries=0).run_sync("object").output)


def test_scripted_pydantic_ai_tools():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL + "/v1", api_key="none")))
    seen = []

    @agent.tool_plain
    def get_weather(place: str, days: int) -> str:
        seen.append((place, days))
        return "21 C"

    assert agent.run_sync("call get_weather").output == "It is 21 degrees." and seen == [("Oslo", 2)]

    async def streamed():
        async with agent.run_stream("call get_weather") as run:
            return [text async for text in run.stream_text(delta=True)]

    assert "".join(asyncio.run(streamed())) == "It is 21 degrees."


def agents_models():
    import agents
    client = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    return agents.OpenAIResponsesModel(MODEL, client), agents.OpenAIChatCompletionsModel(MODEL, client)


def test_openai_agents_output():
    import agents
    for model in agents_models():
        agent = agents.Agent(name="A", model=model, output_type=Weather, model_settings=agents.ModelSettings(max_tokens=300))
        check(agents.Runner.run_sync(agent, asked("object")).final_output)


def test_scripted_openai_agents_tools_and_hand_over():
    import agents
    seen = []

    @agents.function_tool
    def get_weather(place: str, days: int) -> str:
        """The weather of a place."""
        seen.append((place, days))
        return "21 C"

    for model in agents_models():
        seen.clear()
        agent = agents.Agent(name="A", model=model, tools=[get_weather])
        result = agents.Runner.run_sync(agent, "call get_weather")
        assert (result.final_output, seen) == ("It is 21 degrees.", [("Oslo", 2)]), result
        guide = agents.Agent(name="guide", model=model)
        handed = agents.Runner.run_sync(agents.Agent(name="A", model=model, handoffs=[guide]), "call transfer_to_guide", max_turns=3)
        assert handed.last_agent is guide

    for model in agents_models():  # a client belongs to one loop of events
        agent = agents.Agent(name="A", model=model, tools=[get_weather])

        async def streamed():
            run = agents.Runner.run_streamed(agent, "call get_weather")
            return [e.type async for e in run.stream_events()], run.final_output

        kinds, said = asyncio.run(streamed())
        assert said == "It is 21 degrees." and "raw_response_event" in kinds


def test_litellm_tells_the_same_over_three_apis():
    import litellm
    litellm.suppress_debug_info = True
    texts = []
    for model, base in ((f"openai/{MODEL}", URL + "/v1"), (f"anthropic/{MODEL}", URL), (f"ollama_chat/{MODEL}", URL)):
        ask = {"model": model, "api_base": base, "api_key": "none", "max_tokens": 40, "temperature": 0, "num_retries": 0,
               "messages": [{"role": "user", "content": asked("plain", "Say hello.")}]}
        whole = litellm.completion(**ask).choices[0].message.content
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**ask, stream=True))
        assert whole == streamed and whole, (model, whole, streamed)
        texts.append(whole)
    # Ollama's own defaults have a penalty of repetition.
    assert texts[0] == texts[1] and (not IS_SCRIPTED or texts[2] == texts[0]), texts


def test_real_outlines():
    import outlines
    client = openai.OpenAI(base_url=URL + "/v1", max_retries=0)
    for model in (outlines.from_openai(client, MODEL), outlines.from_vllm(client, MODEL)):
        check(Weather.model_validate_json(model("How is the weather?", Weather, max_tokens=300)))
        check(Weather.model_validate_json("".join(model.stream("How is the weather?", Weather, max_tokens=300))))
    for model in (outlines.from_vllm(client, MODEL), outlines.from_sglang(client, MODEL)):
        assert model("Yes or no?", Literal["yes", "no"]) in ("yes", "no")
        assert re.fullmatch("[0-9]{3}", model("A number?", outlines.regex("[0-9]{3}")))
        assert set(model("Letters?", outlines.cfg('start: "a" | "b" start'), max_tokens=5)) <= {"a", "b"}


def test_real_guidance():
    import guidance
    from guidance.models.experimental import VLLMModel
    model = VLLMModel(MODEL, base_url=URL + "/v1", api_key="none")
    with guidance.user():
        model += "Which colour has the sea?"
    with guidance.assistant():
        model += guidance.gen("colour", regex="(red|blue)")
    with guidance.user():
        model += "One or two?"
    with guidance.assistant():
        model += guidance.select(["one", "two"], name="number")
    with guidance.user():
        model += "Write in Tifinagh."
    with guidance.assistant():
        model += guidance.gen("letters", regex="[\u2d30-\u2d67]{4}")  # each of them several tokens
    assert model["colour"] in ("red", "blue") and model["number"] in ("one", "two")
    assert re.fullmatch("[\u2d30-\u2d67]{4}", model["letters"]), model["letters"]


def test_real_guidance_finds_the_parts_of_json():
    import guidance
    from guidance.models.experimental import VLLMModel
    for options, shape in (({}, r'\{"place": ".*", "days": [1-9]\}'), ({"separators": (",", ":")}, r'\{"place":".*","days":[1-9]\}'),
                           ({"whitespace_flexible": True}, r'\{\s*"place":\s*".*",\s*"days":\s*[1-9]\s*\}'),
                           ({"whitespace_pattern": " {2}"}, r'\{(  )?"place"(  )?:(  )?".*"(  )?,(  )?"days"(  )?:(  )?[1-9](  )?\}'),
                           ({"separators": (", ?", ": ?"), "lenient": True}, r'\{"place": ?".*", ?"days": ?[1-9]\}')):
        model = VLLMModel(MODEL, base_url=URL + "/v1", api_key="none")
        with guidance.user():
            model += "How is the weather in Oslo?"
        with guidance.assistant():
            model += guidance.json("weather", schema=Weather, **options)
        check(Weather.model_validate_json(model["weather"]))
        assert re.fullmatch(shape, model["weather"], re.S), (options, model["weather"])


def test_scripted_smolagents_calls():
    from smolagents import OpenAIModel, ToolCallingAgent
    agent = ToolCallingAgent(tools=[], model=OpenAIModel(MODEL, api_base=URL + "/v1", api_key="none"), max_steps=1, verbosity_level=0)
    message = agent.model.generate([{"role": "user", "content": [{"type": "text", "text": "call final_answer"}]}],
                                   tools_to_call_from=list(agent.tools.values()))
    (call,) = message.tool_calls
    assert call.function.name == "final_answer" and "Oslo" in str(call.function.arguments), call


if __name__ == "__main__":
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or name.startswith("test_real_" if IS_SCRIPTED else "test_scripted_"):
            continue
        try:
            test()
            print("ok     ", name.removeprefix("test_").replace("_", " "), flush=True)
        except Exception:
            failed += 1
            print("FAILED ", name, traceback.format_exc()[-1500:], flush=True)
    sys.exit(failed > 0)
