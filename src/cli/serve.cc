// Serve a model over HTTP: hands the server an engine.
#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/caught.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/quoted.h"
#include "cli/load_backend.h"
#include "cli/options/model_names.h"
#include "cli/options/options.h"
#include "cli/options/server_host.h"
#include "cli/picture_parts.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/host.h"
#include "kernels/arithmetic_version.h"
#include "kernels/isa.h"
#include "model/eviction.h"
#include "server/net/server.h"
#include "server/request/engine_backend.h"
#include "server/request/server_memory.h"
#include "tensor/dtype.h"

namespace ibid::cli {
namespace {

constexpr size_t kMaxTemplate = 256 << 10;

// What is no model by itself: what a model sees with, and a part of one in several files.
bool is_companion(const std::string& stem) {
  std::string lower = stem;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.find("mmproj") != std::string::npos) return true;
  constexpr std::string_view kPart = "-00001-of-00002";
  if (stem.size() <= kPart.size()) return false;
  const std::string_view end = std::string_view(stem).substr(stem.size() - kPart.size());
  for (size_t i = 0; i < kPart.size(); ++i) {
    const bool is_digit = end[i] >= '0' && end[i] <= '9';
    if (kPart[i] >= '0' && kPart[i] <= '9' ? !is_digit : end[i] != kPart[i]) return false;
  }
  return !end.ends_with("-of-00001");
}

bool is_model(const std::filesystem::directory_entry& entry) {
  std::error_code ignored;
  if (entry.is_directory(ignored)) return std::filesystem::exists(entry.path() / "config.json", ignored);
  if (entry.path().extension() != ".gguf") return false;
  if (!is_companion(entry.path().stem().string())) return true;
  log_warn("not served: " + entry.path().filename().string() + " is no model by itself");
  return false;
}

// Which state a file is in, or those of a folder: device, inode, size and time of change. Empty: it is no path.
std::string version_of_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> states;
  const auto add = [&](const fs::path& file) {
    struct stat found = {};
    if (::stat(file.c_str(), &found) != 0) return;
    states.push_back(fmt::format("{} {} {} {} {}.{:09}", file.filename().string(), found.st_dev, found.st_ino,
                                 found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec));
  };
  std::error_code ignored;
  add(path);
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored)) add(entry.path());
  }
  std::sort(states.begin(), states.end());
  std::string out;
  for (const std::string& state : states) out += state + "\n";
  return out;
}

// All that the command line names, each name once.
Result<std::vector<NamedModel>> models_of(const ServeOptions& options) {
  std::vector<NamedModel> out;
  const bool has_others =
      !options.more_models.empty() || !options.named_models.empty() || !options.models_folder.empty();
  if (options.names_model || !has_others) out.push_back({served_name(options.model.model), options.model.model});
  for (const std::string& typed : options.more_models) out.push_back({served_name(typed), typed});
  for (const std::string& text : options.named_models) out.push_back(named_model(text));
  if (!options.models_folder.empty()) {
    const size_t n_before = out.size();
    std::error_code wrong;
    for (const auto& entry : std::filesystem::directory_iterator(options.models_folder, wrong)) {
      if (is_model(entry)) out.push_back({served_name(entry.path().string()), entry.path().string(), true});
    }
    if (wrong || out.size() == n_before)
      return not_found("There is no model in the folder " + in_quotes(options.models_folder) + ".", "--models-dir");
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(n_before), out.end(),
              [](const NamedModel& a, const NamedModel& b) { return a.name < b.name; });
  }
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (out[i].name == out[j].name)
        return invalid("Two models would be served as " + in_quotes(out[i].name) + ", " + out[j].typed + " and " +
                           out[i].typed + "; --model NAME=PATH gives one another name.",
                       "--model");
    }
  }
  return out;
}

