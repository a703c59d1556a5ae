// Several models in one server: loaded on demand, unloaded if another one needs their room and they are idle, and no
// request lost.
#include "server/routes/fleet.h"

#include <sys/resource.h>

#include <random>

#include "conformance/server_fixture.h"
#include "server/routes/batches.h"
#include "temp_folder.h"

namespace ibid {
namespace {

// What of the models is there, counted by themselves.
struct Counts {
  std::atomic<int> n_tries = 0;  // to load the broken model, and looks at it
  std::atomic<int> version = 1;  // of the broken model's file
  std::atomic<bool> is_mended = false;
  double step_seconds = 0.0005;  // of models that are loaded from now on
  std::atomic<int64_t> bytes = 0, most_bytes = 0;
  std::atomic<bool> is_over = false;  // the server ends, even with waiting requests
  // Priorities of the threads that load and that handle, the last time.
  std::atomic<int> nice_of_load = 0, nice_of_submit = 0;
};

class CountedBackend final : public Backend {
 public:
  CountedBackend(const FakeBackend::Options& options, int64_t bytes, Counts& counts)
      : inner_(options), bytes_(bytes), counts_(counts) {
    const int64_t now = counts_.bytes += bytes_;
    if (now > counts_.most_bytes) counts_.most_bytes = now;
  }
  ~CountedBackend() override {
    EXPECT_TRUE(counts_.is_over || inner_.n_live() == 0) << "a model that somebody uses is unloaded";
    counts_.bytes -= bytes_;
  }
  void start(OnOutput on_output) override { inner_.start(std::move(on_output)); }
  void stop() override {
    EXPECT_TRUE(counts_.is_over || inner_.n_live() == 0) << "a model that somebody uses is stopped";
    inner_.stop();
  }
  RequestId next_id() override { return inner_.next_id(); }
  bool is_full() const override { return inner_.is_full(); }
  Status submit(Request request) override {
    counts_.nice_of_submit = getpriority(PRIO_PROCESS, 0);
    return inner_.submit(std::move(request));
  }
  void cancel(RequestId id) override { inner_.cancel(id); }
  EngineStats stats() const override { return inner_.stats(); }
  double heartbeat() const override { return inner_.heartbeat(); }
  const Clock& clock() const override { return inner_.clock(); }
  const ModelInfo& model() const override { return inner_.model(); }
  const Tokenizer& tokenizer() const override { return inner_.tokenizer(); }
  Result<RenderedPrompt> render_chat(const ChatPrompt& chat) const override { return inner_.render_chat(chat); }
  std::string_view chat_template() const override { return inner_.chat_template(); }
  const std::shared_ptr<const AnswerFormat>& answer_format() const override { return inner_.answer_format(); }

 private:
  FakeBackend inner_;
  int64_t bytes_;
  Counts& counts_;
};

// Models of 10 bytes each, but "wide" of 1,000 and "broken", which cannot be read.
class FleetServer {
 public:
  explicit FleetServer(int64_t memory_bytes, const std::string& keys = "", int max_loaded = 0, bool autoload = true) {
    ServerOptions options;
    options.autoload = autoload;
    options.port = 0;
    options.log_file = "/dev/null";
    options.aliases = {"first"};
    options.io_threads = 4;
    log = *RequestLog::open(options.log_file, true, true);
    front = std::make_unique<FrontDoor>(options, keys.empty() ? ApiKeys() : *ApiKeys::parse(keys), *log);
    std::vector<FleetModel> models;
    const auto bytes_of = [](const std::string& name) { return name == "wide" ? 1000 : 10; };
    const auto check = [this, bytes_of](const std::string& name, int64_t memory) -> Status {
      counts.n_tries += name == "broken";
      if (name == "broken" && !counts.is_mended) return invalid("It is no model.");
      return bytes_of(name) > memory ? Status(exhausted("It does not fit.")) : Status();
    };
    for (const std::string name : {"a", "b", "c", "wide", "broken"}) {
      models.push_back({name, name == "a" ? options.aliases : std::vector<std::string>(),
                        [this, name, check, bytes_of](int64_t left) -> Result<LoadedModel> {
                          counts.nice_of_load = getpriority(PRIO_PROCESS, 0);
                          TRY(check(name, left));
                          const int64_t bytes = bytes_of(name);
                          FakeBackend::Options of_model;
                          of_model.name = name;
                          of_model.answer_len = 40;
                          of_model.step_seconds = counts.step_seconds;
                          return LoadedModel{std::make_unique<CountedBackend>(of_model, bytes, counts), bytes};
                        },
                        [name, check](int64_t memory) { return check(name, memory); },
                        [this] { return std::to_string(counts.version); }});
    }
    fleet = std::make_unique<Fleet>(FleetOptions{std::move(models), memory_bytes, max_loaded}, *front);
    front->set_fleet(fleet.get());
    http = std::make_unique<HttpServer>(options, *front, *log);
    EXPECT_TRUE(http->listen().ok());
    http->start();
  }
  ~FleetServer() { stop(); }
  void stop() {
    if (!http) return;
    counts.is_over = true;
    front->set_draining();
    fleet->join();
    http->stop();
    fleet = nullptr;
    http = nullptr;
    EXPECT_EQ(counts.bytes, 0);
  }
  std::string loaded() const {
    std::string out;
    for (const FleetFacts& model : fleet->facts()) out += model.is_loaded ? model.name : "";
    return out;
  }

