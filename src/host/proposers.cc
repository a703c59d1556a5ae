#include "host/proposers.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "engine/engine_size.h"
#include "format/model_digest.h"
#include "format/registry.h"
#include "host/own_eagle.h"
#include "host/spelling.h"
#include "model/tokenizer_of_model.h"
#include "spec/experimental/lookahead_proposer.h"
#include "spec/experimental/store_proposer.h"
#include "spec/heads/eagle_proposer.h"
#include "spec/heads/heads_proposer.h"
#include "spec/heads/mtp_layer.h"
#include "spec/lookup/free_proposers.h"
#include "spec/model/draft_model.h"
#include "spec/model/window_proposer.h"
#include "spec/proposer_chain.h"
#include "worker/model_pass.h"

namespace ibid::host {
namespace {

constexpr int32_t kDraftStep = 256;  // tokens of a pass of a draft model
constexpr int32_t kDraftSequences = 8;
constexpr int32_t kEagleTexts = 16;
// For ibid's own head where it was not requested: its model is small, and steps of more sequences have no room
// for drafts of a network (docs/decisions/0042-the-head-of-ours-by-default.md).
constexpr int32_t kOwnEagleRunning = 4;
// Layers that `ibid spec find-layers` found for the default model (docs/users/speculation.md), and that model's digest.
constexpr std::string_view kOwnLayersTarget = "1dff70ef9e211d0ab8951aa641e75aa1", kOwnLayersFound = "7";

// What proposes drafts only helps: where its file is cut short, it proposes from zeros, which verifying refuses.
void let_go_where_cut(const ModelFile& file) {
  for (const MappedFile& part : file.files()) part.let_go_where_cut();
}

DraftModelOptions windowed(DraftModelOptions options, const StepLimits& limits) {
  if (limits.spec.draft_window) {
    options.n_sink = limits.spec.draft_window->n_sink;
    options.n_window = limits.spec.draft_window->n_window;
  }
  return options;
}

// As of `context_len` tokens that the target reads.
ModelOptions draft_options(const ModelConfig& config, int32_t context_len, const StepLimits& limits) {
  const int32_t longest = DraftModel::longest_read(windowed({}, limits), context_len);
  return {.context_len = std::min<int64_t>(config.trained_context_len, longest),
          .step_tokens = kDraftStep,
          .max_rows = kDraftSequences,
          .max_sequences = kDraftSequences};
}

DraftModelOptions draft_model_options(const Loaded& loaded, const StepLimits& limits) {
  const DraftModelOptions options = {.kv_dtype = loaded.kv_dtype,
                                     .kv_bytes = loaded.draft->kv_bytes,
                                     .step_tokens = kDraftStep,
                                     .max_sequences = std::min(limits.max_sequences, kDraftSequences),
                                     .vocab_size = static_cast<int32_t>(loaded.model->config().vocab_size),
                                     .end_of_generation = end_of_generation_of(*loaded.file, *loaded.tokenizer)};
  return windowed(options, limits);
}

// What a draft model holds besides its weights.
void add_draft(const StepLimits& limits, LoadedDraft draft, Loaded& out) {
  // Two whole contexts, or many shorter texts; one where one is all that runs. Windows are short, and all texts have
  // one.
  constexpr int32_t kBlockLen = DraftModelOptions().block_len;
  const int32_t n_sequences = std::min(limits.max_sequences, limits.spec.draft_window ? kDraftSequences : 2);
  const int64_t n_blocks = (draft.model->context_len() + kBlockLen - 1) / kBlockLen * n_sequences;
  draft.kv_bytes = n_blocks * kv_bytes_of_block(*draft.model, out.kv_dtype, kBlockLen);
  const MemoryUse& use = draft.model->memory();
  const std::string of = draft.skipped.empty() ? "draft model's " : "skipping model's ";
  out.memory.add(of + "intermediates", use.scratch_bytes + use.workspace_bytes +
                                           kDraftSequences * draft.model->config().vocab_size * int64_t{sizeof(float)});
  out.memory.add(of + "keys and values", draft.kv_bytes);
  out.draft = std::move(draft);
}

// Of a draft model of that context.
Status check_window(int32_t context_len, const StepLimits& limits, const Loaded& out) {
  if (!limits.spec.draft_window) return {};
  const DraftModelOptions options = windowed({}, limits);
  if (DraftModel::longest_read(options, out.context_len) == out.context_len) {
    return invalid("A draft model's window of " + std::to_string(options.n_sink) + " and up to twice " +
                       std::to_string(options.n_window) + " tokens leaves nothing out of a context of " +
                       std::to_string(out.context_len) + ".",
                   "--spec-draft-window");
  }
  const Status checked = DraftModel::check(options, context_len);
  if (!checked.ok()) return Error{checked.error().kind, checked.error().message, "--spec-draft-window"};
  return {};
}

// Checks that it may draft for `out`'s model, and adds what it will hold.
Status size_draft(const std::string& name, const StepLimits& limits, const OnProgress& progress, Loaded& out) {
  ASSIGN_OR_RETURN(LoadedText text, load_text(name, progress));
  Vocabulary own = text.tokenizer->vocabulary();
  own.end_of_generation = out.tokenizer->vocabulary().end_of_generation;  // the target specifies what ends an answer
  if (auto difference = first_difference(out.tokenizer->vocabulary(), own)) {
    return unsupported("The draft model " + in_quotes(name) +
                           " has another vocabulary than the model that it drafts "
                           "for: " +
                           *difference + ".",
                       "--spec");
  }
  LoadedDraft draft{.file = text.file};
  let_go_where_cut(*draft.file);
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(*draft.file));
  if (config.is_encoder())
    return unsupported("The draft model " + in_quotes(name) + " is an encoder: it makes no text.", "--spec");
  TRY(check_window(static_cast<int32_t>(config.trained_context_len), limits, out));
  ModelOptions options = draft_options(config, out.context_len, limits);
  options.sized_only = true;
  ASSIGN_OR_RETURN(draft.model, load_model(draft.file, options, *out.stream));
  const MemoryUse& use = draft.model->memory();
  out.memory.add("draft model", use.mapped_bytes + use.repacked_bytes);
  add_draft(limits, std::move(draft), out);
  return {};
}

// Those that the flag names, or those that were found for this model.
Result<std::vector<int32_t>> find_skipped(const std::string& name, const Loaded& out) {
  if (name != kOwnLayers) return read_layers(name);
  if (model_digest(*out.file).hex() != kOwnLayersTarget) {
    return unsupported(
        "Which layers this model can do without is not known here, as it is of the default one: `ibid spec "
        "find-layers` finds them, and skip:LAYERS takes them.",
        "--spec");
  }
  return read_layers(kOwnLayersFound);
}

// The model itself without some layers: their weights are there.
Status size_skipped(const StepLimits& limits, Loaded& out) {
  LoadedDraft draft{.file = out.file};
  ASSIGN_OR_RETURN(draft.skipped, find_skipped(limits.spec.skip, out));
  TRY(check_window(out.context_len, limits, out));
  const ModelOptions options = draft_options(out.model->config(), out.context_len, limits);
  auto model = model_without(*out.model, draft.skipped, options, *out.stream);
  if (!model) return Error{model.error().kind, "--spec skip: " + model.error().message + ".", "--spec"};
  draft.model = std::move(*model);
  add_draft(limits, std::move(draft), out);
  return {};
}

HeadsOptions heads_options(const StepLimits& limits, const Loaded& loaded, const LoadedHeads& heads) {
  return {.max_sequences = std::min(limits.max_sequences, HeadsOptions().max_sequences),
          .vocab_size = static_cast<int32_t>(loaded.model->config().vocab_size),
          .context_len = loaded.context_len,
          .end_of_generation = end_of_generation_of(*loaded.file, *loaded.tokenizer),
          .branches = limits.draft_chains ? 1 : HeadsProposer::kBranches,
          .tree = heads.tree};
}

Status size_heads(const StepLimits& limits, Loaded& out) {
  LoadedHeads heads;
  ASSIGN_OR_RETURN(ModelFile file, ModelFile::open(limits.spec.heads));
  heads.file = std::make_shared<const ModelFile>(std::move(file));
  let_go_where_cut(*heads.file);
  ASSIGN_OR_RETURN(heads.tree, DraftHeads::read_tree(*heads.file));
  const int32_t n_rows = HeadsProposer::n_rows(heads_options(limits, out, heads));
  ASSIGN_OR_RETURN(heads.bytes, DraftHeads::sized_bytes(*heads.file, *out.model, *out.stream, n_rows));
  out.memory.add("draft heads", heads.bytes);
  out.heads = std::move(heads);
  return {};
}

// ibid's own, if it was trained on this model's very bytes; null: it was not.
Result<std::shared_ptr<const ModelFile>> find_own_eagle(const Loaded& out) {
  // Others are distinguished by their size, without being read whole.
  if (out.file->file_bytes() != static_cast<size_t>(find_packaged("default")->file_bytes))
    return std::shared_ptr<const ModelFile>();
  ASSIGN_OR_RETURN(ModelFile file, own_eagle());
  ASSIGN_OR_RETURN(const std::string digest, file.meta_string("target_digest"));
  if (model_digest(*out.file).hex() != digest) return std::shared_ptr<const ModelFile>();
  return std::make_shared<const ModelFile>(std::move(file));
}

// The layer that the model brings along, the head that the flag names, or ibid's own.
Result<std::shared_ptr<const ModelFile>> find_eagle(const StepLimits& limits, const Loaded& out) {
  if (limits.spec.mtp) return mtp_layer_of(*out.file);
  if (limits.spec.eagle == kOwnEagle) {
    ASSIGN_OR_RETURN(auto own, find_own_eagle(out));
    if (own != nullptr) return own;
    return unsupported(
        "ibid has no draft head for this model, only for its default one; eagle:FILE would take another.", "--spec");
  }
  ASSIGN_OR_RETURN(ModelFile file, ModelFile::open(limits.spec.eagle));
  let_go_where_cut(file);
  return std::make_shared<const ModelFile>(std::move(file));
}

Status size_eagle(std::shared_ptr<const ModelFile> file, const StepLimits& limits, Loaded& out) {
  LoadedEagle eagle;
  eagle.file = std::move(file);
  eagle.sizes = EagleProposer::sizes(std::min(limits.max_sequences, kEagleTexts), out.context_len,
                                     out.model->options().step_tokens);
  eagle.sizes.kv_dtype = out.kv_dtype;
  ASSIGN_OR_RETURN(const int64_t bytes, EagleHead::sized_bytes(*eagle.file, *out.model, *out.stream, eagle.sizes));
  ASSIGN_OR_RETURN(const int64_t block_bytes,
                   EagleHead::block_bytes(*eagle.file, *out.model, *out.stream, eagle.sizes));
  const int64_t kv_bytes = block_bytes * eagle.sizes.n_blocks;
  out.memory.add(limits.spec.mtp ? "the MTP layer" : "an EAGLE head", bytes - kv_bytes);
  out.memory.add(limits.spec.mtp ? "the MTP layer's keys and values" : "the EAGLE head's keys and values", kv_bytes);
  out.eagle = std::move(eagle);
  return {};
}

Status size_stores(const StepLimits& limits, Loaded& out) {
  if (!limits.spec.store.empty()) {
    ASSIGN_OR_RETURN(out.store, TextStore::open(limits.spec.store, out.tokenizer->vocabulary()));
    out.memory.add("a store of texts to draft from", out.store->bytes());
  }
  if (limits.spec.own_answers_bytes > 0)
    out.memory.add("answers to draft from", OwnAnswers(limits.spec.own_answers_bytes).bytes());
  return {};
}

std::unique_ptr<Proposer> stores_of(const Loaded& loaded, const StepLimits& limits) {
  if (loaded.store == nullptr && limits.spec.own_answers_bytes == 0) return nullptr;
  auto own = limits.spec.own_answers_bytes > 0 ? std::make_unique<OwnAnswers>(limits.spec.own_answers_bytes) : nullptr;
  return std::make_unique<StoreProposer>(
      loaded.store, std::move(own),
      StoreProposerOptions{.max_sequences = std::min(limits.max_sequences, StoreProposerOptions().max_sequences),
                           .end_of_generation = end_of_generation_of(*loaded.file, *loaded.tokenizer)});
}

Result<std::unique_ptr<Proposer>> draft_model_of(const Loaded& loaded, const StepLimits& limits) {
  const DraftModelOptions options = draft_model_options(loaded, limits);
  auto pass = std::make_unique<ModelPass>(*loaded.draft->model, *loaded.stream, options.end_of_generation, "");
  ASSIGN_OR_RETURN(auto draft, DraftModel::create(std::move(pass), *loaded.stream, options));
  draft->measure();
  return std::unique_ptr<Proposer>(std::move(draft));
}

Result<std::unique_ptr<Proposer>> heads_of(const Loaded& loaded, const StepLimits& limits) {
  const HeadsOptions options = heads_options(limits, loaded, *loaded.heads);
  ASSIGN_OR_RETURN(auto heads,
                   DraftHeads::load(loaded.heads->file, *loaded.model, *loaded.stream, HeadsProposer::n_rows(options)));
  return std::unique_ptr<Proposer>(std::make_unique<HeadsProposer>(std::move(heads), *loaded.stream, options));
}

Result<std::unique_ptr<Proposer>> eagle_of(const Loaded& loaded, const StepLimits& limits) {
  ASSIGN_OR_RETURN(auto head, EagleHead::load(loaded.eagle->file, *loaded.model, *loaded.stream, loaded.eagle->sizes));
  return std::unique_ptr<Proposer>(std::make_unique<EagleProposer>(
      std::move(head), *loaded.stream,
      EagleOptions{.vocab_size = static_cast<int32_t>(loaded.model->config().vocab_size),
                   .end_of_generation = end_of_generation_of(*loaded.file, *loaded.tokenizer),
                   .branches = limits.draft_chains ? 1 : EagleProposer::kBranches,
                   .most_running = limits.spec.finds_own ? kOwnEagleRunning : EagleOptions().most_running}));
}

WindowOptions window_options(const Loaded& loaded, const StepLimits& limits) {
  return {.n_sink = limits.spec.window->n_sink,
          .n_window = limits.spec.window->n_window,
          .end_of_generation = end_of_generation_of(*loaded.file, *loaded.tokenizer)};
}

// The model itself over a part of each text: all that it needs is there.
Status size_window(const StepLimits& limits, const Loaded& out) {
  const ModelPass pass(*out.model, *out.stream, {}, "");
  const Status checked = WindowProposer::check(pass.facts(), window_options(out, limits));
  if (!checked.ok()) return Error{checked.error().kind, "--spec window: " + checked.error().message, "--spec"};
  return {};
}

Result<std::unique_ptr<Proposer>> window_of(Engine& engine, const Loaded& loaded, const StepLimits& limits) {
  ASSIGN_OR_RETURN(auto window, WindowProposer::create(engine.seat(), window_options(loaded, limits)));
  window->measure();
  return std::unique_ptr<Proposer>(std::move(window));
}

std::unique_ptr<Proposer> look_ahead_of(const Loaded& loaded, const StepLimits& limits) {
  return std::make_unique<LookAheadProposer>(
      LookAheadOptions{.n_window = limits.spec.look_ahead,
                       .max_sequences = std::min(limits.max_sequences, LookAheadOptions().max_sequences),
                       .end_of_generation = end_of_generation_of(*loaded.file, *loaded.tokenizer)});
}

// Of those that run a network of their own, or look ahead, there is one at most; null: there is none.
Result<std::unique_ptr<Proposer>> network_of(const Loaded& loaded, const StepLimits& limits) {
  if (loaded.draft) return draft_model_of(loaded, limits);
  if (loaded.heads) return heads_of(loaded, limits);
  if (loaded.eagle) return eagle_of(loaded, limits);
  if (limits.spec.look_ahead > 0) return look_ahead_of(loaded, limits);
  return std::unique_ptr<Proposer>();
}

// Those that take time; a view comes last, since it reads what the others report.
Result<std::unique_ptr<Proposer>> costly_of(Engine& engine, const Loaded& loaded, const StepLimits& limits) {
  ASSIGN_OR_RETURN(std::unique_ptr<Proposer> network, network_of(loaded, limits));
  if (!limits.spec.window) return network;
  ASSIGN_OR_RETURN(std::unique_ptr<Proposer> window, window_of(engine, loaded, limits));
  if (network == nullptr) return window;
  std::vector<std::unique_ptr<Proposer>> both;
  both.push_back(std::move(network));
  both.push_back(std::move(window));
  return std::unique_ptr<Proposer>(std::make_unique<ProposerChain>(std::move(both)));
}

}  // namespace

