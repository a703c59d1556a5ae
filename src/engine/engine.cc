#include "engine/engine.h"

#include "engine/engine_core.h"
#include "engine/model_pass.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

Result<std::unique_ptr<Engine>> Engine::create(Model& model, std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
                                               const EngineOptions& options, const Clock& clock) {
  if (options.block_len != 8 && options.block_len != 16 && options.block_len != 32) {
    return invalid("A block of " + std::to_string(options.block_len) +
                       " tokens was asked for; attention reads blocks of 8, 16 or 32.",
                   "block_len");
  }
  const ModelOptions& limits = model.options();
  const int32_t n_rows = std::max(options.max_rows, options.max_sequences);
  if (options.max_tokens > limits.max_tokens || options.max_sequences > limits.max_sequences ||
      n_rows > limits.max_rows) {
    return invalid("The model was loaded for steps of " + std::to_string(limits.max_tokens) + " tokens, " +
                   std::to_string(limits.max_sequences) + " sequences and " + std::to_string(limits.max_rows) +
                   " rows; the engine asks for more.");
  }
  std::vector<TokenId> end_of_generation = options.end_of_generation;
  if (end_of_generation.empty() && tokenizer) end_of_generation = tokenizer->vocabulary().end_of_generation;
  auto pass = std::make_unique<ModelPass>(model, stream, end_of_generation, options.model_digest);
  ASSIGN_OR_RETURN(std::unique_ptr<EngineCore> core,
                   EngineCore::create(std::move(pass), std::move(tokenizer), stream, options, clock));
  return std::unique_ptr<Engine>(std::move(core));
}

}  // namespace ibid
