#include "format/source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/sha256.h"
#include "format/fetched_file.h"
#include "format/file_lock.h"
#include "format/hub.h"
#include "format/model_file.h"
#include "format/registry.h"
#include "format/safetensors.h"
#include "format/test_fetching.h"

namespace ibid {
namespace {

using Server = TestHttpServer;

// A hub of one repository, by path.
class Hub : public Fetching {
 protected:
  Hub() : server_([this](const TestRequest& request) { return serve(request); }) { endpoint_ = server_.address(); }
  std::string serve(const TestRequest& request) {
    if (request.target == "/api/models/user/repo/revision/main" && tells_files_) {
      std::string list;
      for (const auto& [name, bytes] : files_) list += (list.empty() ? "" : ",") + ("{\"rfilename\":\"" + name + "\"}");
      return Server::answer("200 OK", "", "{\"siblings\":[" + list + "]}");
    }
    const std::string prefix = "/user/repo/resolve/main/";
    auto file = request.target.starts_with(prefix) ? files_.find(request.target.substr(prefix.size())) : files_.end();
    if (file == files_.end()) return Server::answer("404 Not Found", "", "Entry not found");
    return Server::answer("200 OK", "ETag: \"" + sha256_hex(file->second) + "\"\r\n", file->second);
  }
  std::string weights(const std::string& name) {
    std::vector<std::byte> data(16);
    std::vector<TensorInfo> tensors = {{name, TensorView(data.data(), DType::kF32, {4})}};
    return safetensors_bytes(tensors);
  }
  std::map<std::string, std::string> files_;
  bool tells_files_ = true;
  Server server_;
};

TEST_F(Hub, AShardedRepositoryBecomesAFolderThatOpens) {
  files_ = {{"config.json", "{\"model_type\": \"llama\"}"},
            {"tokenizer.json", "{}"},
            {"quantize_config.json", R"({"bits":4})"},
            {"model.safetensors.index.json",
             R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})"},
            {"model-00001-of-00002.safetensors", weights("a")},
            {"model-00002-of-00002.safetensors", weights("b")}};
  EXPECT_EQ(locate_model("hf:user/repo", options().cache).error().kind, ErrorKind::kNotFound);
  Result<std::string> path = fetch_model("hf:user/repo", options());
  ASSERT_TRUE(path.ok()) << path.error().message;
  Result<ModelFile> model = ModelFile::open(*path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->tensors().size(), 2u);
  EXPECT_EQ(model->quant_recipe_json(), R"({"quant_method":"gptq","bits":4})");
  EXPECT_EQ(server_.requests()[0].headers.at("authorization"), "Bearer none");

