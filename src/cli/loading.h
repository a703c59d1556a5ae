// From what a person typed to a model that can run. Owns everything that a command's engine borrows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "format/model_file.h"
#include "model/model.h"
#include "spec/draft_tree.h"
#include "spec/eagle_head.h"
#include "spec/experimental/text_store.h"
#include "tensor/stream.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::cli {

// The flags of --cache-host-bytes and its like, as the engine wants them. With a host tier it measures, for some 20 ms,
// what a block costs to copy.
void use_tiers(const TierArgs& tiers, int64_t block_bytes, EngineOptions& options);
// What they hold in memory.
void add_tier_parts(MemoryPlan& plan, const TierArgs& tiers);
// What one step may hold, which sizes the scratch arrays, and what else is wanted of the engine.
struct StepLimits {
  int32_t step_tokens = 512;
  int32_t max_sequences = 1;
  int32_t max_waiting = 1;
  int32_t max_drafts = 0;  // of a sequence in a step
  int32_t max_rows = 0;    // 0: by the others
  bool has_grammars = false;
  bool makes_text = true;        // false: an encoder will do too
  int64_t kv_bytes = 0;          // 0: what --memory leaves; without one, the engine's choice
  std::string draft_model = {};  // that drafts beside the look-up; empty: none
  std::optional<WindowArgs> draft_window = {};
  std::string heads = {};  // these as SpecArgs'
  std::string eagle = {};
  bool finds_own = false;
  std::string store = {};
  std::string skip = {};
  std::optional<WindowArgs> window = {};
  bool mtp = false;
  int32_t look_ahead = 0;
  int64_t own_answers_bytes = 0;
  bool draft_chains = false;  // heads draw no trees
};

// Those limits, and the proposer as the flags have it.
StepLimits with_proposers(StepLimits limits, const SpecArgs& spec);
StepLimits step_limits(const ServeOptions& options);

// A model that drafts for another, or the model itself without some of its layers.
struct LoadedDraft {
  std::vector<int32_t> skipped;  // these; empty: another model
  std::shared_ptr<const ModelFile> file;
  std::unique_ptr<Model> model;
  int64_t kv_bytes = 0;
};

// Draft heads on the model itself.
struct LoadedHeads {
  std::shared_ptr<const ModelFile> file;
  std::vector<DraftPlace> tree;  // that it names; empty: none
  int64_t bytes = 0;
};

// A head with attention on the model itself.
struct LoadedEagle {
  std::shared_ptr<const ModelFile> file;
  EagleSizes sizes;
};

struct Loaded {
  std::string path;
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Model> model;
  std::optional<LoadedDraft> draft;
  std::optional<LoadedHeads> heads;
  std::optional<LoadedEagle> eagle;
  std::shared_ptr<const TextStore> store;  // null: none
  int32_t context_len = 0;
  DType kv_dtype = DType::kF16;
  MemoryPlan memory;     // all parts but keys and values
  int64_t kv_bytes = 0;  // 0: the engine's choice

  std::string description() const;  // "llama 135M Q4_1"
  std::string main_type() const;    // "Q4_1"
  std::string kv_name() const;      // "f16"
  EngineOptions engine_options(const StepLimits& limits) const;
  // Bytes of KV that hold `n_sequences` of `n_tokens` each.
  int64_t kv_bytes_for(int64_t n_sequences, int64_t n_tokens, int32_t block_len) const;
};

// Fetches (aliases and hf: sources), maps, checks, sizes and prepares, with progress on standard error. What does not
// fit into --memory, or into the machine's, is refused before a weight is read. `beside`: what the process will hold
// besides the model and its engine.
Result<Loaded> load(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside = {});
// The same up to there: all but the weights' bytes.
Result<Loaded> size(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside = {});

// Whether it can only be meant for a model: an alias, something of the hub, or what is there as a file or folder or is
// spelled like one.
bool is_model_name(const std::string& word);
// What people call the model: the alias or hub name, the file's name otherwise.
std::string served_name(const std::string& typed);
struct NamedModel {
  std::string name, typed;
  bool is_found = false;  // in a folder: nobody named it
};
// "NAME=MODEL", or MODEL alone, which is served as served_name() says. A path that is there may have a = in it.
NamedModel named_model(const std::string& text);
// The path of a model's file or folder, fetched where that is needed. `checks`: what is there is read first, and
// fetched again where it is not what it was (format/fetched_file.h).
Result<std::string> resolve(const std::string& model, bool checks = false);
// Says which command mends a file that is not what it was, if one does.
Error with_cure(const Error& error, const std::string& model);
// A file and its tokenizer alone: a GGUF with a vocabulary and no weights is enough.
struct LoadedText {
  std::string path;
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const Tokenizer> tokenizer;
};
Result<LoadedText> load_text(const std::string& model);
// The text of a file; "-": standard input.
Result<std::string> text_of_file(const std::string& file);
// The file's chat template, or the named default with a warning in the log.
Result<ChatTemplate> load_template(const ModelFile& file, const Tokenizer& tokenizer);

// Prints "error: ..." and returns the exit code.
int fail(const Error& error, int exit_code = kFailed);

}  // namespace ibid::cli