  Counts counts;
  std::unique_ptr<RequestLog> log;
  std::unique_ptr<FrontDoor> front;
  std::unique_ptr<Fleet> fleet;
  std::unique_ptr<HttpServer> http;
};

std::string body_for(const std::string& model, const std::string& more = "") {
  return R"({"prompt":"hey","seed":1)" + (model.empty() ? "" : ",\"model\":\"" + model + "\"") + more + "}";
}
HttpAnswer ask(const FleetServer& server, const std::string& model, const std::string& more = "") {
  RawClient client(server.http->port());
  return client.post("/v1/completions", body_for(model, more));
}
std::string model_of(const HttpAnswer& answer) {
  const Result<Json> json = parse_json(answer.body);
  const Json* model = json ? json->find("model") : nullptr;
  return model != nullptr && model->string() != nullptr ? *model->string() : answer.body;
}

TEST(ServerFleet, LoadsAtMostTheOperatorsNumberAtOnce) {
  FleetServer server(1000, "", 2);
  for (const char* model : {"a", "b", "a", "c"}) EXPECT_EQ(model_of(ask(server, model)), model);
  EXPECT_EQ(server.loaded(), "ac") << "who was used least recently went, though there was memory";
  EXPECT_EQ(model_of(ask(server, "b")), "b");
  EXPECT_EQ(server.loaded(), "bc");
}

TEST(ServerFleet, WithoutAutoloadModelsAreLoadedByRouteOnly) {
  FleetServer server(100, "", 0, false);
  RawClient client(server.http->port());
  const HttpAnswer refused = ask(server, "b");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_NE(refused.body.find("model_not_loaded"), std::string::npos) << refused.body;
  EXPECT_EQ(server.loaded(), "");
  EXPECT_EQ(client.post("/models/load", R"({"model":"b"})").status, 200);
  EXPECT_EQ(model_of(ask(server, "b")), "b");
  EXPECT_EQ(ask(server, "a").status, 400);
}

TEST(ServerFleet, PredictionsComeFromTheModelThatTheFirstInstanceNames) {
  FleetServer server(100);
  RawClient client(server.http->port());
  const auto instance = [](const std::string& model) {
    return R"({"@requestFormat":"completions","prompt":"hey","max_tokens":2)" +
           (model.empty() ? "}" : R"(,"model":")" + model + "\"}");
  };
  const HttpAnswer answer = client.post("/predict", R"({"instances":[)" + instance("b") + "," + instance("") + "]}");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(server.loaded(), "b");
  EXPECT_EQ(answer.body.find("\"model\":\"a\""), std::string::npos) << answer.body;
  const HttpAnswer mixed = client.post("/predict", R"({"instances":[)" + instance("b") + "," + instance("a") + "]}");
  EXPECT_EQ(mixed.status, 400) << mixed.body;
  EXPECT_EQ(error_param(mixed), "instances[1].model");
  EXPECT_EQ(client.post("/predict", R"({"instances":[)" + instance("nobody") + "]}").status, 404);
}

TEST(ServerFleet, ARequestGoesToTheModelThatItNamesWhichIsLoadedForIt) {
  FleetServer server(100);
  EXPECT_EQ(server.loaded(), "");
  EXPECT_EQ(model_of(ask(server, "b")), "b");
  EXPECT_EQ(server.loaded(), "b");
  EXPECT_EQ(model_of(ask(server, "")), "a") << "who names none gets the first";
  EXPECT_EQ(model_of(ask(server, "first")), "first");
  EXPECT_EQ(server.loaded(), "ab");
  RawClient client(server.http->port());
  EXPECT_EQ(model_of(client.post("/api/generate", R"({"model":"c:latest","prompt":"x","stream":false})")), "c");
  const HttpAnswer unknown = ask(server, "gpt-4o");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("model_not_found"), std::string::npos);
  EXPECT_EQ(client.post("/v1/completions", "{\"model\":").status, 400);
  EXPECT_EQ(client.post("/v1/completions", "[]").status, 400);
  EXPECT_EQ(client.post("/v1/completions", R"({"model":7,"prompt":"x"})").status, 400);
  EXPECT_EQ(server.loaded(), "abc");
}

