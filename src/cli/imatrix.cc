// An importance matrix: how large the inputs of a model's products are on a text.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/quoted.h"
#include "cli/options/file_options.h"
#include "cli/options/text_file.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"
#include "model/activation_sums.h"

namespace ibid::cli {

int imatrix(const ImatrixOptions& options) {
  std::error_code ignored;
  if (!options.force && std::filesystem::exists(options.out, ignored)) {
    return fail(invalid(in_quotes(options.out) + " is there already; --force writes over it"));
  }
  const auto text = text_of_file(options.file);
  if (!text) return fail(text.error());
  std::vector<Importance> earlier;
  for (const std::string& path : options.in_files) {
    auto read = Importance::open(path);
    if (!read) return fail(read.error());
    earlier.push_back(*std::move(read));
  }
  ModelArgs args = options.model;
  args.context_len = static_cast<int32_t>(options.chunk_len);
  auto loaded = host::load(args, {.step_tokens = 512, .max_sequences = 1}, {}, terminal_progress());
  if (!loaded) return fail(loaded.error());
  if (std::filesystem::is_directory(loaded->path, ignored)) {
    return fail(unsupported(in_quotes(loaded->path) +
                            " is a folder; an importance matrix has the names and orders of a GGUF file, which `ibid "
                            "convert` makes of it"));
  }
  std::vector<TokenId> tokens = loaded->tokenizer->encode(*text, {.add_special = true});
  if (options.n_chunks > 0) {
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(options.n_chunks * options.chunk_len)));
  }
  const Vocabulary& v = loaded->tokenizer->vocabulary();
  auto made = [&] {
    Progress bar("summing");
    return sum_activations(*loaded->model, *loaded->stream, tokens, options.chunk_len,
                           v.add_bos ? v.bos : TokenId::kNone, options.with_output,
                           [&](uint64_t done, uint64_t all) { bar.update(done, all); });
  }();
  if (!made) return fail(made.error());
  made->datasets.push_back(options.file);
  for (const Importance& other : earlier) {
    if (const Status added = made->add(other); !added.ok()) return fail(added.error());
  }
  if (const Status written = made->write(options.out); !written.ok()) return fail(written.error());
  fmt::print("{}: the inputs of {} matrices, {} chunks of {} tokens\n", options.out, made->of.size(), made->n_chunks,
             made->chunk_len);
  return kOk;
}

}  // namespace ibid::cli
