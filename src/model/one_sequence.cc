#include "model/one_sequence.h"

#include <algorithm>

namespace ibid {

OneSequence::OneSequence(Model& model, Stream& stream, const OneSequenceOptions& options)
    : model_(model),
      stream_(stream),
      options_(options),
      arrays_(options.block_len, {.n_tokens = static_cast<size_t>(model.options().step_tokens), .n_sequences = 1}) {
  if (options_.capacity == 0) options_.capacity = model.context_len();
  CHECK(options_.capacity >= 1 && options_.capacity <= model.context_len());
  const auto n_blocks = static_cast<int32_t>((options_.capacity + options_.block_len - 1) / options_.block_len);
  const std::vector<KvLayout> layers = kv_layouts(model.kv_geometries(), options_.kv_dtype, options_.block_len);
  memory_.resize(static_cast<size_t>(kv_pool_bytes(layers, n_blocks)) + 64);
  auto start = reinterpret_cast<uintptr_t>(memory_.data());
  kv_ = kv_pool(layers, n_blocks, memory_.data() + (64 - start % 64) % 64);
  state_.resize(static_cast<size_t>(model.state_layout().slot_bytes()));
  for (int32_t i = 0; i < n_blocks; ++i) table_.push_back(BlockId{options_.backwards ? n_blocks - 1 - i : i});
}

void OneSequence::append(std::span<const TokenId> tokens, const OnRows& on_rows, int64_t max_step) {
  CHECK(n_tokens_ + static_cast<int64_t>(tokens.size()) <= options_.capacity,
        "more tokens than the sequence was made for");
  const ModelOptions& limits = model_.options();
  int64_t step = on_rows ? std::min(limits.step_tokens, limits.max_rows) : limits.step_tokens;
  if (max_step != 0) step = std::min(step, max_step);
  const int64_t V = model_.config().vocab_size;
  while (!tokens.empty()) {
    const auto n = static_cast<int32_t>(std::min<int64_t>(step, static_cast<int64_t>(tokens.size())));
    arrays_.clear();
    arrays_.add_run(tokens.first(static_cast<size_t>(n)), static_cast<int32_t>(n_tokens_), table_);
    for (int32_t i = 0; on_rows && i < n; ++i) arrays_.want(i);
    arrays_.add_blocks(table_);
    for (int32_t i = 0; !state_.empty() && i < n; ++i) arrays_.add_state_out(i + 1 < n ? -1 : 0);
    if (!state_.empty()) arrays_.add_state_in(n_tokens_ == 0 ? -1 : 0);
    if (options_.adapter >= 0) arrays_.set_adapter(options_.adapter);
    arrays_.end_sequence();
    const ForwardBatch batch = arrays_.batch();
    logits_.resize(static_cast<size_t>(std::max<int64_t>(1, batch.n_rows) * V));
    const TensorView logits(logits_.data(), DType::kF32, {std::max<int64_t>(1, batch.n_rows), V});
    model_.forward(stream_, batch, kv_, logits.first_rows(batch.n_rows), {}, states());
    if (on_rows) on_rows(n_tokens_, logits);
    n_tokens_ += n;
    tokens = tokens.subspan(static_cast<size_t>(n));
  }
}

void OneSequence::truncate(int64_t n) {
  CHECK(n >= 0 && n <= n_tokens_);
  CHECK(state_.empty() || n == 0 || n == n_tokens_, "a recurrent model goes on after its last token alone");
  n_tokens_ = n;
}

}  // namespace ibid
