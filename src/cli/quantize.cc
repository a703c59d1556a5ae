// A model as a GGUF file: of a folder, in other types, or with fewer heads of keys and values.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "base/quoted.h"
#include "cli/options/file_options.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "format/requantise.h"
#include "host/loading.h"
#include "model/config.h"
#include "model/convert.h"
#include "model/merged_adapters.h"

namespace ibid::cli {
namespace {

Status check_target(const std::string& in, const std::string& out, bool force, bool dry_run) {
  if (dry_run) return {};
  if (out.empty()) return invalid("no file to write is named; only --dry-run needs none");
  std::error_code ignored;
  if (std::filesystem::equivalent(in, out, ignored)) return invalid(in_quotes(out) + " is the model that is read");
  if (std::filesystem::is_directory(out, ignored)) return invalid(in_quotes(out) + " is a folder; name a file");
  if (!force && std::filesystem::exists(out, ignored)) {
    return invalid(in_quotes(out) + " is there already; --force writes over it");
  }
  return {};
}

// Each tensor, with its size before and after.
void print_tensors(const Requantised& made) {
  for (const Requantised::Tensor& t : made.tensors) {
    std::string dims;
    for (auto dim = t.dims.rbegin(); dim != t.dims.rend(); ++dim) {
      dims += fmt::format("{}{}", dims.empty() ? "" : " x ", *dim);
    }
    fmt::print("{:<36} {:>20} {:>6} -> {:<6} {:>10} -> {:>10}\n", t.name, dims, traits(t.from).name, traits(t.to).name,
               bytes_text(t.bytes_from), bytes_text(t.bytes));
  }
}

void print(const Requantised& made, const std::string& out, bool dry_run) {
  if (dry_run) print_tensors(made);
  std::string types;
  int64_t n_matrices = 0;
  for (const auto& [dtype, n] : made.matrices) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", n, traits(dtype).name);
    n_matrices += n;
  }
  fmt::print("{}: {}, {:.2f} bits a weight, matrices: {}\n", dry_run ? "not written" : out, bytes_text(made.bytes),
             8.0 * static_cast<double>(made.bytes) / static_cast<double>(made.n_parameters), types);
  if (made.n_weighted > 0) {
    fmt::print("{} of {} matrices are weighted by the importance of their inputs.\n", made.n_weighted, n_matrices);
  }
  for (const auto& [instead, n] : made.instead) {
    fmt::print(
        "{} of {} matrices are {} where {} was asked for: their rows of {} are no whole number of its blocks of {}.\n",
        n, n_matrices, traits(instead.got).name, traits(instead.wished).name, instead.row_len,
        traits(instead.wished).block_len);
  }
}

// "models/Qwen3-0.6B/": "Qwen3-0.6B".
std::string name_of(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::canonical(folder, ignored).filename().string();
}

int convert_folder(const std::string& folder, const std::string& out, ibid::ConvertOptions options, int threads) {
  auto file = ModelFile::open(folder);
  if (!file) return fail(file.error());
  options.name = name_of(folder);
  ThreadTeam team(threads > 0 ? threads : usable_cores());
  Progress bar("converting");
  auto made = ibid::convert(*file, out, options, team, [&](uint64_t done, uint64_t all) { bar.update(done, all); });
  if (!made) return fail(made.error());
  print(made->weights, out, options.dry_run);
  if (made->n_kept > 0) fmt::print("{} quantised matrices of the folder keep their values exactly.\n", made->n_kept);
  if (made->n_left_out > 0) {
    fmt::print("{} parameters of the folder are left out: the model runs without them.\n", made->n_left_out);
  }
  if (!made->has_vocabulary) {
    fmt::print(stderr, "warning: {} has no tokenizer.json, so the file has no vocabulary.\n", folder);
  }
  return kOk;
}

TypeRules rules_of(const QuantizeOptions& options) {
  TypeRules rules = {
      .mix = *quant_mix_from_name(options.type), .is_pure = options.is_pure, .leaves_output = options.leaves_output};
  if (!options.output_type.empty()) rules.output = *read_target_type(options.output_type);
  if (!options.embedding_type.empty()) rules.embedding = *read_target_type(options.embedding_type);
  for (const std::string& named : options.tensor_types) rules.named.push_back(*read_named_type(named));
  return rules;
}

Result<std::vector<AdapterToMerge>> adapters_of(const QuantizeOptions& options) {
  std::vector<AdapterToMerge> out;
  for (const std::string& path : options.adapters) out.push_back({.path = path});
  for (const std::string& text : options.scaled_adapters) {
    const size_t colon = text.rfind(':');
    AdapterToMerge& adapter = out.emplace_back(AdapterToMerge{.path = text.substr(0, colon)});
    const std::string number = colon == std::string::npos ? "" : text.substr(colon + 1);
    const auto [end, wrong] = std::from_chars(number.data(), number.data() + number.size(), adapter.scale);
    if (wrong != std::errc() || end != number.data() + number.size() || !std::isfinite(adapter.scale))
      return invalid("--lora-scaled " + text + " has no number after its last colon; expected PATH:SCALE");
  }
  return out;
}

}  // namespace

