// Batches over a scripted engine: what a line, a key or a tenant's terms may do to them.
#include <sys/resource.h>

#include <csignal>

#include "conformance/server_fixture.h"
#include "server/routes/batches.h"
#include "temp_folder.h"

namespace ibid {
namespace {

// Batches in a folder, and a server that works on them.
class BatchServer {
 public:
  BatchServer(const std::string& folder, const std::string& keys, FakeBackend::Options engine = {})
      : batches(*Batches::open(folder, 64 << 20, 1 << 20)), server({}, engine, keys) {
    batches->start(*server.front);
  }
  ~BatchServer() { batches->stop(); }
  // One batch of the tenant's, of lines with these bodies.
  std::string begin(const std::string& tenant, const std::vector<std::string>& bodies,
                    const std::string& endpoint = "/v1/completions") const {
    std::string lines;
    for (size_t i = 0; i < bodies.size(); ++i) {
      lines += "{\"custom_id\":\"" + std::to_string(i) + R"(","method":"POST","url":")" + endpoint + R"(","body":)" +
               bodies[i] + "}\n";
    }
    const Result<StoredFile> file = batches->files().create(tenant, "in.jsonl", "batch", lines);
    EXPECT_TRUE(file.ok());
    Batch batch;
    batch.tenant = tenant;
    batch.endpoint = endpoint;
    batch.input_file = file->id;
    batch.window = "24h";
    return batches->create(std::move(batch))->id;
  }
  std::string content(const std::string& file) const { return *read_whole(batches->files().path_of(file)); }
  // As it is when it has ended.
  Batch ended(const std::string& id, const std::string& tenant) const {
    EXPECT_TRUE(eventually([&] { return batches->find(id, tenant)->is_over(); })) << id;
    return *batches->find(id, tenant);
  }

  std::unique_ptr<Batches> batches;
  TestServer server;
};

TEST(ServerBatches, BatchWithoutAKeyFailsAndOthersGoOn) {
  const TempFolder folder;
  std::string id;
  {
    const std::unique_ptr<Batches> before = *Batches::open(folder.path(), 1 << 20, 1 << 20);
    Batch batch;
    batch.tenant = "key:of-yesterday";
    batch.endpoint = "/v1/completions";
    batch.input_file = before->files()
                           .create(batch.tenant, "in.jsonl", "batch",
                                   R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})")
                           ->id;
    id = before->create(batch)->id;
  }
  const BatchServer now(folder.path(), "a:key-of-a-1\n");
  const Batch gone = now.ended(id, "key:of-yesterday");
  EXPECT_EQ(gone.status, "failed");
  EXPECT_NE(gone.error.find("key"), std::string::npos) << gone.error;
  EXPECT_EQ(now.ended(now.begin("a", {R"({"prompt":"x"})"}), "a").n_completed, 1);
}

TEST(ServerBatches, ALineThatItsTermsNeverLetInIsAnError) {
  const TempFolder folder;
  const BatchServer now(folder.path(), "a:key-of-a-1 sequences=4\n");
  const Batch batch = now.ended(now.begin("a", {R"({"prompt":"x","n":8})", R"({"prompt":"y","n":4})"}), "a");
  EXPECT_EQ(batch.status, "completed");
  EXPECT_EQ(batch.n_failed, 1);
  EXPECT_EQ(batch.n_completed, 1);
  // Texts go a few at a time, whatever their number.
  const std::string many = R"({"input":["a","b","c","d","e","f"]})";
  EXPECT_EQ(now.ended(now.begin("a", {many}, "/v1/embeddings"), "a").n_completed, 1);
}

TEST(ServerBatches, WaitingBatchLetsAnotherGoOn) {
  const TempFolder folder;
  const BatchServer now(folder.path(), "a:key-of-a-1 tokens-per-minute=1\nb:key-of-b-1\n");
  const std::string x = R"({"prompt":"x","max_tokens":1})";
  const std::string waits = now.begin("a", {x, x, x});
  EXPECT_TRUE(eventually([&] { return now.batches->find(waits, "a")->n_completed > 0; }));
  EXPECT_EQ(now.ended(now.begin("b", {x}), "b").n_completed, 1);
  EXPECT_FALSE(now.batches->find(waits, "a")->is_over());
}

// So many lines that are all answered when they are asked, and take some seconds together.
constexpr int kMany = 30'000;
const std::string kRefused = R"({"prompt":"x","temperature":"hot"})";