TEST(ServerFleet, LoadedModelsAreListed) {
  FleetServer server(100);
  ask(server, "b");
  RawClient client(server.http->port());
  const Json models = *parse_json(client.get("/v1/models").body);
  std::string told;
  for (const Json& model : *models.find("data")->array())
    told += *model.find("id")->string() + (*model.find("loaded")->boolean() ? "+ " : "- ");
  EXPECT_EQ(told, "a- first- b+ c- wide- broken- ");
  EXPECT_EQ(client.get("/v1/models/c").status, 200);
  EXPECT_EQ(client.get("/v1/models/d").status, 404);
  const std::string ps = client.get("/api/ps").body, tags = client.get("/api/tags").body;
  EXPECT_EQ(ps.find("\"name\":\"a\""), std::string::npos);
  EXPECT_NE(ps.find("\"name\":\"b\""), std::string::npos);
  EXPECT_NE(tags.find("\"name\":\"a\""), std::string::npos);
  EXPECT_EQ(client.get("/props?model=b").status, 200);
  EXPECT_EQ(client.get("/props?model=c").status, 503) << "reads load nothing";
  EXPECT_EQ(client.get("/health").status, 200);
  const std::string metrics = client.get("/metrics").body;
  EXPECT_NE(metrics.find("ibid_model_loaded{model=\"b\"} 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("ibid_model_loaded{model=\"a\"} 0\n"), std::string::npos);
  EXPECT_NE(metrics.find("ibid_model_generated_tokens_total{model=\"b\"} 40\n"), std::string::npos);
  EXPECT_EQ(server.loaded(), "b");
}

TEST(ServerFleet, TheLeastRecentlyUsedOneMakesRoom) {
  FleetServer server(20);
  for (const auto& [model, loaded] : {std::pair{"a", "a"}, {"b", "ab"}, {"a", "ab"}, {"c", "ac"}, {"b", "bc"}}) {
    EXPECT_EQ(model_of(ask(server, model)), model);
    EXPECT_EQ(server.loaded(), loaded);
  }
  EXPECT_EQ(server.counts.most_bytes, 20);
  // Counters do not fall when an engine goes.
  EXPECT_EQ(server.fleet->facts()[0].stats.generated_tokens, 80);
}

TEST(ServerFleet, NoRequestIsLostAndNoneCutWhereOneFitsAtATime) {
  FleetServer server(10);
  const std::string wanted = FakeBackend::answer("hey", 1, 40);
  std::vector<std::thread> clients;
  std::atomic<int> n_whole = 0;
  for (int i = 0; i < 48; ++i) {
    clients.emplace_back([&, i] {
      const std::string model(1, static_cast<char>('a' + i % 3));
      const HttpAnswer answer = ask(server, model, i % 2 == 0 ? ",\"stream\":true" : "");
      std::string text;
      for (size_t at = 0; (at = answer.body.find("\"text\":\"", at)) != std::string::npos;) {
        at += 8;
        text += answer.body.substr(at, answer.body.find('"', at) - at);
      }
      if (answer.status == 200 && text == wanted && answer.body.find("\"model\":\"" + model) != std::string::npos)
        ++n_whole;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_whole, 48);
  EXPECT_EQ(server.counts.most_bytes, 10);
  int64_t n_loads = 0;
  for (const FleetFacts& model : server.fleet->facts()) n_loads += model.n_loads;
  EXPECT_LT(n_loads, 24) << "those that wait for a model are taken together";
}

TEST(ServerFleet, AStreamOfRequestsKeepsNoModelOutForEver) {
  FleetServer server(10);
  std::atomic<bool> is_over = false;
  std::atomic<int> n_refused = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      while (!is_over) n_refused += ask(server, "a").status != 200;
    });
  }
  EXPECT_TRUE(eventually([&] { return server.loaded() == "a"; }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(model_of(ask(server, "b")), "b");
  is_over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_refused, 0);
}

TEST(ServerFleet, AModelThatCannotBeLoadedIsItsRequestsAffairAlone) {
  FleetServer server(20);
  ask(server, "a");
  const HttpAnswer broken = ask(server, "broken");
  EXPECT_EQ(broken.status, 503);
  EXPECT_NE(broken.body.find("It is no model."), std::string::npos);
  EXPECT_EQ(server.loaded(), "a");
  EXPECT_EQ(ask(server, "wide").status, 503);
  EXPECT_EQ(model_of(ask(server, "a")), "a");
  EXPECT_EQ(ask(server, "wide").status, 503);
  EXPECT_EQ(server.loaded(), "a") << "what was seen not to fit beside nothing makes nobody leave";
}

TEST(ServerFleet, RequestWithoutAKeyLoadsNothing) {
  FleetServer server(20, "a:key-of-tenant-a");
  EXPECT_EQ(ask(server, "a").status, 401);
  EXPECT_EQ(server.loaded(), "");
}

TEST(ServerFleet, RequestsWaitingForAModelFailWhenTheServerEnds) {
  FleetServer server(10);
  RawClient slow(server.http->port());
  const std::string body = body_for("a", ",\"max_tokens\":2000,\"stream\":true");
  slow.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\nContent-Type: application/json\r\n\r\n" + body);
  EXPECT_TRUE(eventually([&] { return server.loaded() == "a" && server.fleet->facts()[0].stats.n_running == 1; }));
  HttpAnswer waited;
  std::thread waiting([&] { waited = ask(server, "b"); });
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 2; }));
  EXPECT_EQ(server.loaded(), "a") << "it is in use";
  server.stop();
  waiting.join();
  EXPECT_EQ(waited.status, 503);
}

