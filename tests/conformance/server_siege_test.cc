// Generated hostile requests beside honest streams.
#include <dirent.h>

#include "conformance/hostile_requests.h"
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

int n_descriptors() {
  int n = 0;
  if (DIR* dir = opendir("/proc/self/fd")) {
    while (readdir(dir) != nullptr) ++n;
    closedir(dir);
  }
  return n;
}

// Sends `n` hostile requests beside honest streams; every answer must be a 4xx or a closed connection.
void besiege(int n, int n_honest, double honest_seconds) {
  ServerOptions options;
  options.header_timeout = options.body_timeout = 1;
  FakeBackend::Options engine;
  engine.step_seconds = 0.001;
  engine.context_len = 1 << 20;
  TestServer server(options, engine);
  RawClient(server.port()).get("/health");
  const int descriptors = n_descriptors();
  std::atomic<bool> over = false;
  std::atomic<int> n_right = 0, n_streams = 0;
  std::vector<std::thread> honest;
  for (int i = 0; i < n_honest; ++i) {
    honest.emplace_back([&, i] {
      do {
        RawClient client(server.port());
        const std::string prompt = "honest " + std::to_string(i);
        const HttpAnswer a = client.post(
            "/v1/completions", "{\"prompt\":\"" + prompt + "\",\"seed\":3,\"max_tokens\":60,\"stream\":true}", "", 20);
        ++n_streams;
        n_right += read_events(a.body).text == FakeBackend::answer(prompt, 3, 60);
      } while (!over);
    });
  }
  std::mt19937 random(42);
  std::map<std::string, int> wrong;
  for (int i = 0; i < n; ++i) attack(server.port(), i, random, wrong);
  std::this_thread::sleep_for(std::chrono::duration<double>(honest_seconds));
  over = true;
  for (std::thread& thread : honest) thread.join();
  for (const auto& [name, count] : wrong)
    ADD_FAILURE() << name << ": " << count << " answers were neither a 4xx nor a closed connection";
  EXPECT_GE(n_streams, n_honest);
  EXPECT_EQ(n_right, n_streams);
  EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0 && server.front->n_active() == 0; }));
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
  EXPECT_TRUE(eventually([&] { return n_descriptors() <= descriptors; }));
  EXPECT_EQ(RawClient(server.port()).get("/health").status, 200);
}

TEST(ServerSiege, EveryHostileClassIsRefusedAndHonestStreamsAreUnchanged) {
  besiege(2 * static_cast<int>(std::size(kHostileClasses)), 2, 0);
}
TEST(SlowServerSiege, EightThousandHostileRequestsBesideEightStreams) { besiege(8000, 8, 0); }

}  // namespace
}  // namespace ibid
