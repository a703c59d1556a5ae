// Eight streams of the real binary with the default model, and 8,000 hostile requests beside them.
#include <cstdio>
#include <mutex>

#include "bench/load/measure.h"
#include "conformance/hostile_requests.h"
#include "measured.h"
#include "serve_process.h"
#include "varied_requests.h"

namespace ibid::load {
namespace {

constexpr size_t kHonest = 8;
constexpr int kHostile = 8000;
constexpr int kAttackers = 4;

std::vector<LoadRequest> honest_requests() {
  std::vector<LoadRequest> out;
  for (const std::string& prompt : prompts_of(kHonest, 20, 3)) {
    std::string body;
    JsonWriter json(body);
    json.begin_object().field("prompt", prompt).field("max_tokens", int64_t{100}).key("ignore_eos").boolean(true);
    json.field("seed", int64_t{4}).key("stream").boolean(true).end_object();
    out.push_back({"/v1/completions", body});
  }
  return out;
}

// Eight streams from beginning to end.
struct Slice {
  double p99 = 0;
  int64_t n_different = 0;
};

Slice run_slice(const ServeProcess& server, const std::vector<StreamContent>& alone) {
  Slice slice;
  std::vector<double> gaps;
  const std::vector<LoadAnswer> answers = run_load(server.target(), honest_requests(), 0);
  for (size_t i = 0; i < answers.size(); ++i) {
    const StreamContent content = read_stream(answers[i]);
    slice.n_different += !same_bytes(content, alone[i]);
    gaps.insert(gaps.end(), content.gaps.begin(), content.gaps.end());
  }
  slice.p99 = percentiles_of(gaps).p99;
  return slice;
}

// Attackers as long as this lives: most send what no client would, one sends megabytes that are no prompt for a context
// of a thousand tokens. They yield to the server, because attackers bring a machine of their own.
class Siege {
 public:
  explicit Siege(int port) : port_(port) {}
  ~Siege() { lift(); }
  void lay() {
    over_ = false;
    for (int i = 0; i < kAttackers; ++i) threads_.emplace_back([this, i] { attack_on(i); });
  }
  void lift() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int n_sent() const { return n_sent_; }
  const std::map<std::string, int>& wrong() const { return wrong_; }

 private:
  void attack_on(int number) {
    setpriority(PRIO_PROCESS, 0, 19);
    std::mt19937 random(static_cast<unsigned>(n_sent_ + number));
    std::map<std::string, int> wrong;
    while (!over_ && n_sent_ < kHostile) {
      const int i = n_sent_++;
      number == 0 ? send_megabytes(wrong) : attack(port_, i, random, wrong);
    }
    const std::lock_guard lock(mutex_);
    for (const auto& [name, n] : wrong) wrong_[name] += n;
  }
  void send_megabytes(std::map<std::string, int>& wrong) const {
    RawClient client(port_);
    client.send(RawClient::post_text("/v1/completions", megabytes_));
    if (client.answer(30).status != 400) ++wrong["megabytes"];
  }

  const int port_;
  const std::string megabytes_ = "{\"prompt\":\"" + prompts_of(1, 800'000, 6)[0] + "\"}";
  std::vector<std::thread> threads_;
  std::atomic<bool> over_ = false;
  std::atomic<int> n_sent_ = 0;
  std::mutex mutex_;  // guards wrong_
  std::map<std::string, int> wrong_;
};

class SlowSiege : public DefaultModelTest {};

TEST_F(SlowSiege, EightThousandHostileRequestsAtMostDoubleTheWaitBetweenTokens) {
  ServeProcess server({"--ctx", "1024", "--max-sequences", "16", "--header-timeout", "1", "--body-timeout", "1"});
  std::vector<StreamContent> alone;
  for (const LoadRequest& request : honest_requests())
    alone.push_back(read_stream(run_load(server.target(), {request}, 1)[0]));
  run_slice(server, alone);
  const int n_descriptors = server.n_descriptors();

  Siege siege(server.port());
  std::vector<double> quiet, besieged;
  double seconds = 0;
  while (siege.n_sent() < kHostile) {
    const Slice peace = run_slice(server, alone);
    const int n_before = siege.n_sent();
    siege.lay();
    const auto begin = std::chrono::steady_clock::now();
    const Slice war = run_slice(server, alone);
    const bool lasted = siege.n_sent() < kHostile;
    siege.lift();
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_EQ(peace.n_different + war.n_different, 0);
    EXPECT_GT(siege.n_sent(), n_before);
    quiet.push_back(peace.p99);
    if (lasted || besieged.empty()) besieged.push_back(war.p99);
  }
  for (const auto& [name, n] : siege.wrong())
    ADD_FAILURE() << name << ": " << n << " answers were neither a 4xx nor a closed connection";
  const double a = percentiles_of(quiet).p50, b = percentiles_of(besieged).p50;
  std::printf("%d hostile requests, %.0f a second; between tokens p99 %.1f ms without, %.1f ms with (medians of %zu)\n",
              siege.n_sent(), siege.n_sent() / seconds, a * 1e3, b * 1e3, besieged.size());
  if (wall_clock_counts()) {
    EXPECT_LE(b, 2 * a + 0.01)
        << "ten milliseconds more where attackers and other programs share two cores with the server";
  }
  EXPECT_TRUE(soon([&] { return server.engine().in_use == 0; }));
  EXPECT_TRUE(soon([&] { return server.n_descriptors() <= n_descriptors; }));
}

}  // namespace
}  // namespace ibid::load
