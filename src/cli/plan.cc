// What a model and a server of it will hold and how fast they will be, before they are loaded.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/memory.h"
#include "cli/measure/draft_measures.h"
#include "cli/measure/draft_prompts.h"
#include "cli/measure/plan_speed.h"
#include "cli/options/flag_values.h"
#include "cli/options/options.h"
#include "cli/options/server_host.h"
#include "cli/options/text_file.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "engine/engine_size.h"
#include "host/host.h"
#include "server/request/server_memory.h"

namespace ibid::cli {
namespace {

// Of a text that drafts are measured after.
constexpr int32_t kPieceLen = 256;
constexpr size_t kMostPieces = 6;

std::string amount(int64_t bytes) {
  const auto n = static_cast<double>(bytes);
  if (bytes < 1 << 20) return fmt::format("{:.1f} KiB", n / (1 << 10));
  return bytes < 1 << 30 ? fmt::format("{:.1f} MiB", n / (1 << 20)) : fmt::format("{:.2f} GiB", n / (1 << 30));
}

void print_memory(const host::Loaded& sized, const EngineOptions& engine, int64_t limit) {
  const auto line = [](const std::string& name, int64_t bytes) {
    std::printf("  %-28s %12s\n", name.c_str(), amount(bytes).c_str());
  };
  for (const MemoryPart& part : sized.memory.parts) line(part.name, part.bytes);
  line("keys and values", engine.kv_bytes);
  std::printf("  %-28s %12s of %s\n", "together", amount(sized.memory.total() + engine.kv_bytes).c_str(),
              amount(limit).c_str());
}

// "2x80G", or "80G" for one.
Result<Devices> devices_from(const std::string& text) {
  const size_t x = text.find('x');
  int64_t n = 1;
  if (x != std::string::npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + x, n);
    if (error != std::errc() || end != text.data() + x || n < 1 || n > 4096) n = 0;
  }
  ASSIGN_OR_RETURN(const int64_t bytes,
                   read_bytes(x == std::string::npos ? text : text.substr(x + 1), 1 << 20, int64_t{1} << 50));
  if (n == 0) return invalid("invalid value '" + text + "'; expected devices, as 2x80G", "--devices");
  return Devices{n, bytes};
}

// What `n_streams` full contexts take there: weights once, spread over all.
Status print_devices(const host::Loaded& sized, const EngineOptions& engine, int64_t n_streams,
                     const std::vector<std::string>& asked) {
  const int64_t n_blocks = (sized.context_len + engine.block_len - 1) / engine.block_len;
  const MemoryUse& use = sized.model->memory();
  const int64_t taken = use.mapped_bytes + use.repacked_bytes + use.scratch_bytes + use.workspace_bytes +
                        n_streams * (n_blocks * kv_bytes_of_block(*sized.model, engine.kv_dtype, engine.block_len) +
                                     sized.model->state_layout().slot_bytes());
  for (const std::string& text : asked) {
    ASSIGN_OR_RETURN(const Devices devices, devices_from(text));
    constexpr const char* kSaid[] = {"does not fit", "fits, tightly", "fits with room to spare"};
    std::printf("%s: %ld streams of %d take %s of %s: %s\n", text.c_str(), static_cast<long>(n_streams),
                sized.context_len, amount(taken).c_str(), amount(devices.n * devices.bytes).c_str(),
                kSaid[static_cast<size_t>(devices.fit(taken))]);
  }
  return {};
}

// A view drafts after texts that it does not hold whole: its acceptance can be measured only on such texts.
void print_view(const PredictedSpeed& speed, const WindowArgs& window, int32_t depth) {
  const int32_t n = std::min(depth, window.n_sink + window.n_window);
  const auto step = [&](int32_t n_before) { return 1 / speed.one + n_before * speed.position; };
  std::printf("  after %d tokens, which these texts have not, a draft over a view of %d costs %.3f of a step\n", depth,
              n, step(n) / step(depth));
}

void print_draft_model(const host::Loaded& sized) {
  const ModelConfig &own = sized.draft->model->config(), &of_target = sized.model->config();
  if (!sized.draft->skipped.empty()) {
    std::printf("draft model: the model itself, %ld of its %ld layers\n", static_cast<long>(own.n_layers),
                static_cast<long>(of_target.n_layers));
    return;
  }
  const auto n = static_cast<double>(of_target.n_parameters());
  std::printf("draft model: 1/%.0f of the target's parameters; 1/30 to 1/10 mostly fits, %.3gM to %.3gM here\n",
              n / static_cast<double>(own.n_parameters()), n / 30e6, n / 10e6);
}

// What those of --spec draft along answers of the model's own, what that costs, and which of them pays.
Result<DraftMeasures> print_drafts(const PlanOptions& options, const host::Loaded& sized, const PredictedSpeed& speed,
                                   int32_t depth) {
  const SpecArgs& spec = options.serve.spec;
  const host::StepLimits limits = {.spec = spec, .draft_chains = true};
  ModelArgs args = options.serve.model;
  args.context_len = sized.context_len;
  ASSIGN_OR_RETURN(const host::Loaded loaded, host::load(args, limits, {}, terminal_progress()));
  DraftRun run{.temperature = options.temperature};
  if (!options.text.empty()) {
    ASSIGN_OR_RETURN(const std::string text, text_of_file(options.text));
    const int32_t longest = spec.window ? 2 * (spec.window->n_sink + spec.window->n_window) : kPieceLen;
    run.prompts = pieces_of(loaded.tokenizer->encode(text, {.add_special = true}),
                            static_cast<size_t>(std::max(kPieceLen, longest)), kMostPieces);
    if (run.prompts.front().empty()) return invalid("The text " + options.text + " is empty.", "--text");
  } else {
    ASSIGN_OR_RETURN(const ChatTemplate chat, host::load_template(*loaded.file, *loaded.tokenizer));
    for (const DraftPrompt& prompt : own_draft_prompts()) {
      ASSIGN_OR_RETURN(auto ids, prompt_tokens(chat, *loaded.tokenizer, prompt.text));
      run.prompts.push_back(std::move(ids));
    }
  }
  ASSIGN_OR_RETURN(DraftMeasures measured, measure_drafts(loaded, limits, spec.name, run));
  std::printf("drafts along %zu answers of the model's own, %ld tokens at T = %g:\n%s", measured.texts.size(),
              static_cast<long>(measured.n_tokens()), static_cast<double>(options.temperature),
              draft_report(measured).c_str());
  if (spec.window && options.text.empty()) print_view(speed, *spec.window, depth);
  return measured;
}

}  // namespace