int convert(const ConvertOptions& options) {
  auto path = host::resolve(options.in, false, terminal_progress());
  if (!path) return fail(path.error());
  if (const Status fine = check_target(*path, options.out, options.force, options.dry_run); !fine.ok()) {
    return fail(fine.error());
  }
  ibid::ConvertOptions how = {.dry_run = options.dry_run,
                              .shards = {.max_bytes = static_cast<uint64_t>(options.split_max_bytes)}};
  if (options.type != "auto") how.types = TypeRules{.mix = *quant_mix_from_name(options.type)};
  return convert_folder(*path, options.out, how, options.threads);
}

int quantize(const QuantizeOptions& options) {
  if (folder_bits(options.type) > 0) return quantise_folder(options);
  const auto adapters = adapters_of(options);
  if (!adapters) return fail(adapters.error(), kUsage);
  if (options.search != "none") {
    return fail(
        invalid("--search " + options.search + " is for the types w4a16, w8a16 and w8a8, which are written as folders"),
        kUsage);
  }
  auto path = host::resolve(options.in, false, terminal_progress());
  if (!path) return fail(path.error());
  if (const Status fine = check_target(*path, options.out, options.force, options.dry_run); !fine.ok()) {
    return fail(fine.error());
  }
  std::optional<Importance> importance;
  if (!options.imatrix.empty()) {
    auto read = Importance::open(options.imatrix);
    if (!read) return fail(read.error());
    importance = *std::move(read);
  }
  const Shards shards = {.max_bytes = static_cast<uint64_t>(options.split_max_bytes), .keep = options.keep_split};
  std::error_code ignored;
  if (!adapters->empty() && std::filesystem::is_directory(*path, ignored)) {
    return fail(unsupported("adapters are merged into GGUF files; write one first: ibid convert " + in_quotes(*path) +
                            " base.gguf"),
                kUsage);
  }
  if (options.kv_heads == 0 && std::filesystem::is_directory(*path, ignored)) {
    const ibid::ConvertOptions how = {.types = rules_of(options),
                                      .requantises = options.requantises,
                                      .dry_run = options.dry_run,
                                      .shards = shards,
                                      .importance = importance ? &*importance : nullptr};
    return convert_folder(*path, options.out, how, options.threads);
  }
  auto opened = ModelFile::open(*path);
  if (!opened) return fail(opened.error());
  const auto file = std::make_shared<const ModelFile>(std::move(opened).value());
  auto config = read_config(*file);
  if (!config) return fail(config.error());
  const LayerConfig* attention = config->first_with(Mixer::kAttention);
  const LayerConfig& layer = attention != nullptr ? *attention : config->layers.front();
  const bool alike = std::ranges::all_of(config->layers, [&](const LayerConfig& l) {
    const bool same = l.n_kv_heads == layer.n_kv_heads && l.key_len == layer.key_len && l.value_len == layer.key_len;
    return same || l.mixer == Mixer::kState || l.mixer == Mixer::kNone;
  });
  if (options.kv_heads > 0 && !alike) {
    return fail(
        unsupported("the key/value heads of this model's layers differ; heads are averaged where all are alike"),
        kUsage);
  }
  RequantiseOptions requantise_options = {.types = rules_of(options),
                                          .architecture = config->architecture,
                                          .n_layers = config->n_layers,
                                          .n_heads = layer.n_heads,
                                          .n_kv_heads = layer.n_kv_heads,
                                          .head_len = layer.key_len,
                                          .kv_groups = options.kv_heads,
                                          .requantises = options.requantises,
                                          .dry_run = options.dry_run,
                                          .shards = shards,
                                          .importance = importance ? &*importance : nullptr};
  ThreadTeam team(options.threads > 0 ? options.threads : usable_cores());
  std::optional<MergedAdapters> merged;
  if (!adapters->empty()) {
    Stream stream(team);
    auto read = MergedAdapters::read(*adapters, file, stream);
    if (!read) return fail(read.error());
    requantise_options.terms = &merged.emplace(*std::move(read));
  }
  Progress bar("quantising", true);
  auto made = requantise(*file, options.out, requantise_options, team,
                         [&](uint64_t done, uint64_t all) { bar.update(done, all); });
  if (!made) return fail(made.error());
  print(*made, options.out, options.dry_run);
  if (merged) fmt::print("{} adapters are merged into {} matrices.\n", adapters->size(), merged->n_tensors());
  if (!options.dry_run && made->bytes > file->tensor_bytes()) {
    fmt::print(stderr, "warning: {} is larger than what it was made of: {} of weights, and {} were read{}.\n",
               options.out, bytes_text(made->bytes), bytes_text(file->tensor_bytes()),
               made->instead.empty() ? "; a type of fewer bits makes it smaller" : ", for the reason above");
  }
  if (made->was_quantised) fmt::print("It was made of quantised matrices; what these had lost stays lost.\n");
  return kOk;
}

}  // namespace ibid::cli