TEST(Fleet, KeepAliveZeroUnloadsAnUnusedModel) {
  FleetServer server(1000);
  const auto ollama = [&](const std::string& model, const std::string& more) {
    RawClient client(server.http->port());
    return client.post("/api/generate", R"({"model":")" + model + "\",\"stream\":false" + more + "}");
  };
  EXPECT_EQ(ollama("a", R"(,"prompt":"hey")").status, 200);
  EXPECT_EQ(ollama("b", R"(,"prompt":"hey","keep_alive":"5m")").status, 200);
  EXPECT_EQ(server.loaded(), "ab");
  EXPECT_EQ(ollama("a", R"(,"prompt":"hey","keep_alive":0)").status, 200);
  EXPECT_TRUE(eventually([&] { return server.loaded() == "b"; })) << "after its answer";
  const HttpAnswer gone = ollama("b", R"(,"keep_alive":"0s")");
  EXPECT_NE(gone.body.find(R"("done_reason":"unload")"), std::string::npos) << gone.body;
  EXPECT_TRUE(eventually([&] { return server.loaded().empty(); }));
  EXPECT_EQ(ask(server, "a").status, 200) << "and comes again";
  // Of one that another has in use, it is the last who counts.
  for (const bool is_wanted_again : {true, false}) {
    RawClient busy(server.http->port());
    busy.send(RawClient::post_text("/v1/completions", body_for("a", R"(,"stream":true,"max_tokens":400)")));
    ASSERT_TRUE(busy.receive_until("data: "));
    EXPECT_EQ(ollama("a", R"(,"keep_alive":0)").status, 200);
    EXPECT_EQ(server.loaded(), "a");
    if (is_wanted_again) {
      EXPECT_EQ(ask(server, "a").status, 200);
    }
    EXPECT_TRUE(busy.receive_until("[DONE]"));
    busy.close();
    EXPECT_TRUE(eventually([&] { return server.fleet->facts()[0].n_users == 0; }));
    if (is_wanted_again) {
      EXPECT_EQ(server.loaded(), "a");
    } else {
      EXPECT_TRUE(eventually([&] { return server.loaded().empty(); }));
    }
  }
}

TEST(Fleet, AModelIsLoadedAndUnloadedByItsName) {
  FleetServer server(1000);
  RawClient client(server.http->port());
  EXPECT_EQ(client.post("/models/load", R"({"model":"b"})").body, R"({"success":true})");
  EXPECT_NE(server.loaded().find('b'), std::string::npos);
  EXPECT_EQ(client.post("/models/unload", R"({"model":"b"})").body, R"({"success":true})");
  EXPECT_TRUE(eventually([&] { return server.loaded().find('b') == std::string::npos; }));
  // What is not there is not loaded to be unloaded.
  const int64_t n_before = server.fleet->facts()[1].n_loads;
  EXPECT_EQ(client.post("/models/unload", R"({"model":"b"})").status, 200);
  EXPECT_EQ(server.fleet->facts()[1].n_loads, n_before);
  EXPECT_EQ(client.post("/models/load", R"({"model":"nobody"})").status, 404);
}

