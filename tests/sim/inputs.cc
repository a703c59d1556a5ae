#include "sim/inputs.h"

#include <algorithm>
#include <random>
#include <utility>

#include "random_sampling.h"
#include "sim/cell_model.h"
#include "text/output/stop_matcher.h"

namespace ibid::sim {
namespace {

std::vector<TokenId> prompt_of(const Event& e, const World& world, std::vector<TokenId> before) {
  if (static_cast<int64_t>(before.size()) >= world.context_len) before.clear();
  const auto len = std::min(static_cast<size_t>(world.context_len), before.size() + static_cast<size_t>(e.prompt_len));
  uint64_t branch = static_cast<uint64_t>(world.seed), path = static_cast<uint64_t>(e.path);
  for (int64_t i = 0; before.size() < len; ++i) {
    if (i % world.segment == 0) branch = mix(branch, path & 3), path >>= 2;
    const uint64_t token = mix(branch, static_cast<uint64_t>(i)) % (kVocabSize - 1);
    before.push_back(TokenId{1 + static_cast<int32_t>(i == e.twist ? (token + 1) % (kVocabSize - 1) : token)});
  }
  return before;
}

}  // namespace

Request request_of(const Event& e, const World& world, std::vector<TokenId> before) {
  Request r;
  r.id = RequestId{static_cast<uint64_t>(e.id)};
  r.prompt = prompt_of(e, world, std::move(before));
  r.n = static_cast<int32_t>(e.n);
  r.max_tokens = static_cast<int32_t>(e.max_tokens);
  r.priority = static_cast<int32_t>(e.priority);
  r.prompt_logprobs = static_cast<int32_t>(e.score);
  r.tenant = "tenant " + std::to_string(e.tenant);
  r.weight = static_cast<float>(1 << e.tenant);
  if (e.salt > 0) r.cache_salt = "salt " + std::to_string(e.salt);
  if (e.stops > 0) {
    std::vector<std::string> strings;
    if (e.stops & 1) strings.push_back("x");
    if (e.stops & 2) strings.insert(strings.end(), {"bca", "cab", "ca"});
    r.stops =
        StopSet::compile(strings, e.stops & 4 ? std::vector<TokenId>{TokenId{5}} : std::vector<TokenId>()).value();
  }
  if (e.sampling % 2 != 0) {
    std::mt19937_64 random(static_cast<uint64_t>(e.sampling));
    r.sampling = testing::random_sampling(random, kVocabSize);
  } else {
    r.sampling.temperature = e.sampling == 0 ? 0.0f : 0.8f;
    r.sampling.seed = static_cast<uint64_t>(e.sampling);
  }
  r.sampling.logprobs = e.sampling % 3 == 0 ? 0 : -1;
  r.sampling.ignore_eos = e.keep_eos == 0;
  r.sampling.min_tokens = static_cast<int32_t>(std::min(e.min_tokens, std::max<int64_t>(e.max_tokens, 0)));
  return r;
}

void draft(const ProposalInput& input, const World& world, std::span<const TokenId> right, Drafts& drafts) {
  uint64_t dice = mix(static_cast<uint64_t>(world.seed + input.sequence), input.answer.size());
  const auto up_to = [&dice](int32_t n) {
    dice = mix(dice, 1);
    return static_cast<int32_t>(dice % static_cast<uint64_t>(n));
  };
  const auto any = [&] { return TokenId{up_to(kVocabSize)}; };
  const size_t from = input.prompt.size() + input.answer.size();
  const auto n = static_cast<size_t>(1 + up_to(input.max_drafts + 2));  // more are cut off
  const bool is_tree = up_to(2) == 0;
  int32_t last = -1;
  for (size_t i = from; i < from + n; ++i) {
    // Half of them are trees: wrong siblings before and after the one that is right.
    const int32_t parent = last;
    if (is_tree && up_to(3) == 0) drafts.add(any(), parent);
    last = drafts.size();
    const bool is_right = world.drafts == 0 && i < right.size() && up_to(6) != 0;
    drafts.add(is_right ? right[i] : any(), parent);
    if (is_tree && up_to(3) == 0) drafts.add(any(), up_to(2) == 0 ? parent : last);
  }
}

}  // namespace ibid::sim
