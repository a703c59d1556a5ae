// Runs tests/scenario/*.txt: the scheduler's life as text, one line an event, over the fake model.
//
//   engine blocks=8 block=4 tokens=8 sequences=4 context=32 [prefix_cache=0] [window=8] [policy=fcfs]
//   submit A prompt=12 max=3 [n=2] [like=B:8] [priority=1] [salt=t] [score=1]   like: the first 8 tokens are B's
//   step A:8 B:1 [-> A length, B.1 cancelled]   one step, whose plan is exactly these shares (B.1: the choice 1 of B),
//                                       after which exactly these choices have ended
//   step idle                           there was nothing to do
//   run 12                              so many steps, whatever they do
//   drain                               steps until nothing is left
//   cancel A · preempt A[.1]
//   blocks free=3 cached=2 in_use=3 shared=0      any of them
//   requests running=2 waiting=1
//   copies 1                            of the last step
//   cached A 8                          prompt tokens of A that came from the cache, by its usage
//   refused A prompt=40 max=3 : sentence          submit() rejects it, with these words
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "engine/engine.h"
#include "fake_model.h"
#include "source_paths.h"

namespace ibid {
namespace {

using Fields = std::map<std::string, std::string>;

class Scenario {
 public:
  void run(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      SCOPED_TRACE(file.filename().string() + ":" + std::to_string(number) + ": " + line);
      line = line.substr(0, line.find('#'));
      std::istringstream words(line);
      std::string verb;
      if (words >> verb) obey(verb, words);
      if (core_) core_->self_check();
      if (::testing::Test::HasFailure()) return;
    }
    if (model_) {
      EXPECT_EQ(model_->faults(), std::vector<std::string>());
    }
  }

