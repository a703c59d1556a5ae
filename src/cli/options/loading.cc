#include "cli/options/loading.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <utility>

#include "cli/terminal/progress.h"
#include "format/registry.h"
#include "server/server_memory.h"

namespace ibid::cli {

host::OnProgress terminal_progress() {
  return [bar = std::shared_ptr<Progress>()](const host::LoadProgress& report) mutable {
    if (report.is_over) return bar.reset();
    const bool is_fetch = !report.file.empty();
    if (!bar) {
      bar = std::make_shared<Progress>(is_fetch ? "fetching " + report.file : "loading", is_fetch,
                                       static_cast<uint64_t>(report.n_before));
    }
    bar->update(static_cast<uint64_t>(report.n_done), static_cast<uint64_t>(report.n_total));
  };
}

host::HostOptions host_options(const ServeOptions& options, const std::string& name) {
  host::HostOptions out = {.model = options.model,
                           .limits = {.step_tokens = options.max_tokens_per_step,
                                      .max_sequences = options.max_sequences,
                                      .max_waiting = options.max_waiting,
                                      .has_grammars = true,
                                      .makes_text = false,
                                      .kv_bytes = options.kv_bytes,
                                      .spec = options.spec},
                           .tiers = options.tiers,
                           .record = {.file = options.record, .redact = options.redact},
                           .name = name,
                           .policy = options.policy,
                           .max_itl = options.max_itl,
                           .has_digest = true};
  add_server_parts(out.beside, options.server);
  return out;
}

bool is_model_name(const std::string& word) {
  std::error_code ignored;
  return word.starts_with("hf:") || word.ends_with(".gguf") || find_packaged(word) != nullptr ||
         std::filesystem::exists(word, ignored);
}

std::string served_name(const std::string& typed) {
  if (typed == "default") return std::string(kDefaultModel);
  std::error_code ignored;
  if (!std::filesystem::exists(typed, ignored)) return typed;
  const std::filesystem::path path(typed);
  return (path.has_filename() ? path : path.parent_path()).stem().string();  // of a folder, maybe with a slash
}

NamedModel named_model(const std::string& text) {
  const size_t at = text.find('=');
  std::error_code ignored;
  if (at == std::string::npos || std::filesystem::exists(text, ignored)) return {served_name(text), text};
  return {text.substr(0, at), text.substr(at + 1)};
}

Result<std::string> text_of_file(const std::string& file) {
  std::ostringstream out;
  if (file == "-") {
    out << std::cin.rdbuf();
    return std::move(out).str();
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return not_found("the text file " + file + " cannot be read");
  out << in.rdbuf();
  return std::move(out).str();
}

int fail(const Error& error, int exit_code) {
  std::string sentence = error.message;
  if (sentence.empty() || std::string_view(".!?").find(sentence.back()) == std::string_view::npos) sentence += '.';
  std::fprintf(stderr, "error: %s\n", sentence.c_str());
  return exit_code;
}

}  // namespace ibid::cli
