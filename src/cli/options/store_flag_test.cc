// ibid spec build-store, and --spec store:FILE and --spec-own-answers from the flag to what is loaded and counted.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/clock.h"
#include "base/mapped_file.h"
#include "cli/terminal/exit_code.h"
#include "host/host.h"
#include "model/testing/tiny_model.h"
#include "spec/experimental/own_answers.h"
#include "spec_flags.h"
#include "temp_folder.h"

namespace ibid::cli {
namespace {

class StoreFlag : public ::testing::Test {
 protected:
  std::string tiny(const char* name, int64_t vocab_size) {
    return folder_.write(
        name, testing::tiny_gguf({.seed = 1, .vocab_size = vocab_size, .context_len = 128, .tokenizer = true}));
  }
  // The command's standard error; empty: success.
  std::string build(const std::vector<std::string>& files, int64_t max_tokens = 1 << 20) {
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const int code = build_store({.model = model_, .files = files, .out = store_, .max_tokens = max_tokens});
    ::testing::internal::GetCapturedStdout();
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code == kOk, said.empty() || said.starts_with("warning")) << said;
    return said;
  }
  // The store's texts, each after the other's end.
  std::string texts() {
    const host::LoadedText text = host::load_text(model_).value();
    const auto store = TextStore::open(store_, text.tokenizer->vocabulary()).value();
    std::string out;
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < store->n_tokens(); ++i) {
      if (store->token(i) != TextStore::kTextEnd) {
        ids.push_back(store->token(i));
        continue;
      }
      out += text.tokenizer->decode(ids) + "|";
      ids.clear();
    }
    return out;
  }
  TempFolder folder_;
  std::string model_ = tiny("model.gguf", 260), store_ = folder_.path("texts.store");
};

