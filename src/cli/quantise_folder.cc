// A folder of safetensors as a folder of compressed-tensors: `ibid quantize --type w4a16`, w8a16 and w8a8.
#include "model/quantise_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/quoted.h"
#include "cli/options/file_options.h"
#include "cli/options/options.h"
#include "cli/options/text_file.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"

namespace ibid::cli {

namespace {

bool quantises_inputs(std::string_view type) { return type == "w8a8" || type == "W8A8"; }

}  // namespace

int folder_bits(std::string_view type) {
  if (type == "w4a16" || type == "W4A16") return 4;
  return type == "w8a16" || type == "W8A16" || quantises_inputs(type) ? 8 : 0;
}

namespace {

// What has no meaning in a folder.
Status check_options(const QuantizeOptions& o) {
  const std::pair<const char*, bool> kOfFiles[] = {{"--tensor-type", !o.tensor_types.empty()},
                                                   {"--output-tensor-type", !o.output_type.empty()},
                                                   {"--token-embedding-type", !o.embedding_type.empty()},
                                                   {"--imatrix", !o.imatrix.empty()},
                                                   {"--kv-heads", o.kv_heads > 0},
                                                   {"--pure", o.is_pure},
                                                   {"--allow-requantize", o.requantises},
                                                   {"--keep-split", o.keep_split},
                                                   {"--dry-run", o.dry_run},
                                                   {"--force", o.force}};
  for (const auto& [flag, is_set] : kOfFiles) {
    if (is_set) return invalid(std::string(flag) + " is for GGUF files, and " + o.type + " is written as a folder");
  }
  if (o.out.empty()) return invalid("no folder to write is named");
  if (o.search != "none" && o.file.empty()) return invalid("--search " + o.search + " looks at a text: -f names it");
  if (o.search == "none" && !o.file.empty()) return invalid("-f is the text of a search, and --search names none");
  if (o.search == "smoothquant" && !quantises_inputs(o.type)) return invalid("--search smoothquant is for w8a8");
  if (o.search == "awq" && quantises_inputs(o.type))
    return invalid("--search awq is for scales of groups: w4a16 and w8a16");
  if (!o.adapters.empty() || !o.scaled_adapters.empty())
    return invalid("--lora and --lora-scaled are for GGUF files; " + o.type + " is written as a folder");
  if (o.act_order && o.search != "gptq") return invalid("--act-order is for --search gptq");
  return {};
}

}  // namespace

int quantise_folder(const QuantizeOptions& options) {
  if (const Status fine = check_options(options); !fine.ok()) return fail(fine.error(), kUsage);
  auto path = host::resolve(options.in, false, terminal_progress());
  if (!path) return fail(path.error());
  auto file = ModelFile::open(*path);
  if (!file) return fail(file.error());
  QuantiseFolderOptions how = {.bits = folder_bits(options.type),
                               .group_len = options.group_len,
                               .quantises_inputs = quantises_inputs(options.type),
                               .chunk_len = options.chunk_len,
                               .damp = options.damp,
                               .act_order = options.act_order,
                               .smoothing = options.smoothing,
                               .max_file_bytes = static_cast<uint64_t>(options.split_max_bytes)};
  const auto write = [&](Model* model, Stream& stream) -> int {
    Result<QuantisedFolder> made = [&] {
      Progress bar("quantising");
      return ibid::quantise_folder(*file, model, stream, options.out, how,
                                   [&](uint64_t done, uint64_t all) { bar.update(done, all); });
    }();
    if (!made) return fail(made.error());
    const std::string scales =
        how.quantises_inputs ? "with a scale for each output" : fmt::format("in groups of {}", how.group_len);
    fmt::print("{}: {} of {}, {} matrices of {} bits {}\n", options.out, bytes_text(made->bytes),
               bytes_text(made->bytes_before), made->n_quantised, how.bits, scales);
    if (made->n_left > 0) {
      fmt::print("{} matrices stay as they are: their inputs are no whole groups; a smaller --group-size may fit.\n",
                 made->n_left);
    }
    if (made->n_folded > 0) fmt::print("{} products have inputs that the search scales.\n", made->n_folded);
    return kOk;
  };
  if (options.search == "none") {
    ThreadTeam team(options.threads > 0 ? options.threads : usable_cores());
    Stream stream(team);
    return write(nullptr, stream);
  }
  how.search = options.search == "awq"    ? GroupSearch::kAwq
               : options.search == "gptq" ? GroupSearch::kGptq
                                          : GroupSearch::kSmooth;
  const auto text = text_of_file(options.file);
  if (!text) return fail(text.error());
  ModelArgs args = {
      .model = options.in, .context_len = static_cast<int32_t>(options.chunk_len), .threads = options.threads};
  auto loaded = host::load(args, {.step_tokens = 512, .max_sequences = 1}, {}, terminal_progress());
  if (!loaded) return fail(loaded.error());
  std::vector<TokenId> tokens = loaded->tokenizer->encode(*text, {.add_special = true});
  if (options.n_chunks > 0)
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(options.n_chunks * options.chunk_len)));
  const Vocabulary& v = loaded->tokenizer->vocabulary();
  how.tokens = tokens;
  how.begin = v.add_bos ? v.bos : TokenId::kNone;
  return write(loaded->model.get(), *loaded->stream);
}

}  // namespace ibid::cli
