// A server whose engine is scripted (fake_backend.h), as a program: for the tests of signals and exit codes, for
// clients in other languages, and for looking at the page. fake_server PORT [STEP_MS] [LOAD_MS] [KEY] [PLAY]
// PLAY: a file with {"context": TOKENS, "plays": [{"words": TEXT, "turns": [TEXT, ...]}]}, which FakeBackend::play()
// takes.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "conformance/fake_backend.h"
#include "server/net/server.h"

int main(int argc, char** argv) {
  ibid::ServerOptions options;
  options.port = argc > 1 ? std::atoi(argv[1]) : 0;
  options.drain_timeout = 1.5;
  if (argc > 4 && *argv[4] != '\0') options.api_keys = {argv[4]};
  ibid::Json plays;
  if (argc > 5) {
    std::stringstream text;
    text << std::ifstream(argv[5]).rdbuf();
    plays = ibid::parse_json(text.str()).value();
  }
  ibid::FakeBackend::Options engine;
  engine.step_seconds = (argc > 2 ? std::atof(argv[2]) : 1.0) / 1000;
  engine.answer_len = 200;
  engine.max_running = 1024;
  if (const ibid::Json* context = plays.find("context")) engine.context_len = static_cast<int>(*context->integer());
  if (const ibid::Json* own = plays.find("own_context")) engine.trained_context_len = static_cast<int>(*own->integer());
  const int load_ms = argc > 3 ? std::atoi(argv[3]) : 0;
  return ibid::run_server(options, [&]() -> ibid::Result<std::unique_ptr<ibid::Backend>> {
    if (load_ms < 0) return ibid::invalid("The model is no model; give another.");
    std::this_thread::sleep_for(std::chrono::milliseconds(load_ms));
    auto backend = std::make_unique<ibid::FakeBackend>(engine);
    for (const ibid::Json& play :
         plays.find("plays") != nullptr ? *plays.find("plays")->array() : ibid::Json::Array()) {
      std::vector<std::string> turns;
      for (const ibid::Json& turn : *play.find("turns")->array()) turns.push_back(*turn.string());
      backend->play(*play.find("words")->string(), std::move(turns));
    }
    backend->say("plain", "The sea is wide.");
    backend->say(
        "tools",
        "<think>\nWhere is it?\n</think>\n\nI look it up.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
        "{\"place\": \"Z\\u00fcrich\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
        "{}}\n</tool_call>");
    // A call and the answer to its result, and the same object as text and as calls under the names that frameworks
    // use.
    const std::string object = "{\"place\": \"Oslo\", \"days\": 2}";
    backend->say("21 C", "It is 21 degrees.");
    backend->say("object", object);
    backend->say(
        "fenced\n\nReturn the correct JSON response within a ```json codeblock. not the JSON_SCHEMA",  // instructor
        "Here it is:\n```json\n" + object + "\n```\n");
    for (const std::string name : {"get_weather", "Weather", "final_result", "final_answer", "transfer_to_guide"}) {
      const std::string arguments = name == "final_answer"        ? "{\"answer\": \"Oslo\"}"
                                    : name == "transfer_to_guide" ? "{}"
                                                                  : object;
      backend->say("call " + name,
                   "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>");
    }
    return std::unique_ptr<ibid::Backend>(std::move(backend));
  });
}
