// How well a model predicts a text, in one context.
#include "model/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "cli/loading.h"
#include "cli/options.h"
#include "cli/progress.h"

namespace ibid::cli {
int perplexity(const PerplexityOptions& options) {
  auto text = text_of_file(options.file);
  if (!text) return fail(text.error());
  const ModelArgs& args = options.model;
  auto loaded = load(args, {.step_tokens = 512, .max_sequences = 64});
  if (!loaded) return fail(loaded.error());
  std::vector<TokenId> tokens = loaded->tokenizer->encode(*text, {.add_special = true});
  size_t most = static_cast<size_t>(loaded->context_len);
  if (options.n_tokens > 0) most = std::min(most, static_cast<size_t>(options.n_tokens));
  if (tokens.size() > most) tokens.resize(most);

  std::ofstream dump;
  if (!options.dump_file.empty()) {
    dump.open(options.dump_file, std::ios::binary);
    if (!dump) return fail(unavailable("cannot write " + options.dump_file));
  }
  Progress progress("scoring");
  double started = steady_clock().now();
  auto score = score_text(
      *loaded->model, *loaded->stream, args.kv_dtype, tokens, [&](int64_t position, std::span<const float> row) {
        if (dump.is_open())
          dump.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
        progress.update(static_cast<uint64_t>(position + 1), tokens.size());
      });
  if (!score) return fail(score.error());
  if (dump.is_open() && !dump.flush())
    return fail(unavailable("writing " + options.dump_file + " failed; is the disk full?"));
  double seconds = steady_clock().now() - started;
  std::printf("%s\n", fmt::format("tokens {}  perplexity {:.4f}  nll {:.6f} +- {:.6f}  {:.1f} tokens/s",
                                  score->n_scored, score->perplexity(), score->mean_nll, score->standard_error,
                                  static_cast<double>(tokens.size()) / seconds)
                          .c_str());
  return kOk;
}

}  // namespace ibid::cli