TEST(ServerBatches, FastBatchCountsAndIsCancelledBeforeItsNextLine) {
  const TempFolder folder;
  const BatchServer now(folder.path(), "");
  const std::string id = now.begin("", std::vector<std::string>(kMany, kRefused));
  ASSERT_TRUE(eventually([&] { return now.batches->find(id, "")->n_failed > 0; }));
  EXPECT_FALSE(now.batches->find(id, "")->is_over()) << "counts go on while it runs";
  const int64_t n_before = now.batches->cancel(id, "")->n_failed;
  const Batch batch = now.ended(id, "");
  EXPECT_EQ(batch.status, "cancelled");
  EXPECT_LE(batch.n_failed, n_before + 1);
  const std::string errors = now.content(batch.error_file);
  EXPECT_EQ(std::ranges::count(errors, '\n'), batch.n_failed) << "what was answered stays";
}

TEST(ServerBatches, AnotherTenantsComesWhileOnesLinesAreAnsweredAtOnce) {
  const TempFolder folder;
  const BatchServer now(folder.path(), "a:key-of-a-1\nb:key-of-b-1\n");
  const std::string many = now.begin("a", std::vector<std::string>(kMany, kRefused));
  ASSERT_TRUE(eventually([&] { return now.batches->find(many, "a")->n_total > 0; }));
  EXPECT_EQ(now.ended(now.begin("b", {R"({"prompt":"x"})"}), "b").n_completed, 1);
  EXPECT_FALSE(now.batches->find(many, "a")->is_over());
  now.batches->cancel(many, "a");
  now.ended(many, "a");
}

TEST(ServerBatches, AnotherTenantsComesWhileOnesLinesAreLong) {
  const TempFolder folder;
  BatchServer now(folder.path(), "a:key-of-a-1\nb:key-of-b-1\n");
  now.server.backend.frozen = true;  // whatever is asked stays under way
  const std::string x = R"({"prompt":"x"})";
  const std::string many = now.begin("a", std::vector<std::string>(400, x));
  ASSERT_TRUE(eventually([&] { return now.server.backend.n_submitted == Batches::kAtOnce; }));
  const std::string one = now.begin("b", {x});
  EXPECT_TRUE(eventually([&] { return now.server.backend.n_submitted == Batches::kAtOnce + 1; })) << "b's is asked";
  now.server.backend.frozen = false;
  EXPECT_EQ(now.ended(one, "b").n_completed, 1);
  EXPECT_EQ(now.ended(many, "a").n_completed, 400);
}

TEST(ServerBatches, MoreTenantsThanAreWorkedOnAtOnceAllHaveTheirTurn) {
  const TempFolder folder;
  std::string keys;
  const int n_tenants = static_cast<int>(Batches::kMaxOpen) + 3;
  for (int i = 0; i < n_tenants; ++i)  // of each but the last ones no second line is ever let in
    keys += "t" + std::to_string(i) + ":key-number-" + std::to_string(i) +
            (i < n_tenants - 3 ? " tokens-per-minute=1\n" : "\n");
  const BatchServer now(folder.path(), keys);
  const std::string x = R"({"prompt":"x","max_tokens":1})";
  std::vector<std::string> ids;
  for (int i = 0; i < n_tenants; ++i) ids.push_back(now.begin("t" + std::to_string(i), {x, x, x}));
  for (int i = n_tenants - 3; i < n_tenants; ++i)
    EXPECT_EQ(now.ended(ids[static_cast<size_t>(i)], "t" + std::to_string(i)).n_completed, 3);
}

TEST(ServerBatches, AServerThatIsRefusedTouchesNothing) {
  const TempFolder folder;
  const std::unique_ptr<Batches> first = *Batches::open(folder.path(), 1 << 20, 1 << 20);
  // As the first one has them while it writes: bytes without facts, and facts on their way.
  const std::string half = folder.write("files/" + random_id("file-"), "half"),
                    part = folder.write("files/" + random_id("file-") + ".json.part", "{");
  const Result<std::unique_ptr<Batches>> second = Batches::open(folder.path(), 1 << 20, 1 << 20);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another server's"), std::string::npos) << second.error().message;
  EXPECT_TRUE(read_whole(half).ok());
  EXPECT_TRUE(read_whole(part).ok());
}

TEST(ServerBatches, PartialFilesGoAndWholeOnesStayAlsoIfUnreadable) {
  const TempFolder folder;
  std::string whole, damaged, half;
  {
    const std::unique_ptr<Batches> first = *Batches::open(folder.path(), 1 << 20, 1 << 20);
    whole = first->files().create("", "a", "batch", "whole")->id;
    damaged = first->files().create("", "a", "batch", "damaged")->id;
    folder.write("files/" + damaged + ".json", "{\"tenant\":");
    half = folder.write("files/" + random_id("file-"), "half");
  }
  const std::unique_ptr<Batches> second = *Batches::open(folder.path(), 1 << 20, 1 << 20);
  EXPECT_TRUE(second->files().find(whole, ""));
  EXPECT_FALSE(second->files().find(damaged, ""));
  EXPECT_EQ(*read_whole(folder.path("files/" + damaged)), "damaged");
  EXPECT_FALSE(read_whole(half).ok());
}