 private:
  static Fields fields_of(std::istringstream& words) {
    Fields out;
    for (std::string word; words >> word && word != ":";) {
      out[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }
    return out;
  }
  static int number(const Fields& f, const std::string& key, int otherwise) {
    const auto it = f.find(key);
    return it == f.end() ? otherwise : std::stoi(it->second);
  }

  void obey(const std::string& verb, std::istringstream& words) {
    if (verb == "engine") return start(fields_of(words));
    if (verb == "step") return step(words);
    if (verb == "drain") {
      for (int i = 0; i < 10000 && turn(); ++i) {
      }
      return;
    }
    if (verb == "blocks" || verb == "requests") return check(fields_of(words));
    std::string name;
    words >> name;
    if (verb == "submit") {
      const Status s = core_->submit(request(name, fields_of(words)));
      EXPECT_TRUE(s.ok()) << s.error().message;
    } else if (verb == "refused") {
      const Status s = core_->submit(request(name, fields_of(words)));
      std::string sentence;
      std::getline(words >> std::ws, sentence);
      ASSERT_FALSE(s.ok());
      EXPECT_NE(s.error().message.find(sentence), std::string::npos) << s.error().message;
    } else if (verb == "run") {
      for (int i = std::stoi(name); i > 0; --i) turn();
    } else if (verb == "cancel") {
      core_->cancel(ids_.at(name));
    } else if (verb == "preempt") {
      EXPECT_TRUE(core_->preempt(ids_.at(name.substr(0, name.find('.'))), choice_of(name)));
    } else if (verb == "copies") {
      EXPECT_EQ(core_->n_last_copies(), std::stoi(name));
    } else if (verb == "cached") {
      int n = 0;
      words >> n;
      EXPECT_EQ(cached_[name], n);
    } else {
      FAIL() << "no such verb: " << verb;
    }
  }

  static int choice_of(const std::string& name) {
    const auto dot = name.find('.');
    return dot == std::string::npos ? 0 : std::stoi(name.substr(dot + 1));
  }

  void start(const Fields& f) {
    auto model = std::make_unique<testing::FakeModel>(number(f, "context", 64), number(f, "window", 0));
    model_ = model.get();
    EngineOptions options;
    options.block_len = number(f, "block", 8);
    options.kv_dtype = DType::kF32;
    options.kv_bytes =
        number(f, "blocks", 8) * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
    options.step_tokens = number(f, "tokens", 16);
    options.max_sequences = number(f, "sequences", 4);
    options.max_waiting = number(f, "waiting", 100);
    options.prefix_cache = number(f, "prefix_cache", 1) != 0;
    if (const auto it = f.find("policy"); it != f.end()) options.policy = policy_by_name(it->second).value();
    auto core = Engine::create(std::move(model), nullptr, stream_, options, clock_);
    ASSERT_TRUE(core.ok()) << core.error().message;
    core_ = std::move(core).value();
  }

  Request request(const std::string& name, const Fields& f) {
    Request r;
    r.id = RequestId{next_id_++};
    ids_[name] = r.id;
    names_[r.id] = name;
    auto& prompt = prompts_[name];
    prompt.clear();
    if (const auto it = f.find("like"); it != f.end()) {
      const auto colon = it->second.find(':');
      const auto& other = prompts_.at(it->second.substr(0, colon));
      prompt.assign(other.begin(), other.begin() + std::stoi(it->second.substr(colon + 1)));
    }
    const int len = number(f, "prompt", 1);
    for (int i = static_cast<int>(prompt.size()); i < len; ++i) {
      const uint64_t h = testing::mix(std::hash<std::string>()(name), static_cast<uint64_t>(i));
      prompt.push_back(TokenId{1 + static_cast<int32_t>(h % (testing::kFakeVocabSize - 1))});
    }
    r.prompt = prompt;
    r.max_tokens = number(f, "max", -1);
    r.n = number(f, "n", 1);
    r.priority = number(f, "priority", 0);
    r.prompt_logprobs = number(f, "score", 0) - 1;
    if (const auto it = f.find("salt"); it != f.end()) r.cache_salt = it->second;
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    return r;
  }

  std::string name_of(RequestId id, int32_t choice) const {
    return names_.at(id) + (choice == 0 ? "" : "." + std::to_string(choice));
  }

  bool turn() {
    std::vector<Output> out;
    clock_.advance(1);
    const bool busy = core_->step(out);
    ended_.clear();
    for (const Output& o : out) {
      cached_[name_of(o.request, o.choice)] = o.usage.cached_tokens;
      if (o.finished) ended_.push_back(name_of(o.request, o.choice) + " " + finish_reason_name(o.reason));
    }
    return busy;
  }

  void step(std::istringstream& words) {
    std::vector<std::string> expected;
    std::string word, ended;
    while (words >> word && word != "->") expected.push_back(word);
    std::getline(words >> std::ws, ended);
    const bool busy = turn();
    if (expected == std::vector<std::string>{"idle"}) {
      EXPECT_FALSE(busy);
      return;
    }
    std::vector<std::string> shares;
    for (const StepShare& p : core_->last_step()) {
      shares.push_back(name_of(p.request, p.choice) + ":" + std::to_string(p.n_tokens));
    }
    EXPECT_EQ(shares, expected);
    std::string all;
    for (const std::string& e : ended_) all += (all.empty() ? "" : ", ") + e;
    while (!ended.empty() && ended.back() == ' ') ended.pop_back();
    EXPECT_EQ(all, ended);
  }

  void check(const Fields& f) {
    const EngineStats s = core_->stats();
    const std::map<std::string, int> actual = {{"free", s.blocks_free},     {"cached", s.blocks_cached},
                                               {"in_use", s.blocks_in_use}, {"shared", s.blocks_shared},
                                               {"running", s.n_running},    {"waiting", s.n_waiting}};
    for (const auto& [key, value] : f) EXPECT_EQ(actual.at(key), std::stoi(value)) << key;
  }

  ThreadTeam team_{1};
  Stream stream_{team_};
  ManualClock clock_;
  testing::FakeModel* model_ = nullptr;
  std::unique_ptr<Engine> core_;
  uint64_t next_id_ = 1;
  std::map<std::string, RequestId> ids_;
  std::map<RequestId, std::string> names_;
  std::map<std::string, std::vector<TokenId>> prompts_;
  std::map<std::string, int> cached_;
  std::vector<std::string> ended_;
};

std::vector<std::string> scenario_names() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/tests/scenario")) {
    if (entry.path().extension() == ".txt") out.push_back(entry.path().stem().string());
  }
  std::ranges::sort(out);
  return out;
}

class ScenarioFile : public ::testing::TestWithParam<std::string> {};
TEST_P(ScenarioFile, GoesAsWritten) { Scenario().run(source_dir() + "/tests/scenario/" + GetParam() + ".txt"); }
INSTANTIATE_TEST_SUITE_P(Scenario, ScenarioFile, ::testing::ValuesIn(scenario_names()),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace ibid