int plan(const PlanOptions& options) {
  ServeOptions serve = options.serve;
  fit_server(serve.server, serve.model.memory_bytes);
  const host::HostOptions wanted = host_options(serve, "");
  const host::StepLimits& limits = wanted.limits;
  auto sized = host::size(wanted, terminal_progress());
  if (!sized) return fail(sized.error());
  const int64_t limit = serve.model.memory_bytes > 0 ? serve.model.memory_bytes : usable_bytes();
  const bool is_encoder = sized->model->config().is_encoder();
  const int64_t state_bytes = sized->model->state_layout().slot_bytes();
  ModelFacts facts{
      .layers = sized->model->kv_geometries(), .state_bytes = state_bytes, .context_len = sized->context_len};
  if (is_encoder) facts.encoder = EncoderFacts{};
  auto engine = size_engine(facts, sized->engine_options(limits));
  if (!engine) return fail(engine.error());

  if (is_encoder) {
    std::printf("%s, which keeps no keys and values\n", sized->description().c_str());
    print_memory(*sized, *engine, limit);
    return kOk;
  }
  std::printf("%s, %s of keys and values a token\n", sized->description().c_str(),
              amount(planned_block_bytes(*sized->model, *engine) / engine->block_len).c_str());
  if (state_bytes > 0) std::printf("%s of recurrent state a sequence\n", amount(state_bytes).c_str());
  print_memory(*sized, *engine, limit);
  const int64_t n_tokens =
      engine->kv_bytes / kv_bytes_of_block(*sized->model, engine->kv_dtype, engine->block_len) * engine->block_len;
  std::printf("fits: %ld tokens, so %ld streams of %d at once", static_cast<long>(n_tokens),
              static_cast<long>(n_tokens / sized->context_len), sized->context_len);
  if (options.n_streams > 0)
    std::printf(", or %d of %ld", options.n_streams, static_cast<long>(n_tokens / options.n_streams));
  std::printf("\n");
  const int64_t n_asked =
      options.n_streams > 0 ? options.n_streams : std::max<int64_t>(1, n_tokens / sized->context_len);
  if (const Status printed = print_devices(*sized, *engine, n_asked, options.devices); !printed)
    return fail(printed.error(), kUsage);
  if (!options.speed) return kOk;
  const auto n_fit = static_cast<int32_t>(std::clamp<int64_t>(n_tokens / sized->context_len, 1, limits.max_sequences));
  const int32_t n_streams = options.n_streams > 0 ? options.n_streams : n_fit, depth = sized->context_len / 2;
  auto speed = predict_speed(*sized, n_streams, depth);
  if (!speed) return fail(speed.error());
  const MemoryUse& use = sized->model->memory();
  const ModelConfig& config = sized->model->config();
  const double share = static_cast<double>(config.n_parameters_used()) / static_cast<double>(config.n_parameters());
  std::printf("prefill: %.0f tokens/s\n", speed->prefill);
  std::printf("decode, 1 stream: %.1f tokens/s (%.1f GB/s of weights)\n", speed->one,
              speed->one * share * static_cast<double>(use.repacked_bytes) / 1e9);
  std::printf("decode, %d streams of %d tokens: %.1f tokens/s, %.1f each\n", n_streams, depth, speed->streams,
              speed->streams / n_streams);
  if (!serve.spec.by_lookup) return kOk;
  if (sized->draft) print_draft_model(*sized);
  double cost = 0;  // the look-up's, as long as nothing is asked
  if (!serve.spec.name.empty() || !options.text.empty()) {
    const auto measured = print_drafts(options, *sized, *speed, depth);
    if (!measured) return fail(measured.error());
    cost = measured->costs.back();
    // Of drafts of one text, where there are as many.
    for (size_t i = 0; i < kRowCounts.size(); ++i) {
      if (const auto at = static_cast<size_t>(kRowCounts[i] - 1); at < measured->rows.size())
        speed->rows[i] = measured->rows[at];
    }
  }
  std::printf("%s", speculation_advice(*speed, cost, serve.spec.k).c_str());
  return kOk;
}

}  // namespace ibid::cli
