// What the files that know the parser share: options.cc, which has the commands, and serve_options.cc, which has the
// longest of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/options/flag_values.h"
#include "cli/options/options.h"
#include "model/adapters.h"

namespace ibid::cli {

inline constexpr const char* kModelHelp =
    "alias (ibid models), .gguf file, folder with *.safetensors, or hf:user/repo[:FILE|TAG]";

// Throws a CLI::ValidationError where a variable of the environment that a flag of `command` falls back on is empty.
void check_variables(const CLI::App& command);

template <typename Options>
void on_parse(CLI::App* command, int& exit_code, Options& options, int (*body)(const Options&)) {
  command->callback([command, &exit_code, &options, body] {
    check_variables(*command);
    exit_code = body(options);
  });
}

// An empty value, as an unset variable of a shell gives it, would be taken for no flag, and many flags protect
// something. So would the next flag be taken for the value where the variable stands without quotes. Both are refused
// from now on: of all flags of `command`, or of those with a name of a file alone, where others may have any text.
enum class Refusing { kAll, kPaths };
void refuse_empty_values(CLI::App* command, Refusing what);
// "--flag=" among the words, whose value the parser would take from the next one; empty: none.
std::string flag_without_value(int argc, const char* const* argv);

// MODEL, and the same as -m.
void add_model(CLI::App* command, std::string& model);
void add_positional_model(CLI::App* command, std::string& model);
CLI::Option* add_named_model(CLI::App* command, std::string& model);
void add_threads(CLI::App* command, ModelArgs& options);
// --ctx, --memory, --kv-dtype, --cpu-isa and their like.
void add_machine_options(CLI::App* command, ModelArgs& options);
// All of these.
void add_model_options(CLI::App* command, ModelArgs& options);
// llama.cpp's flags for what is always or never so here: taken where they ask for what there is, else refused by name.
void add_foreign_options(CLI::App* command, ModelArgs& options);
// What is wrong with a name of a type of keys and values; empty: nothing.
std::string kv_dtype_fault(const std::string& name);
CLI::App* add_bench(CLI::App& app, BenchOptions& options, int& exit_code);
// --lora, which may come again; --lora-modules; --enable-lora, --lora-updates, --max-loras, --max-lora-rank,
// --lora-memory.
// `named`: gets the name that the adapter has then.
void add_lora_option(CLI::App* command, AdapterArgs& options, const char* help, std::string* named = nullptr);
void add_lora_modules(CLI::App* command, AdapterArgs& options);
void add_lora_limits(CLI::App* command, AdapterArgs& options, bool& lora_updates);
void add_picture_options(CLI::App* command, host::PictureArgs& options);
// --cache-host-bytes, --cache-disk, --cache-disk-bytes.
void add_tier_options(CLI::App* command, TierArgs& options);
// --spec, --spec-k, --spec-own-answers.
void add_spec_options(CLI::App* command, SpecArgs& options);
// ibid spec build-store and ibid spec find-layers.
void add_spec_commands(CLI::App& app, BuildStoreOptions& store, FindLayersOptions& layers, int& exit_code);
void add_serve_options(CLI::App* command, ServeOptions& options);
// A flag for each field of the API that controls how tokens are chosen: those that may have a default, or all, with the
// stops.
enum class SamplingScope { kDefaults, kAll };
void add_sampling_options(CLI::App* command, SamplingFlags& flags, SamplingScope scope);

// An option whose text `read` turns into a value, or into an error that names valid values. Its default is what `value`
// holds now, shown as `default_text`.
template <typename Value, typename Read>
CLI::Option* add_read(CLI::App* command, const char* name, Value& value, const char* unit, std::string default_text,
                      const char* help, Read read) {
  const auto check = [read](const std::string& text) {
    const auto got = read(text);
    return got ? std::string() : got.error().message;
  };
  return command
      ->add_option_function<std::string>(
          name, [&value, read](const std::string& text) { value = static_cast<Value>(*read(text)); }, help)
      ->check(CLI::Validator(check, ""))
      ->type_name(unit)
      ->default_str(std::move(default_text));
}

template <typename Int>
CLI::Option* add_whole(CLI::App* command, const char* name, Int& value, int64_t min, int64_t max, const char* help) {
  return add_read(command, name, value, "N", std::to_string(value), help,
                  [min, max](std::string_view text) { return read_whole(text, min, max); });
}

inline CLI::Option* add_bytes(CLI::App* command, const char* name, int64_t& value, int64_t min, int64_t max,
                              const char* help) {
  return add_read(command, name, value, "BYTES", bytes_text(value), help,
                  [min, max](std::string_view text) { return read_bytes(text, min, max); });
}

inline CLI::Option* add_seconds(CLI::App* command, const char* name, double& value, double min, double max,
                                const char* help) {
  return add_read(command, name, value, "SECONDS", seconds_text(value), help,
                  [min, max](std::string_view text) { return read_seconds(text, min, max); });
}

}  // namespace ibid::cli