TEST(Fleet, ServerOfOneModelRefusesToUnloadIt) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_EQ(client.post("/models/unload", R"({"model":"fake-1"})").status, 400);
  EXPECT_EQ(client.post("/models/load", R"({"model":"fake-1"})").status, 200);
  const HttpAnswer answer = client.post("/api/generate", R"({"model":"fake-1","keep_alive":0})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("one model"), std::string::npos) << answer.body;
  EXPECT_EQ(client.post("/api/generate", R"({"model":"fake-1","prompt":"hey","stream":false,"keep_alive":0})").status,
            200);
}

// What waited for a model is tokenised and compiled where large bodies are, with their priority; the model is not
// loaded with it, for its engine's threads would have it too.
TEST(Fleet, WaitingRequestGivesWayAndTheLoadDoesNot) {
  FleetServer server(100);
  EXPECT_EQ(ask(server, "b").status, 200);
  EXPECT_EQ(server.counts.nice_of_load, getpriority(PRIO_PROCESS, 0));
  EXPECT_GT(server.counts.nice_of_submit, server.counts.nice_of_load);
}

// The model that must make room waits for the answers that the batch has under way, and these wait for their reader.
TEST(Fleet, ABatchOfTwoModelsThatDoNotFitTogetherEnds) {
  const TempFolder folder;
  FleetServer server(100, "", 1);
  const std::unique_ptr<Batches> batches = *Batches::open(folder.path(), 1 << 20, 1 << 20);
  batches->start(*server.front);
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines += "{\"custom_id\":\"" + std::to_string(i) + R"(","method":"POST","url":"/v1/completions","body":)" +
             body_for(i % 2 == 0 ? "a" : "b") + "}\n";
  }
  Batch batch;
  batch.endpoint = "/v1/completions";
  batch.input_file = batches->files().create("", "in.jsonl", "batch", lines)->id;
  const std::string id = batches->create(batch)->id;
  EXPECT_TRUE(eventually([&] { return batches->find(id, "")->is_over(); }));
  EXPECT_EQ(batches->find(id, "")->n_completed, 12);
  server.front->set_draining();
  batches->stop();
  server.stop();
}

// A stream of `a` that is under way, and far from its end.
class Stream {
 public:
  explicit Stream(FleetServer& server) : client_(server.http->port()) {
    server.counts.step_seconds = 0.05;
    client_.send(RawClient::post_text("/v1/completions", body_for("a", R"(,"stream":true,"max_tokens":2000)")));
    EXPECT_TRUE(client_.receive_until("data: "));
  }
  bool goes_on() { return client_.buffer.find("[DONE]") == std::string::npos; }

 private:
  RawClient client_;
};

const std::string kOneToken = R"(,"max_tokens":1)";

TEST(Fleet, UnloadableFileUnloadsNoModel) {
  FleetServer server(100, "", 1);
  Stream stream(server);
  for (const char* model : {"broken", "wide"}) {
    const HttpAnswer answer = ask(server, model);
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_EQ(server.loaded(), "a");
    EXPECT_TRUE(stream.goes_on()) << "nobody waited for its end";
    EXPECT_EQ(model_of(ask(server, "a", kOneToken)), "a") << "who is not asked to leave takes new requests";
  }
  EXPECT_EQ(server.fleet->facts()[0].n_unloads, 0);
}

TEST(Fleet, LoadFailureIsRememberedUntilTheFileChanges) {
  FleetServer server(10);
  EXPECT_EQ(ask(server, "a").status, 200);
  const std::string told = ask(server, "broken").body;
  EXPECT_NE(told.find("It is no model."), std::string::npos) << told;
  const int n_tries = server.counts.n_tries;
  EXPECT_GT(n_tries, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(server, "broken").body, told);
  EXPECT_EQ(server.counts.n_tries, n_tries);
  ++server.counts.version;
  EXPECT_EQ(ask(server, "broken").status, 503);
  EXPECT_GT(server.counts.n_tries, n_tries) << "another file is looked at again";
  EXPECT_EQ(server.loaded(), "a");
  server.counts.is_mended = true;
  EXPECT_EQ(ask(server, "broken").status, 503);
  ++server.counts.version;
  EXPECT_EQ(model_of(ask(server, "broken")), "broken");
}

struct Shown {
  std::string method, path, headers, body;
};
HttpAnswer send(RawClient& client, const Shown& shown) {
  client.send(shown.method + " " + shown.path + " HTTP/1.1\r\nHost: localhost\r\n" + shown.headers +
              "Content-Length: " + std::to_string(shown.body.size()) + "\r\n\r\n" + shown.body);
  return client.answer();
}