// Files of this process grow to so many bytes, as on a disk that is full then.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &less);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(ServerBatches, BatchThatFailsOnAFullDiskKeepsItsLines) {
  const TempFolder folder;
  std::string id;
  Batch batch;
  {
    const BatchServer now(folder.path(), "");
    std::vector<std::string> bodies(200, R"({"prompt":"x"})");
    bodies.insert(bodies.begin(), kRefused);
    {
      const FullDisk disk(32 << 10);
      id = now.begin("", bodies);
      batch = now.ended(id, "");
    }
    EXPECT_EQ(batch.status, "failed");
    EXPECT_NE(batch.error.find("disk"), std::string::npos) << batch.error;
    EXPECT_GT(batch.n_completed, 10);
    EXPECT_EQ(batch.n_failed, 1);
    const std::string answers = now.content(batch.output_file);
    EXPECT_EQ(std::ranges::count(answers, '\n'), batch.n_completed);
    EXPECT_TRUE(answers.ends_with("}\n")) << "no line is torn";
    EXPECT_TRUE(now.batches->files().find(batch.error_file, ""));
    EXPECT_NE(batch_json(batch).find(batch.output_file), std::string::npos);
  }
  const std::unique_ptr<Batches> later = *Batches::open(folder.path(), 1 << 20, 1 << 20);
  EXPECT_EQ(later->find(id, "")->status, "failed");
  EXPECT_TRUE(later->files().find(batch.output_file, ""));
}

TEST(ServerBatches, LinesAreReadInPlaceIfTheirFilesCannotBeMade) {
  const TempFolder folder;
  BatchServer now(folder.path(), "");
  now.server.backend.frozen = true;
  const std::string id = now.begin("", {R"({"prompt":"x"})", kRefused});
  ASSERT_TRUE(eventually([&] { return now.batches->find(id, "")->n_failed == 1; }));
  std::filesystem::remove_all(folder.path("files"));
  now.server.backend.frozen = false;
  const Batch batch = now.ended(id, "");
  EXPECT_EQ(batch.status, "completed");
  EXPECT_EQ(std::ranges::count(now.content(batch.output_file), '\n'), 1);
  EXPECT_EQ(std::ranges::count(now.content(batch.error_file), '\n'), 1);
}

TEST(ServerBatches, BatchWithLostOrChangedInputKeepsItsLines) {
  for (const bool is_gone : {false, true}) {
    const TempFolder folder;
    const std::string keys = "a:key-of-a-1 tokens-per-minute=1\n", x = R"({"prompt":"x","max_tokens":1})";
    std::string id;
    {
      const BatchServer now(folder.path(), keys);
      id = now.begin("a", std::vector<std::string>(50, x));
      ASSERT_TRUE(eventually([&] { return now.batches->find(id, "a")->n_completed > 0; }));
      const std::string input = now.batches->files().path_of(now.batches->find(id, "a")->input_file);
      is_gone ? static_cast<void>(std::filesystem::remove(input)) : std::filesystem::resize_file(input, 20);
    }
    const BatchServer now(folder.path(), keys);
    const Batch batch = now.ended(id, "a");
    EXPECT_EQ(batch.status, "failed");
    EXPECT_NE(batch.error.find("input"), std::string::npos) << batch.error;
    EXPECT_GT(batch.n_completed, 0);
    EXPECT_LT(batch.n_completed, 50);
    EXPECT_EQ(std::ranges::count(now.content(batch.output_file), '\n'), batch.n_completed);
  }
}

// The threads that tokenise or compile what users send in bulk give way to the engine; no other does.
TEST(ServerBatches, ItsThreadGivesWayAsTheOneOfLargeBodiesDoes) {
  const TempFolder folder;
  const BatchServer now(folder.path(), "");
  const int own = getpriority(PRIO_PROCESS, 0);
  const auto give_way = [&] {
    std::map<std::string, bool> out;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(task.path().filename())));
      if (name.starts_with("ibid-")) out[name] = nice > own;
    }
    return out;
  };
  // Each thread names itself once it runs, which may be after the server answers.
  EXPECT_TRUE(eventually([&] {
    return give_way() == std::map<std::string, bool>{{"ibid-batch", true}, {"ibid-heavy", true}, {"ibid-io", false}};
  }));
}

}  // namespace
}  // namespace ibid