  size_t n = server_.requests().size();
  EXPECT_EQ(fetch_model("hf:user/repo", options()).value(), *path);
  EXPECT_EQ(locate_model("hf:user/repo", options().cache).value(), *path);
  EXPECT_EQ(server_.requests().size(), n) << "a file that is there is not requested";
  auto listed = list_models(options().cache);
  EXPECT_EQ(listed.back().name, "hf:user/repo");
  EXPECT_TRUE(listed.back().present);
}

TEST_F(Hub, OneFileOfARepository) {
  files_ = {{"dir/model.gguf", "GGUF..."}};
  Result<std::string> path = fetch_model("hf:user/repo:dir/model.gguf", options());
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(read(*path), "GGUF...");
  EXPECT_EQ(list_models(options().cache).back().name, "hf:user/repo:dir/model.gguf");
}

// What came is written down beside it, so that what becomes of it later is found.
TEST_F(Hub, DamagedFileIsFoundAndFetchedAgain) {
  files_ = {
      {"config.json", "{\"model_type\": \"llama\"}"}, {"tokenizer.json", "{}"}, {"model.safetensors", weights("a")}};
  const std::string path = fetch_model("hf:user/repo", options()).value(), cache = options().cache;
  int n_known = 0;
  EXPECT_TRUE(check_sums(path, cache, n_known).ok());
  EXPECT_EQ(n_known, 3);
  EXPECT_TRUE(read(path + "/model.safetensors.sha256").starts_with(sha256_hex(weights("a")) + "  model.safetensors\n"));
  const std::string damaged = path + "/model.safetensors";
  {
    std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const Status found = check_sums(path, cache, n_known);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("model.safetensors\" is damaged"), std::string::npos) << found.error().message;
  EXPECT_FALSE(check_digests(*ModelFile::open(path), cache).ok()) << "a start sees it too";
  const size_t n = server_.requests().size();
  EXPECT_TRUE(fetch_model("hf:user/repo", options()).ok());
  EXPECT_EQ(server_.requests().size(), n) << "without a check the file is taken as it is";
  FetchOptions checks = options();
  checks.checks = true;
  EXPECT_TRUE(fetch_model("hf:user/repo", checks).ok());
  EXPECT_EQ(read(damaged), weights("a"));
  EXPECT_TRUE(check_sums(path, cache, n_known).ok());
  EXPECT_TRUE(check_digests(*ModelFile::open(path), cache).ok());
  std::filesystem::remove(damaged);
  EXPECT_FALSE(check_sums(path, cache, n_known).ok()) << "one is gone";
}

TEST_F(Hub, AMissingShardLeavesTheModelAbsent) {
  files_ = {{"config.json", "{}"},
            {"model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})"},
            {"1.safetensors", weights("a")}};
  Result<std::string> path = fetch_model("hf:user/repo", options());
  ASSERT_FALSE(path.ok());
  EXPECT_NE(path.error().message.find("has no 2.safetensors"), std::string::npos) << path.error().message;
  EXPECT_FALSE(locate_model("hf:user/repo", options().cache).ok());
  files_["2.safetensors"] = weights("b");
  EXPECT_TRUE(fetch_model("hf:user/repo", options()).ok());
  int n_first_shard = 0;
  for (const TestRequest& request : server_.requests()) n_first_shard += request.target.ends_with("/1.safetensors");
  EXPECT_EQ(n_first_shard, 1) << "what came stays";
}

TEST_F(Hub, ATagMeansTheFileThatIsSoQuantised) {
  files_ = {{"model-Q4_K_M.gguf", "GGUF m"},
            {"model-UD-Q4_K_M.gguf", "GGUF ud"},
            {"big/model-Q8_0-00001-of-00002.gguf", "GGUF part"},
            {"mmproj-model-F16.gguf", "GGUF eyes"},
            {"model.q5_k_m.gguf", "GGUF 5"},
            {"README.md", "x"}};
  Result<std::string> path = fetch_model("hf:user/repo:q4_k_m", options());
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(read(*path), "GGUF m");
  const size_t n = server_.requests().size();
  EXPECT_EQ(fetch_model("hf:user/repo:Q4_K_M", options()).value(), *path);
  EXPECT_EQ(locate_model("hf:user/repo:Q4_K_M", options().cache).value(), *path);
  EXPECT_EQ(server_.requests().size(), n) << "a file that is there is not requested";
  EXPECT_EQ(read(fetch_model("hf:user/repo:Q5_K_M", options()).value()), "GGUF 5");
  for (const char* none : {"Q4_K", "Q8_0", "F16", "Q4"}) {
    path = fetch_model(std::string("hf:user/repo:") + none, options());
    ASSERT_FALSE(path.ok()) << none;
    EXPECT_NE(path.error().message.find(": model-Q4_K_M.gguf, model-UD-Q4_K_M.gguf, model.q5_k_m.gguf"),
              std::string::npos)
        << path.error().message;
  }
  path = fetch_model("hf:user/repo:other.gguf", options());
  EXPECT_NE(path.error().message.find("model-Q4_K_M.gguf"), std::string::npos) << path.error().message;
  path = fetch_model("hf:user/repo", options());
  EXPECT_NE(path.error().message.find("model-Q4_K_M.gguf"), std::string::npos) << path.error().message;
}

TEST_F(Hub, AHubThatNamesOtherPlacesOrTooMuchIsRefused) {
  files_ = {{"../../x-Q4_0.gguf", "GGUF"}};
  EXPECT_EQ(fetch_model("hf:user/repo:Q4_0", options()).error().kind, ErrorKind::kInvalid);
  files_ = {{std::string(9 << 20, 'x'), ""}};
  EXPECT_FALSE(fetch_model("hf:user/repo:Q4_0", options()).ok());
}

TEST_F(Hub, FetchedFilesCanBeRemoved) {
  files_ = {{"config.json", "{}"}, {"model.safetensors", weights("a")}, {"x-Q4_0.gguf", "GGUF"}};
  const std::string cache = options().cache;
  EXPECT_EQ(remove_model("hf:user/repo", cache).error().kind, ErrorKind::kNotFound);
  ASSERT_TRUE(fetch_model("hf:user/repo", options()).ok());
  ASSERT_TRUE(fetch_model("hf:user/repo:Q4_0", options()).ok());
  EXPECT_GT(remove_model("hf:user/repo", cache).value(), 0);
  EXPECT_FALSE(locate_model("hf:user/repo", cache).ok());
  EXPECT_TRUE(locate_model("hf:user/repo:Q4_0", cache).ok()) << "a model of its own";
  EXPECT_GE(remove_model("hf:user/repo:x-Q4_0.gguf", cache).value(), 4);
  EXPECT_FALSE(std::filesystem::exists(cache + "/models/hub/user/repo/x-Q4_0.gguf.sha256"));
  EXPECT_EQ(remove_model("hf:user/repo:Q4_0", cache).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(list_models(cache).size(), packaged_models().size());
  ASSERT_TRUE(fetch_model("hf:user/repo:Q4_0", options()).ok()) << "and fetched again";

  const std::string own = folder_.write("own.gguf", "x");
  EXPECT_EQ(remove_model(own, cache).error().kind, ErrorKind::kInvalid);
  EXPECT_TRUE(std::filesystem::exists(own));
  EXPECT_EQ(remove_model("default", cache).error().kind, ErrorKind::kNotFound);
}

TEST_F(Hub, ARepositoryOfGgufFilesAsksForAName) {
  tells_files_ = false;
  Result<std::string> path = fetch_model("hf:user/repo", options());
  ASSERT_FALSE(path.ok());
  EXPECT_NE(path.error().message.find("hf:user/repo:model-Q4_K_M.gguf"), std::string::npos) << path.error().message;
}

TEST_F(Hub, SecondFetchTouchesNothing) {
  files_ = {{"model.gguf", "GGUF..."}};
  const std::string folder = options().cache + "/models/hub/user/repo";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/model.gguf.partial") << "half";
  const auto other = FileLock::acquire(folder + "/.lock", [] { return false; });
  ASSERT_TRUE(other.ok());
  FetchOptions gives_up = options();
  gives_up.cancelled = [] { return true; };
  EXPECT_FALSE(fetch_model("hf:user/repo:model.gguf", gives_up).ok());
  EXPECT_EQ(read(folder + "/model.gguf.partial"), "half");
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Hub, ManyProcessesFetchOnce) {
  files_ = {{"model.gguf", body(300'000)}};
  std::vector<std::thread> threads;
  std::atomic<int> n_good = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { n_good += fetch_model("hf:user/repo:model.gguf", options()).ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_good, 8);
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST(Sources, NamesAreReadAndBadOnesRefused) {
  HubModel model = parse_hub("user/re.po-1@v1.0:dir/file.gguf").value();
  EXPECT_EQ(model.repository, "user/re.po-1");
  EXPECT_EQ(model.revision, "v1.0");
  EXPECT_EQ(model.file, "dir/file.gguf");
  EXPECT_EQ(model.text(), "hf:user/re.po-1@v1.0:dir/file.gguf");
  for (const char* bad : {"", "user", "user/", "/repo", "a/b/c", "../repo", "a/..", "a/b:", "a/b:../x", "a/b:/x",
                          "a/b:x//y", "a/b@", "a/b@..", "a b/c", "a/b?x", "a/b:x\ny", "a/%2e%2e"}) {
    EXPECT_FALSE(parse_hub(bad).ok()) << bad;
  }
}

TEST(Sources, PathsAreThemselvesAndUnknownNamesListWhatExists) {
  TempFolder folder;
  std::string path = folder.write("x.gguf", "x");
  EXPECT_EQ(locate_model(path).value(), path);
  EXPECT_EQ(locate_model(folder.path()).value(), folder.path());
  Error error = locate_model("no-such-model").error();
  EXPECT_EQ(error.kind, ErrorKind::kNotFound);
  EXPECT_NE(error.message.find("smollm2"), std::string::npos);
  error = locate_model("default", folder.path()).error();
  EXPECT_NE(error.message.find("ibid pull default"), std::string::npos) << error.message;
}

TEST(Sources, TheListNamesPackagedModelsWhetherThereOrNot) {
  TempFolder folder;
  auto listed = list_models(folder.path());
  ASSERT_EQ(listed.size(), packaged_models().size());
  EXPECT_EQ(listed[0].name, "smollm2");
  EXPECT_EQ(listed[0].size_bytes, 98'362'432);
  EXPECT_FALSE(listed[0].present);
}

}  // namespace
}  // namespace ibid
