// Batches over a scripted engine: what a line, a key or a tenant's terms may do to them.
#include "conformance/server_fixture.h"
#include "server/batches.h"
#include "temp_folder.h"

namespace ibid {
namespace {

// Batches in a folder, and a server that works on them.
class BatchServer {
 public:
  BatchServer(const std::string& folder, const std::string& keys)
      : batches(*Batches::open(folder, 1 << 20, 1 << 20)), server({}, {}, keys) {
    batches->start(*server.service);
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
  // As it is when it has ended.
  Batch ended(const std::string& id, const std::string& tenant) const {
    EXPECT_TRUE(eventually([&] { return batches->find(id, tenant)->is_over(); }, 10)) << id;
    return *batches->find(id, tenant);
  }

  std::unique_ptr<Batches> batches;
  TestServer server;
};

TEST(ServerBatches, OneWhoseKeyIsGoneFailsAndOthersGoOn) {
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

TEST(ServerBatches, OneThatHasToWaitLetsAnotherGoOn) {
  const TempFolder folder;
  const BatchServer now(folder.path(), "a:key-of-a-1 tokens-per-minute=1\nb:key-of-b-1\n");
  const std::string x = R"({"prompt":"x","max_tokens":1})";
  const std::string waits = now.begin("a", {x, x, x});
  EXPECT_TRUE(eventually([&] { return now.batches->find(waits, "a")->n_completed > 0; }));
  EXPECT_EQ(now.ended(now.begin("b", {x}), "b").n_completed, 1);
  EXPECT_FALSE(now.batches->find(waits, "a")->is_over());
}

}  // namespace
}  // namespace ibid
