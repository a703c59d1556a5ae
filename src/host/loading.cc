#include "host/loading.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "base/cache_folder.h"
#include "base/caught.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/engine_size.h"
#include "format/fetched_file.h"
#include "format/model_digest.h"
#include "format/registry.h"
#include "format/source.h"
#include "host/picture_rule.h"
#include "host/proposers.h"
#include "host/spelling.h"
#include "kernels/isa.h"
#include "kernels/reference.h"
#include "model/adapter_file.h"
#include "model/tokenizer_of_model.h"
#include "sample/grammar/grammars.h"
#include "worker/disk_thread.h"
#include "worker/model_pass.h"

namespace ibid::host {
namespace {

constexpr int32_t kDefaultContext = 8192;

// The type that most of the weights' bytes have.
std::string_view main_dtype(const ModelFile& file) {
  std::map<std::string_view, uint64_t> bytes;
  for (const TensorInfo& t : file.tensors()) bytes[traits(t.view.dtype).name] += t.bytes();
  auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "?" : most->first;
}

}  // namespace

std::string Loaded::description() const {
  double n = static_cast<double>(model->config().n_parameters());
  std::string size = n < 1e9 ? fmt::format("{:.0f}M", n / 1e6) : fmt::format("{:.1f}B", n / 1e9);
  return fmt::format("{} {} {}", model->config().architecture, size, main_dtype(*file));
}

std::string Loaded::main_type() const { return std::string(main_dtype(*file)); }

std::string Loaded::kv_name() const {
  std::string name = kv_dtype.name();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

EngineOptions Loaded::engine_options(const StepLimits& limits) const {
  EngineOptions o;
  o.kv_dtype = kv_dtype;
  o.step_tokens = limits.step_tokens;
  o.max_sequences = limits.max_sequences;
  o.max_waiting = limits.max_waiting;
  o.max_drafts = limits.spec.max_drafts();
  o.max_rows = limits.max_rows;
  o.kv_bytes = kv_bytes;
  o.end_of_generation = end_of_generation_of(*file, *tokenizer);
  return o;
}

namespace {

// Seconds that copying n bytes takes from memory to memory, the best of three rounds over more than caches hold.
double seconds_to_copy(int64_t n) {
  const auto size = static_cast<size_t>(n), n_pieces = std::max<size_t>(1, (size_t{16} << 20) / size);
  std::vector<std::byte> from(n_pieces * size, std::byte{1}), to(n_pieces * size);
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 3; ++round) {
    const double begin = steady_clock().now();
    for (size_t i = 0; i < n_pieces; ++i) std::memcpy(to.data() + i * size, from.data() + i * size, size);
    best = std::min(best, steady_clock().now() - begin);
  }
  return best / static_cast<double>(n_pieces);
}

}  // namespace

void use_tiers(const TierArgs& tiers, int64_t block_bytes, EngineOptions& options) {
  options.host_bytes = tiers.host_bytes;
  if (tiers.host_bytes > 0 && block_bytes > 0) options.host_copy_seconds = seconds_to_copy(block_bytes);
  options.disk_folder = tiers.disk_folder;
  options.disk_bytes = tiers.disk_bytes;
}

void add_tier_parts(MemoryPlan& plan, const TierArgs& tiers) {
  if (tiers.host_bytes > 0) plan.add("blocks on the host", tiers.host_bytes);
  if (!tiers.disk_folder.empty()) plan.add("blocks on their way to a disk", kDiskThreadBytes);
}

int64_t Loaded::kv_bytes_for(int64_t n_sequences, int64_t n_tokens, int32_t block_len) const {
  int64_t blocks = n_sequences * ((n_tokens + block_len - 1) / block_len + 1) + 1;
  return blocks * kv_bytes_of_block(*model, kv_dtype, block_len);
}

namespace {

// One work's reports, from the first that is made until it is over.
class Reports {
 public:
  explicit Reports(const OnProgress& progress) : progress_(progress) {}
  ~Reports() {
    if (has_any_) progress_({.file = file_, .is_over = true});
  }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;

  void add(const LoadProgress& report) {
    if (!progress_) return;
    if (has_any_ && report.file != file_) progress_({.file = file_, .is_over = true});
    file_ = report.file, has_any_ = true;
    progress_(report);
  }