// The model's, or the operator's; the latter must be one.
Result<ChatTemplate> chat_template_from(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string source(kMaxTemplate + 1, '\0');
  file.read(source.data(), static_cast<std::streamsize>(source.size()));
  source.resize(static_cast<size_t>(file.gcount()));
  if (source.empty()) return not_found("There is no chat template in " + in_quotes(path) + ".", "--chat-template");
  Result<ChatTemplate> chat = ChatTemplate::for_model(source);
  if (!chat)
    return invalid("The chat template " + in_quotes(path) + " cannot be used: " + chat.error().message,
                   "--chat-template");
  return chat;
}

// "file.gguf, llama 135M Q4_1, 8192 tokens of context, ...".
std::string about(const host::Loaded& loaded, int64_t n_blocks, int32_t block_len) {
  const int64_t of_block = kv_bytes_of_block(*loaded.model, loaded.kv_dtype, block_len);
  std::string out = fmt::format("{}, {}, {} tokens of context, {} threads, {} kernels, arithmetic {}, {} of memory",
                                shown(std::filesystem::path(loaded.path).filename().string()), loaded.description(),
                                loaded.context_len, loaded.team->n_threads(), isa_name(selected_isa()), arithmetic_id(),
                                bytes_text(static_cast<uint64_t>(loaded.memory.total() + n_blocks * of_block)));
  if (of_block > 0)
    out += fmt::format(", of it {} for keys and values of {} tokens",
                       bytes_text(static_cast<uint64_t>(n_blocks * of_block)), n_blocks * block_len);
  return out + ".";
}

std::string license_of(const ModelFile& file) {
  const Result<std::string> license = file.meta_string("general.license", "");
  return license ? *license : "";
}

}  // namespace

Result<std::unique_ptr<Backend>> load_backend(const ServeOptions& options, const std::string& name,
                                              const host::OnProgress& progress) {
  const host::HostOptions wanted = host_options(options, name);
  ASSIGN_OR_RETURN(host::Hosted hosted, host::prepare(wanted, progress));
  const host::Loaded& loaded = hosted.loaded;
  const ModelConfig& config = loaded.model->config();
  if (const char* what = what_forbids_eviction(config); what != nullptr && options.server.api.defaults.kv_eviction) {
    return unsupported(
        std::string("Keys and values cannot be evicted: this model has ") + what + "; start without --kv-eviction.",
        "kv-eviction");
  }
  const bool has_own = !options.chat_template.empty();
  const auto own_template = [&]() -> Result<ChatTemplate> {
    if (config.is_encoder()) return unsupported("The model is an encoder.");
    return host::load_template(*loaded.file, *loaded.tokenizer);
  };
  Result<ChatTemplate> chat = has_own ? chat_template_from(options.chat_template) : own_template();
  if (has_own && !chat) return chat.error();
  if (!chat && !config.is_encoder()) log_warn("chat is switched off, completions are served: " + chat.error().message);
  TRY(host::start(hosted, wanted));
  const EngineOptions& engine_options = hosted.engine->options();
  std::unique_ptr<KvEvents> events;
  if (options.server.kv_events.on()) {
    ASSIGN_OR_RETURN(events, KvEvents::open(options.server.kv_events, engine_options.block_len));
    hosted.engine->observe_cache(*events);
  }
  ModelInfo info{
      .name = name,
      .architecture = config.architecture,
      .digest = engine_options.model_digest,
      .context_len = loaded.context_len,
      .created =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .sampling = sampling_defaults(*loaded.file, options.sampling),
      .width = static_cast<int32_t>(config.width),
      .pooling = options.pooling.value_or(config.pooling.value_or(Pooling::kMean)),
      .is_encoder = config.is_encoder(),
      .n_labels = static_cast<int32_t>(config.n_labels),
      .file = std::filesystem::path(loaded.path).filename().string(),
      .trained_context_len = config.trained_context_len,
      .file_bytes = static_cast<int64_t>(loaded.file->file_bytes()),
      .n_parameters = static_cast<int64_t>(config.n_parameters()),
      .weights = loaded.main_type(),
      .license = license_of(*loaded.file),
      .block_len = engine_options.block_len,
      .kv_dtype = engine_options.kv_dtype.name(),
      .shares_prefixes = engine_options.prefix_cache};
  log_info(name + ": " + about(loaded, hosted.engine->stats().blocks_total, engine_options.block_len));
  auto tokenizer = loaded.tokenizer;
  if (loaded.adapters != nullptr) {
    for (const AdapterShelf::Entry& entry : loaded.adapters->list()) {
      const Adapter& adapter = *entry.placed->adapter;
      log_info(fmt::format("adapter {}: {} products of a rank up to {}, {}.", entry.name, adapter.n_products(),
                           adapter.max_rank(), bytes_text(static_cast<uint64_t>(adapter.bytes()))));
    }
  }
  auto adapters = loaded.adapters;
  PictureParts pictures;
  if (loaded.tower && chat) {
    const host::LoadedTower& tower = *loaded.tower;
    ASSIGN_OR_RETURN(pictures, picture_parts(loaded, options.model.pictures));
    log_info(fmt::format("vision tower {}: {}, pictures of up to {} tokens.", tower.config.architecture,
                         bytes_text(static_cast<uint64_t>(tower.tower->weight_bytes())),
                         tower.tower->max_patches() / (tower.config.merge * tower.config.merge)));
  }
  auto backend = make_engine_backend({.info = std::move(info),
                                      .tokenizer = std::move(tokenizer),
                                      .chat_template = std::move(chat),
                                      .engine = std::move(hosted.engine),
                                      .recorder = std::move(hosted.recorder),
                                      .adapters = std::move(adapters),
                                      .pictures = std::move(pictures.reader),
                                      .encoder = std::move(pictures.encoder),
                                      .events = std::move(events),
                                      .keep = std::make_shared<host::Loaded>(std::move(hosted.loaded))});
  backend->limit_grammars(options.server.max_grammars_bytes);
  return backend;
}

