// The digests are pinned: a change here changes what traces contain, on every machine.
#include "sample/sampling_digest.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace ibid {
namespace {

TEST(SamplingDigest, SpellsTheDefaultsAsItAlwaysDid) {
  EXPECT_EQ(
      spell_stages(),
      "stages=repetition_penalty,presence_frequency_penalty,dry,logit_bias,banned,banned_sequences,"
      "no_repeat_ngram,allowed,min_tokens,temperature,top_n_sigma,top_k,typical_p,top_p,min_p,xtc,mirostat,draw\n");
  EXPECT_EQ(
      spell_sampling({}).substr(spell_stages().size()),
      "arithmetic=portable-3\n"
      "temperature=1\ntop_k=0\ntop_p=1\nmin_p=0\ntypical_p=1\ntop_n_sigma=0\nxtc_probability=0\nxtc_threshold=0.1\n"
      "dynatemp_range=0\ndynatemp_exponent=1\nmirostat=0\nmirostat_tau=5\nmirostat_eta=0.1\n"
      "repetition_penalty=1\nrepeat_last_n=-1\npresence_penalty=0\nfrequency_penalty=0\nno_repeat_ngram_size=0\n"
      "dry_multiplier=0\ndry_base=1.75\ndry_allowed_length=2\ndry_penalty_last_n=-1\nmin_tokens=0\n"
      "ignore_eos=false\ndry_sequence_breakers=[]\nlogit_bias=[]\nbanned_token_ids=[]\nbanned_sequences=[]\n"
      "allowed_token_ids=[]\n");
}

TEST(SamplingDigest, IsTheSameInEveryProcessAndOnEveryHost) {
  SamplingParams params;
  EXPECT_EQ(sampling_digest(spell_stages()), "c7321b7e2b122e11d151bcd9ffbd9d25");
  EXPECT_EQ(sampling_digest(spell_sampling(params)), "a95a8e772ec01600e610c37b4ce376ba");
  params = {.repetition_penalty = 1.1f,
            .logit_bias = {{TokenId{5}, -1.5f}, {TokenId{49151}, 100.0f}},
            .banned = {TokenId{1}, TokenId{2}},
            .banned_sequences = {{TokenId{3}, TokenId{4}}, {TokenId{6}}},
            .allowed = {TokenId{7}},
            .temperature = 0.7f,
            .top_p = 0.95f,
            .min_p = 1e-7f,
            .ignore_eos = true};
  EXPECT_EQ(sampling_digest(spell_sampling(params)), "5fc6e1c3b0cdf62b7961d910d921ca13");
}

TEST(SamplingDigest, ChangesWithEveryParameterThatMayChangeAToken) {
  const std::vector<std::function<void(SamplingParams&)>> changes = {
      [](SamplingParams& p) { p.repetition_penalty = 2; },
      [](SamplingParams& p) { p.presence_penalty = 1; },
      [](SamplingParams& p) { p.frequency_penalty = 1; },
      [](SamplingParams& p) { p.penalty_last_n = 5; },
      [](SamplingParams& p) { p.no_repeat_ngram = 3; },
      [](SamplingParams& p) { p.dry_multiplier = 1; },
      [](SamplingParams& p) { p.dry_base = 2; },
      [](SamplingParams& p) { p.dry_allowed_len = 3; },
      [](SamplingParams& p) { p.dry_last_n = 9; },
      [](SamplingParams& p) {
        p.logit_bias = {{TokenId{1}, 1.0f}};
      },
      [](SamplingParams& p) { p.banned = {TokenId{1}}; },
      [](SamplingParams& p) { p.banned_sequences = {{TokenId{1}}}; },
      [](SamplingParams& p) { p.allowed = {TokenId{1}}; },
      [](SamplingParams& p) { p.temperature = 0.5f; },
      [](SamplingParams& p) { p.dynatemp_range = 1; },
      [](SamplingParams& p) { p.dynatemp_exponent = 2; },
      [](SamplingParams& p) { p.top_k = 4; },
      [](SamplingParams& p) { p.top_p = 0.5f; },
      [](SamplingParams& p) { p.min_p = 0.5f; },
      [](SamplingParams& p) { p.typical_p = 0.5f; },
      [](SamplingParams& p) { p.top_n_sigma = 1; },
      [](SamplingParams& p) { p.xtc_probability = 0.5f; },
      [](SamplingParams& p) { p.xtc_threshold = 0.2f; },
      [](SamplingParams& p) { p.mirostat = 1; },
      [](SamplingParams& p) { p.mirostat_tau = 4; },
      [](SamplingParams& p) { p.mirostat_eta = 0.2f; },
      [](SamplingParams& p) { p.min_tokens = 3; },
      [](SamplingParams& p) { p.ignore_eos = true; },
  };
  int n_parameters = 0;
  for_each_parameter({}, [&](std::string_view, const auto&) { ++n_parameters; });
  EXPECT_EQ(static_cast<int>(changes.size()) + 1, n_parameters);  // the breakers need a tokenizer
  std::set<std::string> seen = {sampling_digest(spell_sampling({}))};
  for (const auto& change : changes) {
    SamplingParams params;
    change(params);
    EXPECT_TRUE(seen.insert(sampling_digest(spell_sampling(params))).second) << spell_sampling(params);
  }
  // What is reported about a token, and the seed (each record has its own), are not part of how it was drawn.
  EXPECT_TRUE(seen.contains(sampling_digest(spell_sampling({.seed = 5, .logprobs = 3, .processed_logprobs = true}))));
}

}  // namespace
}  // namespace ibid
