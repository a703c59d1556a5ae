// A model in other types: fewer bits, or fewer heads of keys and values.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/quoted.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "format/requantise.h"
#include "host/loading.h"
#include "model/config.h"

namespace ibid::cli {
namespace {

Status check_target(const std::string& in, const std::string& out, bool force) {
  std::error_code ignored;
  if (std::filesystem::equivalent(in, out, ignored)) return invalid(in_quotes(out) + " is the model that is read");
  if (std::filesystem::is_directory(out, ignored)) return invalid(in_quotes(out) + " is a folder; name a file");
  if (!force && std::filesystem::exists(out, ignored)) {
    return invalid(in_quotes(out) + " is there already; --force writes over it");
  }
  return {};
}

}  // namespace

int quantize(const QuantizeOptions& options) {
  if (!options.imatrix.empty()) {
    return fail(unsupported("--imatrix is not supported: weights count by their own size here; without it the file is "
                            "made all the same"),
                kUsage);
  }
  auto path = host::resolve(options.in, false, terminal_progress());
  if (!path) return fail(path.error());
  if (const Status fine = check_target(*path, options.out, options.force); !fine.ok()) return fail(fine.error());
  auto file = ModelFile::open(*path);
  if (!file) return fail(file.error());
  auto config = read_config(*file);
  if (!config) return fail(config.error());
  const LayerConfig* attention = config->first_with(Mixer::kAttention);
  const LayerConfig& layer = attention != nullptr ? *attention : config->layers.front();
  const bool alike = std::ranges::all_of(config->layers, [&](const LayerConfig& l) {
    const bool same = l.n_kv_heads == layer.n_kv_heads && l.key_len == layer.key_len && l.value_len == layer.key_len;
    return same || l.mixer == Mixer::kState;
  });
  if (options.kv_heads > 0 && !alike) {
    return fail(
        unsupported("the key/value heads of this model's layers differ; heads are averaged where all are alike"),
        kUsage);
  }
  RequantiseOptions requantise_options = {.mix = *quant_mix_from_name(options.type),
                                          .architecture = config->architecture,
                                          .n_layers = config->n_layers,
                                          .n_heads = layer.n_heads,
                                          .n_kv_heads = layer.n_kv_heads,
                                          .head_len = layer.key_len,
                                          .kv_groups = options.kv_heads};
  ThreadTeam team(options.threads > 0 ? options.threads : usable_cores());
  Progress bar("quantising", true);
  auto made = requantise(*file, options.out, requantise_options, team,
                         [&](uint64_t done, uint64_t all) { bar.update(done, all); });
  if (!made) return fail(made.error());
  std::string types;
  for (const auto& [dtype, n] : made->matrices) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", n, traits(dtype).name);
  }
  fmt::print("{}: {}, {:.2f} bits a weight, matrices: {}\n", options.out, bytes_text(made->bytes),
             8.0 * static_cast<double>(made->bytes) / static_cast<double>(made->n_parameters), types);
  int64_t n_matrices = 0;
  for (const auto& [dtype, n] : made->matrices) n_matrices += n;
  for (const auto& [instead, n] : made->instead) {
    fmt::print(
        "{} of {} matrices are {} where the mixture has {}: their rows of {} are no whole number of its blocks of "
        "{}.\n",
        n, n_matrices, traits(instead.got).name, traits(instead.wished).name, instead.row_len,
        traits(instead.wished).block_len);
  }
  if (made->bytes > file->tensor_bytes()) {
    fmt::print(stderr, "warning: {} is larger than what it was made of: {} of weights, and {} were read{}.\n",
               options.out, bytes_text(made->bytes), bytes_text(file->tensor_bytes()),
               made->instead.empty() ? "; a type of fewer bits makes it smaller" : ", for the reason above");
  }
  if (made->was_quantised) fmt::print("It was made of quantised matrices; what these had lost stays lost.\n");
  return kOk;
}

}  // namespace ibid::cli