namespace {

// What load_within() would find wrong, before a weight is read.
Status check_within(const ServeOptions& options, const NamedModel& model, int64_t memory_bytes) {
  ServeOptions own = options;
  own.model.model = model.typed;
  own.model.memory_bytes = memory_bytes;
  const Result<host::Loaded> sized = host::size(host_options(own, model.name), terminal_progress());
  if (sized) return {};
  Error error = sized.error();
  if (error.where == kOfMachine) error.kind = ErrorKind::kNoMemory;  // which another time may have it
  return error;
}

// One of several, within what the others leave. Without --kv-memory, its keys and values have what is left of an even
// share of all memory, at least one context and at most what an engine alone would choose.
Result<LoadedModel> load_within(const ServeOptions& options, const NamedModel& model, int64_t memory_bytes,
                                int64_t share) {
  ServeOptions own = options;
  own.model.model = model.typed;
  own.model.memory_bytes = memory_bytes;
  const host::HostOptions wanted = host_options(own, model.name);
  ASSIGN_OR_RETURN(const host::Loaded sized, host::size(wanted, terminal_progress()));
  const EngineOptions engine = sized.engine_options(wanted.limits);
  const int64_t of_block = kv_bytes_of_block(*sized.model, engine.kv_dtype, engine.block_len);
  const int64_t of_context = (sized.context_len + engine.block_len - 1) / engine.block_len * of_block;
  if (own.kv_bytes == 0 && of_block > 0) {
    const int64_t kv_wanted = std::min(std::max(1, own.max_sequences / 4) * of_context, share - sized.memory.total());
    own.kv_bytes = std::min(sized.kv_bytes, std::max(of_context, kv_wanted / of_block * of_block));
  }
  LoadedModel out;
  const int64_t n_blocks = of_block > 0 ? own.kv_bytes / of_block : 0;
  out.bytes = sized.memory.total() - sized.memory.parts.front().bytes - host::memory_beside(wanted).total() +
              n_blocks * planned_block_bytes(*sized.model, engine);
  ASSIGN_OR_RETURN(out.backend, load_backend(own, model.name, terminal_progress()));
  return out;
}

// Of models that were found in a folder, the first that can be loaded is the server's first.
void begin_with_sound(const ServeOptions& options, int64_t memory_bytes, std::vector<NamedModel>& models) {
  for (size_t i = 0; i < models.size() && models.front().is_found; ++i) {
    const Status status = caught([&] { return check_within(options, models.front(), memory_bytes); });
    if (status) return;
    log_warn("the model " + in_quotes(models.front().name) + " cannot be loaded: " + status.error().message);
    std::rotate(models.begin(), models.begin() + 1, models.end());
  }
}

int serve_several(const ServeOptions& options, std::vector<NamedModel> models) {
  if (options.model.adapters.n_slots() > 0)
    return fail(invalid("--lora-modules are of one model; they do not go with several"), kUsage);
  if (!options.record.empty() || !options.tiers.disk_folder.empty() || !options.spec.draft_model.empty()) {
    return fail(
        invalid("--record, --cache-disk and a draft model are of one engine; they do not go with several models"),
        kUsage);
  }
  if (options.server.kv_events.on())
    return fail(invalid("--kv-events are of one engine; they do not go with several models"), kUsage);
  FleetOptions fleet;
  fleet.max_loaded = options.max_models;
  fleet.memory_bytes = options.model.memory_bytes > 0 ? options.model.memory_bytes : usable_bytes();
  ServeOptions own = options;
  own.model.process_bytes = resident_bytes();
  own.server.max_grammars_bytes /= static_cast<int64_t>(models.size());  // each has its own
  const int64_t share = fleet.memory_bytes / static_cast<int64_t>(models.size());
  begin_with_sound(own, fleet.memory_bytes, models);
  for (const NamedModel& model : models) {
    std::error_code ignored;
    const bool is_path = std::filesystem::exists(model.typed, ignored);
    fleet.models.push_back(
        {.name = model.name,
         .aliases = fleet.models.empty() ? own.server.aliases : std::vector<std::string>(),
         .load =
             [own, model, share](int64_t memory_bytes) {
               return caught([&] { return load_within(own, model, memory_bytes, share); });
             },
         .check = [own, model](
                      int64_t memory_bytes) { return caught([&] { return check_within(own, model, memory_bytes); }); },
         .version =
             [path = is_path ? model.typed : std::string()] {
               return path.empty() ? std::string() : path + "\n" + version_of_path(path);
             }});
  }
  return run_fleet(own.server, std::move(fleet));
}

}  // namespace