const std::string kJson = "Content-Type: application/json\r\n";

// What is wrong with each, and can be seen without a model.
std::vector<Shown> wrong_for(const std::string& model) {
  std::vector<Shown> out;
  const std::string names = "\"model\":\"" + model + "\"";
  struct Form {
    const char* path;
    const char* whole;  // a good body's members, but for the model
    std::vector<const char*> wrong;
  };
  const std::vector<Form> forms = {
      {"/v1/chat/completions",
       R"("messages":[{"role":"user","content":"x"}])",
       {"", R"("messages":[])", R"("messages":[{"role":"nobody","content":"x"}])",
        R"("messages":[{"role":"user","content":"x"}],"temperature":-1)",
        R"("messages":[{"role":"user","content":"x"}],"n":100000)"}},
      {"/chat/completions", "", {"", R"("messages":7)"}},
      {"/v1/chat/completions/batch", "", {"", R"("messages":[])", R"("messages":[[{"role":"user"}]])"}},
      {"/v1/chat/completions/input_tokens", "", {}},
      {"/v1/completions", R"("prompt":"x")", {"", R"("prompt":"x","top_p":7)", R"("prompt":"x","max_tokens":0)"}},
      {"/v1/responses",
       R"("input":"x")",
       {"", R"("input":"x","temperature":9999)", R"("input":"x","previous_response_id":"resp_none")"}},
      {"/v1/messages",
       R"("max_tokens":4,"messages":[{"role":"user","content":"x"}])",
       {"", R"("messages":[{"role":"user","content":"x"}])",
        R"("max_tokens":4,"messages":[{"role":"user","content":"x"}],"top_k":-7)"}},
      {"/api/chat",
       R"("messages":[{"role":"user","content":"x"}])",
       {R"("messages":[{"role":"nobody","content":"x"}])"}},
      {"/api/generate", R"("prompt":"x")", {R"("prompt":7)", R"("prompt":"x","options":7)"}},
      {"/completion", "", {""}},
      {"/infill", "", {}},
      {"/invocations", "", {}},
      {"/predict",
       "",
       {
           "",
       }},
      {"/v1/embeddings", R"("input":"x")", {""}},
      {"/v2/embed", "", {""}},
      {"/api/embed", "", {}},
      {"/embedding", "", {""}},
      {"/pooling", "", {""}},
      {"/v1/rerank", "", {""}},
      {"/v1/score", "", {}},
      {"/tokenize", "", {""}},
      {"/detokenize", "", {""}},
      {"/apply-template", "", {""}},
      {"/models/load", "", {}},
      {"/models/unload", "", {}},
  };
  for (const Form& form : forms) {
    const std::string whole = *form.whole == '\0' ? "{" + names + "}" : "{" + names + "," + form.whole + "}";
    const std::string path = form.path;
    out.push_back({"POST", path + "/nowhere", kJson, whole});
    out.push_back({"PUT", path, kJson, whole});
    out.push_back({"GET", path, "", whole});
    out.push_back({"POST", path, "Content-Type: text/plain; charset=utf-16\r\n", whole});
    out.push_back({"POST", path, kJson + "Content-Encoding: gzip\r\n", whole});
    out.push_back({"POST", path, kJson + "Origin: http://elsewhere.example\r\n", whole});
    out.push_back({"POST", path, kJson, whole.substr(0, whole.size() - 1)});
    out.push_back({"POST", path, kJson, "[" + whole + "]"});
    for (const char* wrong : form.wrong)
      out.push_back({"POST", path, kJson, *wrong == '\0' ? "{" + names + "}" : "{" + names + "," + wrong + "}"});
  }
  for (const char* path : {"/nope", "/v1/nope", "/", "/v1/models", "/props", "/health"})
    out.push_back({"POST", path, kJson, "{" + names + ",\"prompt\":\"x\"}"});
  return out;
}

TEST(Fleet, NothingIsLoadedForARequestThatIsRefusedAnyway) {
  FleetServer server(10);
  EXPECT_EQ(ask(server, "a").status, 200);
  for (const Shown& shown : wrong_for("b")) {
    RawClient client(server.http->port());
    const HttpAnswer answer = send(client, shown);
    EXPECT_TRUE(answer.status >= 400 && answer.status < 500) << shown.method << shown.path << shown.body << answer.body;
    EXPECT_EQ(server.loaded(), "a") << shown.method << shown.path << shown.headers << shown.body << answer.body;
    EXPECT_EQ(server.fleet->facts()[1].n_loads, 0);
    if (server.loaded() != "a") return;
  }
}