 private:
  const OnProgress& progress_;
  std::string file_;
  bool has_any_ = false;
};

}  // namespace

Result<std::string> resolve(const std::string& model, bool checks, const OnProgress& progress) {
  Reports reports(progress);
  FetchOptions options;
  options.checks = checks;
  options.progress = [&](const FetchProgress& p) {
    if (p.waiting) return;
    reports.add({.file = p.file,
                 .n_before = p.n_before,
                 .n_done = std::max<int64_t>(0, p.n_done),
                 .n_total = std::max<int64_t>(0, p.n_total)});
  };
  return fetch_model(model, options);
}

Error with_cure(const Error& error, const std::string& model) {
  std::error_code ignored;
  const bool is_path = find_packaged(model) == nullptr && std::filesystem::exists(model, ignored);
  return {error.kind,
          error.message + (is_path ? " A new copy is needed." : " `ibid pull " + model + "` fetches it again."),
          error.where};
}

Result<LoadedText> load_text(const std::string& model, const OnProgress& progress) {
  LoadedText out;
  ASSIGN_OR_RETURN(out.path, resolve(model, false, progress));
  ASSIGN_OR_RETURN(ModelFile file, ModelFile::open(out.path));
  out.file = std::make_shared<const ModelFile>(std::move(file));
  ASSIGN_OR_RETURN(out.tokenizer, load_tokenizer(*out.file));
  return out;
}

Result<ChatTemplate> load_template(const ModelFile& file, const Tokenizer& tokenizer) {
  std::string warning;
  auto chat = ChatTemplate::for_model(chat_template_of(file, tokenizer), &warning);
  if (!warning.empty()) log_warn(warning);
  return chat;
}

namespace {

// What threads, the allocator's slack and small things come to; seen with the default model under load.
constexpr int64_t kSlack = 24 << 20;

ModelOptions model_options(const Loaded& loaded, const AdapterArgs& adapters, const StepLimits& limits) {
  return {.context_len = loaded.context_len,
          .step_tokens = std::max(limits.step_tokens, limits.max_sequences),
          .max_rows = std::max(rows_of(loaded.engine_options(limits)), 64),
          .max_sequences = limits.max_sequences,
          .max_adapters = adapters.n_slots(),
          .max_adapter_rank = adapters.max_rank};
}

// Reads on a thread of its own, as steps run on the stream's team meanwhile.
AdapterShelf::Read reader_of(const Loaded& loaded) {
  return [file = loaded.file, model = loaded.model.get()](const std::string& path) {
    ThreadTeam team(1);
    Stream stream(team);
    return read_adapter(path, *file, *model, stream);
  };
}

// A shelf with those that are named.
Status load_adapters(const AdapterArgs& args, Loaded& out) {
  AdapterTable* table = out.model->adapters();
  if (table == nullptr) return {};
  out.adapters = std::make_shared<AdapterShelf>(*table, reader_of(out));
  for (const AdapterArgs::Named& named : args.named) {
    if (const Status loaded = out.adapters->load(named.name, named.path); !loaded)
      return Error{loaded.error().kind, "the adapter " + in_quotes(named.name) + ": " + loaded.error().message,
                   "lora-modules"};
  }
  return {};
}

// What adapters may come to hold.
int64_t adapter_bytes(const AdapterArgs& args, const Loaded& sized) {
  constexpr int64_t kForOthers = int64_t{256} << 20;
  int64_t of_named = 0;
  if (sized.adapters != nullptr) {
    for (const AdapterShelf::Entry& entry : sized.adapters->list()) of_named += entry.placed->adapter->bytes();
  }
  return std::max(args.memory_bytes, of_named + (args.may_load && args.memory_bytes == 0 ? kForOthers : 0));
}

int64_t most_patches(const PictureArgs& args, const TowerConfig& tower) {
  return args.max_tokens * tower.merge * tower.merge;
}

// The tower that is named, or the folder's own.
Status find_tower(const PictureArgs& args, Loaded& out) {
  if (args.tower == kNoTower || (args.tower.empty() && !has_tower(*out.file))) return {};
  LoadedTower tower = {.file = out.file};
  if (!args.tower.empty()) {
    ASSIGN_OR_RETURN(const std::string path, resolve(args.tower));
    ASSIGN_OR_RETURN(ModelFile file, ModelFile::open(path));
    tower.file = std::make_shared<const ModelFile>(std::move(file));
  }
  ASSIGN_OR_RETURN(tower.config, read_tower(*tower.file));
  ASSIGN_OR_RETURN(tower.rule, picture_rule(*tower.file, tower.config, most_patches(args, tower.config)));
  const ModelConfig& config = out.model->config();
  if (!config.takes_pictures())
    return unsupported("ibid shows no pictures to " + config.architecture + "; start with --mmproj none", "mmproj");
  if (tower.config.out_width != config.width || tower.config.n_parts() != 1 + config.n_picture_layers) {
    return invalid("the vision tower gives rows of " + std::to_string(tower.config.out_width) + " numbers for " +
                       std::to_string(tower.config.n_parts()) + " layers, and the model reads " +
                       std::to_string(config.width) + " for " + std::to_string(1 + config.n_picture_layers) +
                       "; it belongs to another model",
                   "mmproj");
  }
  out.memory.add("vision tower", static_cast<int64_t>(tower_bytes(*tower.file)));
  out.memory.add("pictures", run_bytes(tower.config, most_patches(args, tower.config)) + 3 * args.kept_bytes);
  out.tower = std::move(tower);
  return {};
}

Status load_tower(const PictureArgs& args, Loaded& out) {
  if (!out.tower) return {};
  const std::string digest = model_digest(*out.tower->file, cache_folder()).hex();
  ASSIGN_OR_RETURN(out.tower->tower,
                   Tower::load(out.tower->file, digest, most_patches(args, out.tower->config), *out.stream));
  return {};
}

// Of what was sized: the proposer, what the engine holds, and the keys and values that there is room for.
Status size_beside_model(const ModelArgs& args, const StepLimits& limits, const OnProgress& progress, Loaded& out) {
  TRY(size_proposers(limits, out, progress));
  out.kv_bytes = out.model->config().is_encoder() ? 0 : limits.kv_bytes;
  const EngineOptions engine = out.engine_options(limits);
  add_engine_parts(out.memory, *out.model, engine, out.team->n_threads());
  if (limits.has_grammars)
    out.memory.add("a vocabulary for grammars", grammar::Grammars::bytes_beside(out.model->config().vocab_size));
  ASSIGN_OR_RETURN(const int64_t kv_bytes, kv_bytes_within(args.memory_bytes > 0 ? args.memory_bytes : usable_bytes(),
                                                           out.memory, *out.model, engine));
  if (args.memory_bytes == 0) return {};
  if (out.kv_bytes > kv_bytes) {
    return exhausted(fmt::format("{} of keys and values do not fit in --memory {}: beside {} there is room for {}.",
                                 bytes_text(limits.kv_bytes), bytes_text(args.memory_bytes), out.memory.text(),
                                 bytes_text(kv_bytes)),
                     "kv_bytes");
  }
  if (out.kv_bytes == 0) out.kv_bytes = kv_bytes;
  return {};
}

// With a context of `context_len` tokens.
Result<Loaded> size_with(const LoadedText& text, int32_t context_len, const ModelArgs& args, const StepLimits& limits,
                         const MemoryPlan& beside, const OnProgress& progress) {
  Loaded out;
  out.path = text.path;
  out.file = text.file;
  out.tokenizer = text.tokenizer;
  out.kv_dtype = args.kv_dtype;
  if (args.own_kv_dtype) {
    ASSIGN_OR_RETURN(out.kv_dtype, own_kv_types(*out.file));
  }
  out.team = std::make_shared<ThreadTeam>(args.threads > 0 ? args.threads : usable_cores());
  out.stream = std::make_shared<Stream>(*out.team);
  out.context_len = context_len;
  ModelOptions options = model_options(out, args.adapters, limits);
  options.sized_only = true;
  ASSIGN_OR_RETURN(out.model, load_model(out.file, options, *out.stream));
  TRY(load_adapters(args.adapters, out));

  out.memory.add("program and vocabulary", (args.process_bytes > 0 ? args.process_bytes : resident_bytes()) + kSlack);
  for (const MemoryPart& part : beside.parts) out.memory.add(part.name, part.bytes);
  if (out.adapters != nullptr)
    out.memory.add("adapters", adapter_bytes(args.adapters, out) + out.model->memory().adapter_bytes);
  TRY(find_tower(args.pictures, out));
  const MemoryPlan before = out.memory;
  Status sized = size_beside_model(args, limits, progress, out);
  if (!sized.ok() && sized.error().kind == ErrorKind::kExhausted && limits.spec.finds_own && out.eagle) {
    // The bundled head, which was not requested, gives way.
    StepLimits without = limits;
    without.spec.finds_own = false;
    out.memory = before;
    out.eagle.reset();
    sized = size_beside_model(args, without, progress, out);
  }
  TRY(sized);
  return out;
}

Result<Loaded> size_whole(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside,
                          const OnProgress& progress) {
  if (args.isa) TRY(select_isa(*args.isa));
  TRY(place_memory(args.numa));
  reference::select(args.reference_kernels);
  ASSIGN_OR_RETURN(const LoadedText text, load_text(args.model, progress));
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(*text.file));
  if (limits.makes_text && config.is_encoder())
    return unsupported("the model is an encoder (" + config.architecture +
                       "): it makes vectors of texts, by ibid serve, and no text");
  if (args.context_len > 0) return size_with(text, args.context_len, args, limits, beside, progress);
  const int64_t least = std::min<int64_t>(config.trained_context_len, kDefaultContext);
  int64_t context_len = args.own_context && !config.is_encoder() ? config.trained_context_len : least;
  while (true) {
    Result<Loaded> sized = size_with(text, static_cast<int32_t>(context_len), args, limits, beside, progress);
    if (sized || sized.error().kind != ErrorKind::kExhausted || context_len <= least) return sized;
    context_len = std::max(least, context_len / 2);
  }
}

Result<Loaded> load_whole(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside,
                          const OnProgress& progress) {
  ASSIGN_OR_RETURN(Loaded out, size_whole(args, limits, beside, progress));
  const auto check = [](const ModelFile& file, const std::string& name) -> Status {
    if (const Status sound = check_digests(file, cache_folder()); !sound) return with_cure(sound.error(), name);
    return {};
  };
  TRY(check(*out.file, args.model));
  if (out.draft && out.draft->skipped.empty()) TRY(check(*out.draft->file, limits.spec.draft_model));
  Reports reports(progress);
  reports.add({.n_total = 100});
  ModelOptions options = model_options(out, args.adapters, limits);
  const int64_t of_adapters = adapter_bytes(args.adapters, out);
  out.adapters = nullptr;  // before the model that was sized
  if (args.keep_packed) options.keep_packed_in = cache_folder();
  ASSIGN_OR_RETURN(out.model, load_model(out.file, options, *out.stream, [&reports](double share) {
                     if (share < 1) reports.add({.n_done = static_cast<int64_t>(share * 100), .n_total = 100});
                   }));
  TRY(load_adapters(args.adapters, out));
  if (out.adapters != nullptr) out.model->adapters()->limit_bytes(of_adapters);
  TRY(load_tower(args.pictures, out));
  if (!out.draft) return out;
  ModelOptions of_draft = out.draft->model->options();
  if (!out.draft->skipped.empty()) {
    ASSIGN_OR_RETURN(out.draft->model, model_without(*out.model, out.draft->skipped, of_draft, *out.stream));
    return out;
  }
  of_draft.sized_only = false;
  of_draft.keep_packed_in = options.keep_packed_in;
  ASSIGN_OR_RETURN(out.draft->model, load_model(out.draft->file, of_draft, *out.stream));
  return out;
}

}  // namespace

Result<Loaded> load(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside,
                    const OnProgress& progress) {
  Result<Loaded> loaded = caught([&] { return load_whole(args, limits, beside, progress); });
  ::malloc_trim(0);  // what reading a vocabulary and packing took is not held for as long as the process lives
  return loaded;
}

Result<Loaded> size(const ModelArgs& args, const StepLimits& limits, const MemoryPlan& beside,
                    const OnProgress& progress) {
  return caught([&] { return size_whole(args, limits, beside, progress); });
}

Result<Loaded> load_layers(const Loaded& sized, int64_t n_layers, int32_t context_len, const StepLimits& limits) {
  Loaded out;
  out.path = sized.path;
  out.file = sized.file;
  out.tokenizer = sized.tokenizer;
  out.team = sized.team;
  out.stream = sized.stream;
  out.context_len = context_len;
  out.kv_dtype = sized.kv_dtype;
  ModelOptions options = model_options(out, {}, limits);
  options.n_layers = n_layers;
  ASSIGN_OR_RETURN(out.model, load_model(out.file, options, *out.stream));
  return out;
}

}  // namespace ibid::host
