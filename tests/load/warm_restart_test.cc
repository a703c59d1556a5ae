// A server that is killed and started again finds what it had computed: the first token comes in a tenth of the time,
// and the bytes are the same.
#include <cstdio>

#include "base/json_writer.h"
#include "bench/load/measure.h"
#include "serve_process.h"
#include "varied_requests.h"

namespace ibid::load {
namespace {

class SlowWarmRestart : public DefaultModelTest {};

struct Told {
  double first_token = 0;  // seconds
  std::string text;        // of the whole answer
};

Told ask(const ServeProcess& server, const std::string& prompt, const std::string& salt) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().field("prompt", prompt).field("max_tokens", int64_t{24}).field("cache_salt", salt);
  json.field("temperature", int64_t{1}).field("seed", int64_t{7}).key("stream").boolean(true).end_object();
  LoadClient client(server.target());
  client.start({"/v1/completions", body});
  EXPECT_TRUE(client.wait_for_all(600));
  const LoadAnswer answer = client.answers().front();
  EXPECT_EQ(answer.status, 200) << answer.body;
  Told out;
  if (!answer.events.empty()) out.first_token = answer.events.front().at - answer.sent;
  for (const LoadEvent& event : answer.events) {
    const Result<Json> parsed = parse_json(event.data);
    const Json* choices = parsed ? parsed->find("choices") : nullptr;
    if (choices == nullptr || choices->array() == nullptr || choices->array()->empty()) continue;
    if (const Json* text = choices->array()->front().find("text")) out.text += *text->string();
  }
  return out;
}

TEST_F(SlowWarmRestart, AfterAKillTheOwnPrefixIsFoundOnDiskAndNoOthers) {
  const TempFolder folder;
  const std::vector<std::string> flags = {"--ctx", "8192", "--cache-disk", folder.path("kv"), "--cache-disk-bytes",
                                          "8G"};
  const std::string prompt = prompts_of(1, 3000, 5)[0];
  Told cold;
  {
    ServeProcess server(flags);
    cold = ask(server, prompt, "mine");
    double before = -1, now = 0;
    EXPECT_TRUE(soon([&] {
      before = std::exchange(now, server.metric("ibid_cache_disk_io_bytes_total{way=\"written\"}"));
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return now > 0 && now == before;
    }));
    server.kill_hard();
  }
  ServeProcess server(flags);
  ask(server, "A word.", "mine");  // what is mapped is read
  const Told warm = ask(server, prompt, "mine");
  const double n_fetched = server.metric("ibid_cache_moved_blocks_total{way=\"from_disk\"}");
  EXPECT_EQ(warm.text, cold.text);
  EXPECT_FALSE(cold.text.empty());
  EXPECT_LE(warm.first_token, 0.1 * cold.first_token);
  EXPECT_GE(n_fetched, 3000 / 16);
  const Told other = ask(server, prompt, "another's");
  EXPECT_EQ(server.metric("ibid_cache_moved_blocks_total{way=\"from_disk\"}"), n_fetched);
  EXPECT_EQ(other.text, cold.text);
  EXPECT_GT(other.first_token, 0.5 * cold.first_token);
  printf("first token: cold %.2f s, after the restart %.3f s (%.1f %%), another salt %.2f s; %.0f blocks\n",
         cold.first_token, warm.first_token, 100 * warm.first_token / cold.first_token, other.first_token, n_fetched);
}

}  // namespace
}  // namespace ibid::load