TEST_F(StoreFlag, TextsAreStoredWhole) {
  // Longer than a piece, without a line's end to cut it at, and characters of several bytes at each place of a cut.
  std::string longest = "a";
  while (longest.size() < 200'000) longest += "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82";
  std::string lines;
  for (int i = 0; i < 20'000; ++i) lines += "line " + std::to_string(i) + "\n";
  EXPECT_EQ(build({folder_.write("a.txt", longest), folder_.write("b.txt", lines), folder_.write("c.txt", "")}), "");
  EXPECT_EQ(texts(), longest + "|" + lines + "|");
}

TEST_F(StoreFlag, LinesOfJsonAreTexts) {
  const auto line = [&](const std::string& text) { return build({folder_.write("x.jsonl", text)}); };
  EXPECT_EQ(line("{\"text\": \"one\"}\n\n\"two\"\n{\"prompt\": \"three\", \"answer\": \"four\"}\n"), "");
  EXPECT_EQ(texts(), "one|two|three|four|");
  EXPECT_EQ(line(R"({"messages": [{"role": "user", "content": "hm"}, {"role": "assistant", "content": "yes"}]})"), "");
  EXPECT_EQ(texts(), "hm|yes|");
  // Ids as they were sampled: the prompt's go on in the answer's.
  EXPECT_EQ(line(R"({"prompt": [72, 73], "answer": [74]})"), "");
  const auto store = TextStore::open(store_, host::load_text(model_).value().tokenizer->vocabulary()).value();
  EXPECT_EQ(store->n_tokens(), 4);
  EXPECT_EQ(store->token(2), TokenId{74});
}

TEST_F(StoreFlag, InvalidTextIsRefusedByItsPlace) {
  const auto line = [&](const std::string& text) { return build({folder_.write("x.jsonl", text)}); };
  EXPECT_NE(line("{\"text\": \"one\"}\n{\"text\": 7}\n").find("line 2"), std::string::npos);
  EXPECT_NE(line("{\"prompt\": [260]}").find("0 to 259"), std::string::npos);
  EXPECT_NE(line("{\"prompt\": [-1]}").find("0 to 259"), std::string::npos);
  EXPECT_NE(line("{\"title\": \"x\"}").find("none of text"), std::string::npos);
  EXPECT_NE(line("[1, 2]").find("none of text"), std::string::npos);
  EXPECT_NE(line("{\"text\": \"one\""), "");
  EXPECT_NE(build({folder_.path()}).find("is a folder"), std::string::npos);
  EXPECT_NE(build({folder_.path("nothing")}).find("No such file"), std::string::npos);
  EXPECT_NE(build({folder_.write("empty.txt", "")}).find("no text"), std::string::npos);
}

TEST_F(StoreFlag, NoMoreTokensAreTakenThanItMay) {
  EXPECT_NE(build({folder_.write("a.txt", std::string(100'000, 'x'))}, 50).find("--max-tokens 50"), std::string::npos);
  EXPECT_EQ(TextStore::open(store_, host::load_text(model_).value().tokenizer->vocabulary()).value()->n_tokens(), 50);
}

TEST_F(StoreFlag, MemoryOfStoresIsCounted) {
  ASSERT_EQ(build({folder_.write("a.txt", "a text that is to be found again")}), "");
  const ModelArgs model{.model = model_, .threads = 1};
  host::StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  const auto part = [&](const std::string& name) {
    const MemoryPlan memory = size(model, limits).value().memory;
    for (const MemoryPart& p : memory.parts) {
      if (p.name == name) return p.bytes;
    }
    return int64_t{0};
  };
  EXPECT_EQ(part("a store of texts to draft from"), 0);
  EXPECT_EQ(part("answers to draft from"), 0);
  limits.spec.store = store_;
  limits.spec.own_answers_bytes = int64_t{3} << 20;
  EXPECT_EQ(part("a store of texts to draft from"), static_cast<int64_t>(std::filesystem::file_size(store_)));
  EXPECT_EQ(part("answers to draft from"), OwnAnswers(int64_t{3} << 20).bytes());
  limits.spec.by_lookup = false;  // then there are no drafts
  EXPECT_EQ(part("a store of texts to draft from"), 0);
  EXPECT_EQ(part("answers to draft from"), 0);
}

TEST_F(StoreFlag, AStoreOfAnotherVocabularyIsRefusedByItsName) {
  ASSERT_EQ(build({folder_.write("a.txt", "text")}), "");
  const auto other = host::size({.model = tiny("other.gguf", 300), .threads = 1},
                                {.spec = {.finds_own = false, .store = store_, .k = 4}});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("\"model.gguf\", 260 tokens"), std::string::npos) << other.error().message;
  EXPECT_FALSE(host::size({.model = model_, .threads = 1},
                          {.spec = {.finds_own = false, .store = folder_.path("nothing"), .k = 4}})
                   .ok());
}

// With a store, an engine gives the same answers, in fewer steps.
TEST_F(StoreFlag, AnEngineDraftsFromThem) {
  const auto answer = [&](const host::StepLimits& limits, int64_t& n_drafts) {
    const host::Loaded loaded = host::load({.model = model_, .threads = 1}, limits).value();
    const ManualClock clock;  // stands still: which drafts pay must not depend on the machine's load
    auto engine = host::start_engine(loaded, loaded.engine_options(limits), {.limits = limits, .clock = clock}).value();
    std::vector<TokenId> said;
    for (uint64_t id = 1; id <= 2; ++id) {
      Request r;
      r.id = RequestId{id};
      r.prompt = loaded.tokenizer->encode("What is it?");
      r.max_tokens = 60;
      r.sampling.temperature = 0;
      r.sampling.ignore_eos = true;
      r.sampling.no_repeat_ngram = 2;  // so that the sequence itself gives no drafts
      EXPECT_TRUE(engine->submit(r).ok());
      std::vector<Output> out;
      while (engine->step(out)) {
      }
      said.clear();
      for (const Output& o : out) {
        for (const TokenRecord& t : o.tokens) said.push_back(t.chosen.token);
      }
    }
    n_drafts = engine->n_accepted_drafts();
    return said;
  };
  int64_t n_plain = 0, n_stored = 0, n_own = 0;
  host::StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  const std::vector<TokenId> plain = answer(limits, n_plain);
  std::string ids;
  for (const TokenId token : plain) ids += (ids.empty() ? "" : ", ") + std::to_string(raw(token));
  ASSERT_EQ(build({folder_.write("said.jsonl", "{\"answer\": [" + ids + "]}")}), "");
  limits.spec.store = store_;
  EXPECT_EQ(answer(limits, n_stored), plain);
  limits.spec.store.clear();
  limits.spec.own_answers_bytes = OwnAnswers::kLeastBytes;
  EXPECT_EQ(answer(limits, n_own), plain);
  EXPECT_GT(n_stored, n_plain + 20);
  EXPECT_GT(n_own, n_plain + 20);
}

// Nothing of an answer needs a draft.
TEST_F(StoreFlag, AStoreThatIsCutShortWhileItIsReadProposesNothingMore) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += std::to_string(i * i) + " ";
  ASSERT_EQ(build({folder_.write("a.txt", text)}), "");
  end_where_files_are_cut(7);
  const host::LoadedText loaded = host::load_text(model_).value();
  const auto store = TextStore::open(store_, loaded.tokenizer->vocabulary()).value();
  const std::vector<TokenId> end = loaded.tokenizer->encode("144 169 ");
  StoreDraft draft;
  store->draft(end, 4, draft);
  ASSERT_EQ(loaded.tokenizer->decode(draft.tokens), "196 ");
  ::testing::internal::CaptureStderr();
  std::filesystem::resize_file(store_, 10);
  for (int i = 0; i < 2; ++i) {
    store->draft(end, 4, draft);
    EXPECT_TRUE(draft.tokens.empty() && draft.match_len == 0);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("texts.store was cut short while it was in use"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1) << "once: " << said;
  EXPECT_FALSE(TextStore::open(store_, loaded.tokenizer->vocabulary()).ok());
}

TEST_F(StoreFlag, IsReadAsItIsSpelled) {
  EXPECT_EQ(spec("--spec store:a.store").value().store, "a.store");
  EXPECT_GT(spec("--spec store:a.store").value().max_drafts(), 0);
  EXPECT_FALSE(spec("--spec store:"));
  EXPECT_EQ(spec("").value().own_answers_bytes, 0);
  EXPECT_EQ(spec("--spec-own-answers 64M").value().own_answers_bytes, 64 << 20);
  EXPECT_EQ(spec("--spec-own-answers 0").value().own_answers_bytes, 0);
  EXPECT_FALSE(spec("--spec-own-answers 1M"));
  const SpecArgs both = spec("--spec-own-answers 2M --spec store:a").value();
  EXPECT_EQ(both.own_answers_bytes, 2 << 20);
  EXPECT_EQ(both.store, "a");
  const SpecArgs turned = spec("--spec store:a --spec-own-answers 2M").value();
  EXPECT_EQ(turned.store, "a");
}

}  // namespace
}  // namespace ibid::cli
