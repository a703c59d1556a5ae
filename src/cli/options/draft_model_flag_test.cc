// --spec draft:MODEL, skip:LAYERS, window:SINK,WINDOW, heads:FILE, eagle:FILE and mtp, as they are read.
#include <gtest/gtest.h>

#include <string>

#include "model/testing/tiny_model.h"
#include "spec_flags.h"
#include "temp_folder.h"

namespace ibid::cli {
namespace {

TEST(DraftModelFlag, NamesAModelBesideTheLookUp) {
  const SpecArgs draft = spec("--spec-k 5 --spec draft:small.gguf").value();
  EXPECT_EQ(draft.draft_model, "small.gguf");
  EXPECT_EQ(draft.max_drafts(), 5);
  EXPECT_EQ(draft.heads, "");
  EXPECT_EQ(spec("--spec ngram").value().draft_model, "");
  EXPECT_EQ(spec("--spec ngram").value().heads, "");
  EXPECT_EQ(spec("--spec auto").value().heads, "");
  EXPECT_TRUE(spec("").value().finds_own);
  EXPECT_TRUE(spec("--spec auto").value().finds_own);
  EXPECT_TRUE(spec("--spec auto+window").value().finds_own);
  for (const char* other : {"ngram", "ngram+window", "heads:mine.gguf", "eagle:mine", "mtp", "lookahead"})
    EXPECT_FALSE(spec(std::string("--spec ") + other).value().finds_own) << other;
  EXPECT_EQ(spec("--spec off").value().max_drafts(), 0);
  EXPECT_FALSE(spec("--spec heads"));
  EXPECT_EQ(spec("--spec heads:mine.gguf").value().heads, "mine.gguf");
  EXPECT_FALSE(spec("--spec heads:"));
  EXPECT_EQ(spec("--spec eagle:mine").value().eagle, "mine");
  EXPECT_EQ(spec("--spec heads:mine.gguf").value().eagle, "");
  EXPECT_EQ(spec("--spec eagle").value().eagle, kOwnEagle);
  EXPECT_EQ(spec("").value().eagle, "");
  EXPECT_EQ(spec("--spec ngram").value().eagle, "");
  EXPECT_FALSE(spec("--spec eagle:"));
  EXPECT_TRUE(spec("--spec mtp").value().mtp);
  EXPECT_FALSE(spec("--spec eagle:mine").value().mtp);
  EXPECT_FALSE(spec("--spec mtp:"));
  EXPECT_EQ(spec("--spec lookahead").value().look_ahead, 6);
  EXPECT_EQ(spec("--spec lookahead:4").value().look_ahead, 4);
  EXPECT_EQ(spec("--spec ngram").value().look_ahead, 0);
  EXPECT_FALSE(spec("--spec lookahead:"));
  EXPECT_FALSE(spec("--spec lookahead:0"));
  EXPECT_FALSE(spec("--spec lookahead:17"));
  EXPECT_EQ(spec("--spec off").value().max_drafts(), 0);
  EXPECT_FALSE(spec("--spec draft:"));
  EXPECT_FALSE(spec("--spec drafts"));
}

TEST(DraftWindowFlag, NamesTokensOfASequencesBeginAndEnd) {
  EXPECT_FALSE(spec("--spec draft:m").value().draft_window.has_value());
  const SpecArgs said = spec("--spec draft:m --spec-draft-window 64,512").value();
  EXPECT_EQ(said.draft_window->n_sink, 64);
  EXPECT_EQ(said.draft_window->n_window, 512);
  EXPECT_EQ(spec("--spec-draft-window 8,16 --spec draft:m").value().draft_window->n_window, 16);
  for (const char* wrong : {"64", "64,0", "64,", ",64", "a,b"})
    EXPECT_FALSE(spec(std::string("--spec draft:m --spec-draft-window ") + wrong)) << wrong;
}

TEST(SkipFlag, NamesLayers) {
  EXPECT_EQ(spec("--spec skip").value().skip, kOwnLayers);
  EXPECT_EQ(spec("--spec skip:4-6,8").value().skip, "4-6,8");
  EXPECT_EQ(spec("--spec skip:4,5,6,8").value().skip, "4-6,8");
  EXPECT_EQ(spec("--spec skip:0").value().draft_model, "");
  EXPECT_EQ(spec("--spec draft:m").value().skip, "");
  for (const char* wrong : {"", "4-", "-4", "4-3", "4,4", "6,5", "4-6,6", "1,,2", "1,", "a", "1 2", "10000", "0x1"})
    EXPECT_FALSE(spec(std::string("--spec skip:") + wrong)) << wrong;
  EXPECT_EQ(read_layers("0-2,4,6-7").value(), (std::vector<int32_t>{0, 1, 2, 4, 6, 7}));
  EXPECT_EQ(layers_text({}), "");
}

TEST(WindowFlag, NamesTokensOfASequencesBeginAndEnd) {
  EXPECT_EQ(spec("--spec window").value().window->n_window, WindowArgs().n_window);
  EXPECT_EQ(spec("--spec window:0,96").value().window->n_sink, 0);
  EXPECT_EQ(spec("--spec window:16,96").value().window->n_window, 96);
  EXPECT_FALSE(spec("--spec skip").value().window.has_value());
  const SpecArgs both = spec("--spec draft:a+window.gguf+window:32,64").value();
  EXPECT_EQ(both.draft_model, "a+window.gguf");
  EXPECT_EQ(both.window->n_sink, 32);
  EXPECT_EQ(spec("--spec eagle+window").value().window->n_window, WindowArgs().n_window);
  EXPECT_FALSE(spec("--spec draft:a+window.gguf").value().window.has_value());
  for (const char* wrong : {"off+window", "window+window", "+window", "nobody+window", "skip:1+window:3"})
    EXPECT_FALSE(spec(std::string("--spec ") + wrong)) << wrong;
  for (const char* wrong : {"", "16", "16,", ",16", "16,0", "-1,16", "16,32,64", "a,b", "16;32"})
    EXPECT_FALSE(spec(std::string("--spec window:") + wrong)) << wrong;
}

// The costs are given, so the result does not depend on a clock.
TEST(FindLayers, GivesTheSameResultAgain) {
  TempFolder folder;
  const std::string path = folder.write(
      "target.gguf", testing::tiny_gguf({.n_layers = 5, .vocab_size = 260, .context_len = 128, .tokenizer = true}));
  const std::string text = folder.write("text", std::string(60, 'a') + " and so on, and so on, and on.");
  const auto said = [&](const FindLayersOptions& options) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = find_layers(options);
    const std::string errors = ::testing::internal::GetCapturedStderr();
    return ::testing::internal::GetCapturedStdout() + (code == kOk ? "" : errors);
  };
  FindLayersOptions options;
  options.model.model = path;
  options.model.threads = 1;
  options.file = text;
  options.n_tokens = 64;
  options.most = 2;
  options.layer_cost = 0.19;
  options.row_cost = 0;
  const std::string first = said(options);
  EXPECT_NE(first.find("--layer-cost 0.1900 --row-cost 0.0000"), std::string::npos) << first;
  EXPECT_NE(first.find("skip:"), std::string::npos) << first;
  EXPECT_EQ(said(options), first);
  options.model.threads = 2;
  EXPECT_EQ(said(options), first);
  options.temperature = 0.8F;
  EXPECT_NE(said(options), first);
  options.n_tokens = 8;
  EXPECT_NE(said(options).find("expected 16 at least"), std::string::npos);
  options.file = folder.path("none");
  EXPECT_NE(said(options).find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace ibid::cli
