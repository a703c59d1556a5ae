// From what names a model to one that can run: fetched, mapped, checked, sized and loaded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/memory_plan.h"
#include "engine/state/engine_options.h"
#include "format/model_file.h"
#include "host/host_options.h"
#include "host/load_progress.h"
#include "image/patches.h"
#include "model/adapter_shelf.h"
#include "model/model.h"
#include "model/vision/tower.h"
#include "spec/drawn/draft_tree.h"
#include "spec/experimental/text_store.h"
#include "spec/heads/eagle_head.h"
#include "tensor/stream.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::host {

// Sets the tiers in the engine's options. With a host tier it measures, for some 20 ms, what a block of `block_bytes`
// costs to copy.
void use_tiers(const TierArgs& tiers, int64_t block_bytes, EngineOptions& options);
// What they hold in memory.
void add_tier_parts(MemoryPlan& plan, const TierArgs& tiers);

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

// The vision tower beside a model.
struct LoadedTower {
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const Tower> tower;  // null: only sized
  TowerConfig config;
  PatchRule rule;  // how pictures are cut for it
};

// A model, with weights or only sized, and all that it borrows. Moves freely: what an engine refers to stays where it
// is.
struct Loaded {
  std::string path;
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<ThreadTeam> team;
  std::shared_ptr<Stream> stream;
  std::unique_ptr<Model> model;
  std::shared_ptr<AdapterShelf> adapters;  // of the model; null: none may be loaded
  std::optional<LoadedTower> tower;        // none: the model reads no pictures
  std::optional<LoadedDraft> draft;
  std::optional<LoadedHeads> heads;
  std::optional<LoadedEagle> eagle;
  std::shared_ptr<const TextStore> store;  // null: none
  int32_t context_len = 0;
  KvTypes kv_dtype;
  MemoryPlan memory;     // all parts but keys and values
  int64_t kv_bytes = 0;  // 0: the engine's choice

  std::string description() const;  // "llama 135M Q4_1"
  std::string main_type() const;    // "Q4_1"
  std::string kv_name() const;      // "f16", "i8:i4"
  EngineOptions engine_options(const StepLimits& limits) const;
  // Bytes of KV that hold `n_sequences` of `n_tokens` each.
  int64_t kv_bytes_for(int64_t n_sequences, int64_t n_tokens, int32_t block_len) const;
};

// Fetches (aliases and hf: sources), maps, checks, sizes and prepares. What does not fit into ModelArgs::memory_bytes,
// or into the machine's memory, is refused before a weight is read. `beside`: what the process will hold besides the
// model and its engine.
Result<Loaded> load(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside = {},
                    const OnProgress& progress = {});
// The same up to there: all but the weights' bytes.
Result<Loaded> size(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside = {},
                    const OnProgress& progress = {});
// The first `n_layers` layers of a model that was sized, as a model by itself of that context and those limits, without
// anything that drafts; 0: all layers. Thread team, stream, file and tokenizer are `sized`'s too; memory is not
// planned.
Result<Loaded> load_layers(const Loaded& sized, int64_t n_layers, int32_t context_len, const StepLimits& limits);

// The path of a model's file or folder, fetched where that is needed. `checks`: what is there is read first, and
// fetched again where it is not what it was (format/fetched_file.h).
Result<std::string> resolve(const std::string& model, bool checks = false, const OnProgress& progress = {});
// Adds the command that repairs a file that is not what it was, if there is one.
Error with_cure(const Error& error, const std::string& model);
// A file and its tokenizer alone: a GGUF with a vocabulary and no weights is enough.
struct LoadedText {
  std::string path;
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const Tokenizer> tokenizer;
};
Result<LoadedText> load_text(const std::string& model, const OnProgress& progress = {});
// The file's chat template, or the named default with a warning in the log.
Result<ChatTemplate> load_template(const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace ibid::host
