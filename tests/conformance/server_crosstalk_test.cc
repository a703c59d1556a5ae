// What one request asked never shows in another's answer, whichever kinds they are and in whatever order they come:
// grammars, tools, reasoning, formats and APIs are compiled, rendered, tokenised and drafted with caches, and each is
// a place where one could get what another's request made (docs/developers/caches.md). Truth is a server of its own for
// each.
#include "conformance/crosstalk.h"

namespace ibid {
namespace {

std::vector<std::string> said_alone(const std::vector<AskedOfServer>& asked) {
  constexpr size_t kAtOnce = 4;  // servers, which wait for sockets most of the time
  std::vector<std::string> out(asked.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kAtOnce; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < asked.size(); i += kAtOnce) {
        const auto server = crosstalk_server();
        RawClient client(server->port());
        out[i] = text_message(client, asked[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

// One server hears all kinds, one after the other, and another hears them backwards: of any two each comes first once,
// and fills whatever the two could share.
TEST(ServerCrossTalk, AnswerDoesNotDependOnTheRequestBefore) {
  std::vector<AskedOfServer> kinds = kinds_of_requests();
  for (AskedOfServer& other : other_requests()) kinds.push_back(std::move(other));
  const std::vector<std::string> expected = said_alone(kinds);
  const auto n_refused = std::ranges::count_if(expected, [](const std::string& said) { return said[0] != '2'; });
  EXPECT_LT(n_refused * 4, std::ssize(kinds)) << "most are answered";
  EXPECT_GT((std::set<std::string>(expected.begin(), expected.end()).size()), 80u) << "and differ";
  for (const bool backwards : {false, true}) {
    const auto server = crosstalk_server();
    RawClient client(server->port());
    for (size_t k = 0; k < kinds.size(); ++k) {
      const size_t i = backwards ? kinds.size() - 1 - k : k;
      EXPECT_EQ(text_message(client, kinds[i]), expected[i]) << kinds[i].path << " " << kinds[i].body;
      if (HasFailure()) return;
    }
  }
}

// A kind with other prompts, samplers, lengths, choices and ends.
AskedOfServer varied(AskedOfServer asked, std::mt19937_64& random) {
  const auto one_in = [&](uint64_t n) { return random() % n == 0; };
  const auto replace = [&](std::string_view from, const std::string& to) {
    if (const size_t at = asked.body.find(from); at != std::string::npos) asked.body.replace(at, from.size(), to);
  };
  if (one_in(2)) replace("\"seed\":7", "\"seed\":" + std::to_string(random() % 5));
  if (one_in(3)) replace("\"temperature\":0.8", "\"temperature\":0");
  if (one_in(3)) replace("_tokens\":14", "_tokens\":" + std::to_string(1 + random() % 40));
  // Beginnings that are shared, with markers that a template may take for its own.
  static const char* const kTexts[] = {"hi there", "hi there a", "<think>", "hi <tool_call> a", "hi there a b c d e f"};
  if (one_in(2)) replace("hi\"", std::string(kTexts[random() % std::size(kTexts)]) + "\"");
  const bool is_chat = asked.path == "/v1/chat/completions";
  if (!is_chat && asked.path != "/v1/completions") return asked;
  asked.body.pop_back();
  if (one_in(4)) asked.body += R"(,"n":2)";
  if (one_in(4)) asked.body += is_chat ? R"(,"logprobs":true,"top_logprobs":3)" : R"(,"logprobs":3)";
  if (one_in(4)) asked.body += R"(,"stop":["a","}"])";
  if (one_in(4)) asked.body += R"(,"top_k":5)";
  if (one_in(4)) asked.body += R"(,"repetition_penalty":1.3)";
  if (one_in(6)) asked.body += R"(,"logit_bias":{"3":5,"16":5})";
  if (one_in(6)) asked.body += R"(,"cache_salt":"a")";
  if (one_in(6)) asked.body += R"(,"speculation":{"max_drafts":0})";
  if (one_in(8) && is_chat) asked.body += R"(,"thinking_token_budget":3)";
  asked.body += "}";
  return asked;
}

// One server, many requests in a random order, several at once, of two tenants, under caches and budgets that are too
// small for them.
void talk_across(uint64_t seed, size_t n_kinds, size_t n_asked) {
  std::mt19937_64 random(seed);
  std::vector<AskedOfServer> kinds = kinds_of_requests();
  // Answers by verifiers whose bytes depend on drafts are not: earlier answers are drafted.
  for (AskedOfServer& other : other_requests())
    if (other.body.find("\"verifier\"") == std::string::npos) kinds.push_back(std::move(other));
  std::vector<AskedOfServer> asked;
  for (size_t i = 0; i < n_kinds; ++i) asked.push_back(varied(kinds[random() % kinds.size()], random));
  const std::vector<std::string> expected = said_alone(asked);
  EngineOptions options;
  options.max_sequences = 1 + static_cast<int32_t>(random() % 6);
  options.step_tokens = options.max_sequences + static_cast<int32_t>(random() % 64);
  options.max_rows = options.max_sequences + static_cast<int32_t>(random() % 8);
  options.max_drafts = static_cast<int32_t>(random() % 6);
  options.prefix_cache = random() % 4 != 0;
  const int n_blocks = EngineServer::kContext / options.block_len + static_cast<int>(random() % 40);
  const auto server = crosstalk_server(options, n_blocks, "a:secret-key-1\nb:secret-key-2\n");
  std::vector<size_t> order;
  for (size_t i = 0; i < n_asked; ++i) order.push_back(random() % asked.size());
  std::vector<std::thread> clients;
  const size_t n_clients = 1 + random() % 4;
  std::vector<std::string> wrong(n_clients);
  for (size_t c = 0; c < n_clients; ++c) {
    clients.emplace_back([&, c] {
      RawClient client(server->port());
      for (size_t k = c; k < order.size(); k += n_clients) {
        const AskedOfServer& one = asked[order[k]];
        const std::string said =
            text_message(client, one, "X-Api-Key: secret-key-" + std::to_string(1 + k % 2) + "\r\n");
        if (said == expected[order[k]]) continue;
        wrong[c] = one.path + " " + one.body + "\nin company: " + said + "\nalone: " + expected[order[k]];
        return;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const std::string& what : wrong) EXPECT_EQ(what, "") << "seed " << seed;
}

TEST(ServerCrossTalk, AnswersOfAllKindsDoNotDependOnTheirOrder) {
  for (uint64_t seed = 1; seed <= 6 && !HasFailure(); ++seed) talk_across(seed, 40, 120);
}

TEST(SlowServerCrossTalk, AnswersOfAllKindsDoNotDependOnTheirOrder) {
  for (uint64_t seed = 100; seed < 160 && !HasFailure(); ++seed) talk_across(seed, 60, 300);
}

}  // namespace
}  // namespace ibid