Status size_proposers(const StepLimits& limits, Loaded& out, const OnProgress& progress) {
  if (limits.spec.max_drafts() == 0) return {};
  TRY(size_stores(limits, out));
  if (limits.spec.draft_window && limits.spec.draft_model.empty() && limits.spec.skip.empty())
    return invalid("--spec-draft-window is of a draft model, and there is none.", "--spec-draft-window");
  if (limits.spec.window) TRY(size_window(limits, out));
  if (limits.spec.look_ahead > 0) {
    out.memory.add("windows of look-ahead",
                   LookAheadProposer::bytes_of(std::min(limits.max_sequences, LookAheadOptions().max_sequences)));
  }
  if (!limits.spec.draft_model.empty()) return size_draft(limits.spec.draft_model, limits, progress, out);
  if (!limits.spec.skip.empty()) return size_skipped(limits, out);
  if (!limits.spec.heads.empty()) return size_heads(limits, out);
  std::shared_ptr<const ModelFile> eagle;
  if (limits.spec.mtp || !limits.spec.eagle.empty()) {
    ASSIGN_OR_RETURN(eagle, find_eagle(limits, out));
  } else if (limits.spec.finds_own) {
    ASSIGN_OR_RETURN(eagle, find_own_eagle(out));
  }
  return eagle == nullptr ? Status{} : size_eagle(std::move(eagle), limits, out);
}

Status use_proposers(Engine& engine, const Loaded& loaded, const StepLimits& limits) {
  if (limits.spec.max_drafts() == 0) return {};
  std::unique_ptr<Proposer> stores = stores_of(loaded, limits);
  ASSIGN_OR_RETURN(std::unique_ptr<Proposer> last, costly_of(engine, loaded, limits));
  if (last == nullptr && stores == nullptr) return {};
  engine.speculate(free_proposers(engine.facts(), limits.max_sequences, std::move(last), std::move(stores)),
                   limits.spec.max_drafts());
  return {};
}

Result<std::unique_ptr<Proposer>> proposer_of(Engine& engine, const Loaded& loaded, const StepLimits& limits) {
  std::unique_ptr<Proposer> stores = stores_of(loaded, limits);
  ASSIGN_OR_RETURN(std::unique_ptr<Proposer> last, costly_of(engine, loaded, limits));
  if (stores == nullptr) return last;
  if (last == nullptr) return stores;
  std::vector<std::unique_ptr<Proposer>> both;
  both.push_back(std::move(stores));
  both.push_back(std::move(last));
  return std::unique_ptr<Proposer>(std::make_unique<ProposerChain>(std::move(both)));
}

}  // namespace ibid::host