Result<ServeOptions> settled(const ServeOptions& options) {
  if (options.redact && !options.tiers.disk_folder.empty()) {
    return invalid(
        "--redact does not go with --cache-disk: blocks on a disk are named by their tokens, and with "
        "others the record would not run again");
  }
  if (options.max_tokens_per_step < options.max_sequences) {
    return invalid(
        fmt::format("--max-tokens-per-step {} cannot serve --max-sequences {}: each needs a token of "
                    "every step",
                    options.max_tokens_per_step, options.max_sequences));
  }
  ServeOptions out = options;
  out.server.api.max_drafts = options.spec.max_drafts();
  out.server.api.proposer = options.spec.proposer();
  out.server.n_slots = options.max_sequences;
  out.server.n_places = int64_t{options.max_sequences} + options.max_waiting;
  fit_server(out.server, options.model.memory_bytes);
  return out;
}

int serve(const ServeOptions& options) {
  Result<ServeOptions> fitted = settled(options);
  if (!fitted) return fail(fitted.error(), kUsage);
  Result<std::vector<NamedModel>> models = models_of(options);
  if (!models) return fail(models.error(), kUsage);
  if (models->size() > 1) return serve_several(*fitted, *std::move(models));
  const NamedModel& model = models->front();
  fitted->model.model = model.typed;
  return run_server(fitted->server,
                    [&options = *fitted, &model] { return load_backend(options, model.name, terminal_progress()); });
}

}  // namespace ibid::cli
