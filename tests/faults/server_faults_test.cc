// Failed allocations anywhere between a socket and a token: whichever one fails, at most one request ends without its
// answer, with an error or a closed connection; its neighbour's bytes and all later requests are untouched.
#include <malloc.h>

#include <cstdlib>

#include "allocation_hook.h"
#include "conformance/engine_server.h"

// Asio takes memory for what is posted by this, not by operator new. Of one thread: where Asio (1.81) itself posts in a
// destructor, in a strand's own thread, failing ends the process.
static thread_local int n_aligned_to_fail = 0;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* aligned_alloc(size_t alignment, size_t n_bytes) noexcept {
  if (n_aligned_to_fail > 0 && n_aligned_to_fail-- > 0) return nullptr;
  return memalign(alignment, n_bytes);
}
#endif

namespace ibid {
namespace {

using testing::PlantedFault;
using testing::Spared;

struct Asked {
  std::string path = "/v1/completions";
  std::string body;
  std::string wanted;  // the whole text
};

std::string text_of(const HttpAnswer& a) {
  return a.body.starts_with("data: ") ? read_events(a.body).text : content_of(a);
}

// Whole and right; or an error in OpenAI's form, in the answer or in the stream; or the connection closed.
enum class End { kRight, kError, kClosed, kWrong };
End judge(const HttpAnswer& a, const std::string& wanted, bool timed_out) {
  if (timed_out) return End::kWrong;
  if (!a.complete) return End::kClosed;
  if (a.body.find("out_of_memory") != std::string::npos)
    return a.status == 503 || a.status == 200 ? End::kError : End::kWrong;
  if (a.status != 200) return End::kWrong;
  return text_of(a) == wanted ? End::kRight : End::kWrong;
}

class FaultyServer {
 public:
  FaultyServer() : server_(options(), 0.0002) {
    for (const char* more : {R"("stream":true)", R"("n":2,"logprobs":2,"prompt_logprobs":1)",
                             R"("stop":["never comes"],"repetition_penalty":1.1,"top_p":0.9)", large_.c_str()}) {
      Asked asked;
      asked.body =
          R"({"prompt":"HELLO THERE, WHO ARE YOU AND WHAT DO YOU DO","max_tokens":12,"seed":7,"ignore_eos":true,)" +
          std::string(more) + "}";
      asked.wanted = text_of(ask(asked));
      EXPECT_EQ(asked.wanted.size(), 12u) << asked.body;
      kinds_.push_back(std::move(asked));
    }
    neighbour_ = {.body = R"({"prompt":"A LONG STORY","max_tokens":40,"seed":3,"ignore_eos":true,"stream":true})"};
    neighbour_.wanted = text_of(ask(neighbour_));
  }

  // One request of each kind in turn while allocation n fails, beside a stream that is under way. True if it struck.
  bool strike(int64_t n, int64_t n_failing) {
    const Asked& asked = kinds_[n_strikes_++ % kinds_.size()];
    RawClient beside(server_.port());
    beside.send(RawClient::post_text(neighbour_.path, neighbour_.body));
    EXPECT_TRUE(beside.receive_until("data: "));
    PlantedFault fault(n, n_failing);
    RawClient client(server_.port());
    client.send(RawClient::post_text(asked.path, asked.body));
    const HttpAnswer answer = client.answer(15);
    const HttpAnswer beside_answer = beside.answer(15);
    fault.uproot();
    const End end = judge(answer, asked.wanted, client.timed_out);
    const End beside_end = judge(beside_answer, neighbour_.wanted, beside.timed_out);
    EXPECT_NE(end, End::kWrong) << answer.head << answer.body;
    EXPECT_NE(beside_end, End::kWrong) << beside_answer.head << beside_answer.body;
    const bool one_is_right = end == End::kRight || beside_end == End::kRight;
    EXPECT_TRUE(one_is_right || n_failing > 1) << "one failure ended two requests";
    ++n_ends[static_cast<size_t>(end)];
    return fault.has_struck();
  }

  void expect_sound() {
    const Asked& asked = kinds_.front();
    EXPECT_EQ(text_of(ask(asked)), asked.wanted);
    EXPECT_TRUE(eventually([&] {
      const EngineStats stats = server_.stats();
      return stats.blocks_in_use == 0 && stats.n_running + stats.n_waiting == 0 && server_.front().n_active() == 0;
    }));
  }

  int64_t n_ends[4] = {};

 private:
  // Handled on another thread than the small ones.
  const std::string large_ = R"("stream":true,"user":")" + std::string(40'000, 'x') + "\"";

  static EngineOptions options() {
    EngineOptions options;
    options.max_sequences = 4;
    options.step_tokens = 16;
    return options;
  }
  HttpAnswer ask(const Asked& asked) { return RawClient(server_.port()).post(asked.path, asked.body); }

  EngineServer server_;
  std::vector<Asked> kinds_;
  Asked neighbour_;
  size_t n_strikes_ = 0;
};

TEST(ServerFaults, TheNthFailedAllocationEndsItsRequestAlone) {
  const Spared spared;
  FaultyServer server;
  int64_t n = 0, n_missed = 0;
  for (; n_missed < 6 && !HasFailure(); n += 1 + n / 60) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    n_missed = server.strike(n, 1) ? 0 : n_missed + 1;
    server.expect_sound();
  }
  EXPECT_GT(n, 300);
  EXPECT_GT(server.n_ends[static_cast<size_t>(End::kError)] + server.n_ends[static_cast<size_t>(End::kClosed)], 10);
}

TEST(ServerFaults, ManyFailuresInARowHarmNothingThatComesLater) {
  const Spared spared;
  FaultyServer server;
  for (int64_t first = 0; first < 1000 && !HasFailure(); first += 41) {
    SCOPED_TRACE("from allocation " + std::to_string(first));
    server.strike(first, 30);
    server.expect_sound();
  }
}

// A server ends in a destructor at last, e.g. after a model could not be loaded for lack of memory.
TEST(ServerFaults, AnEndWaitsForMemory) {
  const Spared spared;
  for (const int n : {1, 2, 3, 8, 40}) {
    SCOPED_TRACE(std::to_string(n) + " failures");
    EngineServer server({}, 0.0002);
    RawClient client(server.port());
    EXPECT_EQ(client.get("/health").status, 200);
    n_aligned_to_fail = n;
  }
  n_aligned_to_fail = 0;
}

}  // namespace
}  // namespace ibid