// What of each model others may see, but for who uses it at the moment.
std::vector<std::string> standing(const FleetServer& server) {
  std::vector<std::string> out;
  for (const FleetFacts& f : server.fleet->facts())
    out.push_back(f.name + (f.is_loaded ? " loaded " : " ") + std::to_string(f.n_loads) + " " +
                  std::to_string(f.n_unloads) + " " + std::to_string(f.bytes));
  return out;
}

TEST(Fleet, ARequestThatEndsInAnErrorChangesNoOtherModel) {
  for (const int seed : {1, 2, 3, 4}) {
    FleetServer server(seed % 2 == 0 ? 20 : 1000, "alice:key-of-alice sequences=4\nbob:key-of-bob",
                       seed % 2 == 0 ? 0 : 1);
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto one_of = [&](const auto& list) { return list[random() % list.size()]; };
    const std::vector<std::string> models = {"a", "b", "c", "wide", "broken", "nobody", ""};
    for (int i = 0; i < 200; ++i) {
      const std::string model = one_of(models);
      const std::vector<Shown> wrong = wrong_for(model);
      Shown shown = random() % 3 == 0
                        ? Shown{"POST", "/v1/completions", kJson, body_for(model, random() % 2 == 0 ? R"(,"n":5)" : "")}
                        : wrong[random() % wrong.size()];
      if (random() % 4 == 0) shown = {"POST", "/models/unload", kJson, body_for(model)};
      if (random() % 20 != 0)
        shown.headers += random() % 2 == 0 ? "X-Api-Key: key-of-alice\r\n" : "X-Api-Key: key-of-bob\r\n";
      ASSERT_TRUE(eventually([&] {
        for (const FleetFacts& f : server.fleet->facts())
          if (f.n_users > 0) return false;
        return true;
      }));
      const std::vector<std::string> before = standing(server);
      RawClient client(server.http->port());
      const HttpAnswer answer = send(client, shown);
      ASSERT_GT(answer.status, 0) << shown.method << shown.path << shown.body;
      if (answer.status == 200 && shown.path == "/models/unload") {
        ASSERT_TRUE(eventually([&] {
          for (const FleetFacts& f : server.fleet->facts())
            if (f.name == model && f.bytes > 0) return false;
          return true;
        }));
      }
      if (answer.status < 400) continue;
      EXPECT_EQ(standing(server), before)
          << seed << ' ' << i << shown.method << shown.path << shown.body << answer.body;
    }
  }
}

TEST(Fleet, ClientThatLeavesWhileItWaitsForAModelIsForgotten) {
  FleetServer server(1000, "", 1);
  Stream stream(server);
  {
    RawClient waiting(server.http->port());
    waiting.send(RawClient::post_text("/v1/completions", body_for("b")));
    // It waits for `a` to leave, which takes nothing new meanwhile.
    EXPECT_TRUE(eventually([&] { return !server.fleet->use("a"); }));
  }
  EXPECT_TRUE(eventually([&] { return server.fleet->use("a") != nullptr; }));
  EXPECT_EQ(model_of(ask(server, "a", kOneToken)), "a");
  EXPECT_TRUE(stream.goes_on()) << "nobody waited for its end";
  EXPECT_EQ(server.fleet->facts()[0].n_unloads, 0);
  EXPECT_EQ(server.fleet->facts()[1].n_loads, 0);
}

TEST(Fleet, TenantsTakeTurnsAtLoads) {
  FleetServer server(1000);
  std::atomic<bool> may_go = false;
  std::string order;
  std::atomic<int> n_done = 0;
  server.fleet->post("a", "busy", [&] {
    while (!may_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  for (int i = 0; i < 4; ++i) server.fleet->post("model" + std::to_string(i), "alice", [&] { order += 'a', ++n_done; });
  server.fleet->post("b", "bob", [&] { order += 'b', ++n_done; });
  may_go = true;
  EXPECT_TRUE(eventually([&] { return n_done == 5; }));
  EXPECT_EQ(order, "abaaa");
}

HttpAnswer of_tenant(const FleetServer& server, const std::string& tenant, const std::string& path,
                     const std::string& body) {
  RawClient client(server.http->port());
  return send(client, {"POST", path, kJson + "X-Api-Key: key-of-" + tenant + "\r\n", body});
}

TEST(Fleet, ATenantUnloadsWhatItAloneHasUsed) {
  FleetServer server(1000, "alice:key-of-alice\nbob:key-of-bob\nroot:key-of-root admin=yes");
  const auto is_loaded = [&](const char* model) { return server.loaded().find(model) != std::string::npos; };
  const auto use = [&](const std::string& tenant, const std::string& model) {
    EXPECT_EQ(of_tenant(server, tenant, "/v1/completions", body_for(model)).status, 200);
  };
  use("alice", "a"), use("bob", "b"), use("alice", "c"), use("bob", "c");
  const auto refused = [&](const std::string& tenant, const std::string& path, const std::string& body) {
    const HttpAnswer answer = of_tenant(server, tenant, path, body);
    EXPECT_EQ(answer.status, 403) << tenant << path << body << answer.body;
    EXPECT_NE(answer.body.find("admin"), std::string::npos) << answer.body;
    EXPECT_EQ(server.loaded(), "abc");
    return answer.body;
  };
  for (const char* model : {"a", "c"}) {
    const std::string names = R"({"model":")" + std::string(model) + "\"";
    refused("bob", "/models/unload", names + "}");
    EXPECT_TRUE(refused("bob", "/api/generate", names + R"(,"keep_alive":0})").starts_with("{\"error\":\""));
    refused("bob", "/api/chat", names + R"(,"keep_alive":"0s","messages":[]})");
    // A question is answered; its other commands about the model are ignored.
    EXPECT_EQ(
        of_tenant(server, "bob", "/api/generate", names + R"(,"prompt":"x","stream":false,"keep_alive":0})").status,
        200);
    EXPECT_EQ(server.loaded(), "abc");
  }
  EXPECT_EQ(of_tenant(server, "bob", "/models/unload", R"({"model":"b"})").status, 200);
  EXPECT_TRUE(eventually([&] { return !is_loaded("b"); }));
  EXPECT_EQ(of_tenant(server, "root", "/models/unload", R"({"model":"a"})").status, 200);
  EXPECT_TRUE(eventually([&] { return !is_loaded("a"); }));
  EXPECT_EQ(of_tenant(server, "root", "/api/generate", R"({"model":"c","keep_alive":0})").status, 200);
  EXPECT_TRUE(eventually([&] { return !is_loaded("c"); }));
  use("bob", "c");  // it is another's no more
  EXPECT_EQ(of_tenant(server, "bob", "/api/generate", R"({"model":"c","keep_alive":0})").status, 200);
  EXPECT_TRUE(eventually([&] { return !is_loaded("c"); }));
}

TEST(Fleet, UnloadDoesNotLoadAModel) {
  FleetServer server(10);
  EXPECT_EQ(ask(server, "a").status, 200);
  RawClient client(server.http->port());
  for (const char* body : {R"({"model":"b","keep_alive":0})", R"({"model":"b","keep_alive":0,"messages":[]})"}) {
    const bool is_chat = std::string_view(body).find("messages") != std::string_view::npos;
    const HttpAnswer answer = client.post(is_chat ? "/api/chat" : "/api/generate", body);
    EXPECT_EQ(answer.status, 200);
    EXPECT_NE(answer.body.find(R"("done_reason":"unload")"), std::string::npos) << answer.body;
    EXPECT_EQ(server.loaded(), "a");
  }
}

TEST(Fleet, ATenantsOwnModelsMakeRoomForEachOther) {
  FleetServer server(20, "alice:key-of-alice\nbob:key-of-bob");
  const auto use = [&](const std::string& tenant, const std::string& model) {
    EXPECT_EQ(of_tenant(server, tenant, "/v1/completions", body_for(model)).status, 200);
    const auto is_used = [](const FleetFacts& facts) { return facts.n_users > 0; };  // the answer comes a little before
    EXPECT_TRUE(eventually([&] { return std::ranges::none_of(server.fleet->facts(), is_used); }));
  };
  use("alice", "a");
  for (int i = 0; i < 3; ++i) use("bob", "b"), use("bob", "c");
  EXPECT_EQ(server.loaded(), "ac");
  EXPECT_EQ(server.fleet->facts()[0].n_unloads, 0);
}

TEST(Fleet, RequestBeyondItsQuotaLoadsNothing) {
  FleetServer server(10, "alice:key-of-alice tokens-per-minute=1\nbob:key-of-bob");
  EXPECT_EQ(of_tenant(server, "alice", "/v1/completions", body_for("a")).status, 200);
  EXPECT_EQ(of_tenant(server, "alice", "/v1/completions", body_for("b")).status, 429);
  EXPECT_EQ(server.loaded(), "a");
}

}  // namespace
}  // namespace ibid
