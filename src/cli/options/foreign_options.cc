// Flags that people bring from llama.cpp. What they ask for is accepted if ibid has it, and refused by name with the
// reason if not: a flag read as another one, or ignored, would measure and serve something else.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/quoted.h"
#include "cli/options/command_line.h"
#include "kernels/kv_types.h"

namespace ibid::cli {
namespace {

struct Foreign {
  const char* names;
  const char* taken;   // values that ask for what is so, each between blanks
  const char* reason;  // why others are refused
};

constexpr Foreign kForeign[] = {
    {"--n-gpu-layers,--gpu-layers", " 0 ", "models run on the CPU; expected 0"},
    {"--flash-attn", " 1 on auto ", "attention never stores a matrix of scores; expected 1, on or auto"},
    {"--no-kv-offload", " 0 1 ", "the KV cache is in main memory; expected 0 or 1"},
    {"--no-op-offload", " 0 1 ", "all ops run on the CPU; expected 0 or 1"},
    {"--split-mode", " none ", "there are no GPUs to split a model over; expected none"},
    {"--main-gpu", " 0 ", "models run on the CPU; expected 0"},
    {"--tensor-split", " 0 ", "there are no GPUs to split a model over; remove it"},
    {"--override-tensor", "", "all tensors are in main memory; remove it"},
    {"--cpu-moe", "", "experts run on the CPU anyway; remove it"},
    {"--n-cpu-moe", " 0 ", "experts run on the CPU anyway; expected 0"},
    {"--device", " none ", "models run on the CPU; expected none"},
    {"--rpc", "", "a model runs on one machine; remove it"},
    {"--mmap", " 1 ", "files are always mapped; expected 1"},
    {"--direct-io", " 0 ", "files are always mapped; expected 0"},
    {"--embeddings", " 0 ", "'ibid serve' computes embeddings; expected 0"},
    {"--poll", " 0 50 ", "polling is fixed; expected 0 or 50 (llama.cpp's default)"},
    {"--cpu-mask", " 0x0 ", "use taskset to choose cores"},
    {"--cpu-strict", " 0 ", "threads are not pinned; expected 0"},
    {"--prio", " 0 ", "use nice and chrt; expected 0"},
    {"--threads-batch", "", "-t sets the threads of prefill and decode"},
    {"--parallel", "", "use 'ibid serve --max-sequences N'"},
    {"--cont-batching", " 1 ", "batching is always continuous; expected 1, or no value"},
    {"--batch-size", "", "use 'ibid serve --max-tokens-per-step N'"},
    {"--ubatch-size", "", "use 'ibid serve --max-tokens-per-step N'"},
    {"--hf-repo", "", "use hf:user/repo:FILE as MODEL"},
    {"--hf-file", "", "use hf:user/repo:FILE as MODEL"},
    {"--model-draft", "", "use --spec draft:MODEL"},
};

// A flag of the command's own wins.
bool has_any(const CLI::App* command, const std::string& names) {
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    if (command->get_option_no_throw(names.substr(at, end - at)) != nullptr) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

void add_foreign_options(CLI::App* command, ModelArgs& o) {
  for (const Foreign& f : kForeign) {
    if (has_any(command, f.names)) continue;
    const std::string name = std::string(f.names).substr(0, std::string(f.names).find(','));
    command->add_option_function<std::string>(f.names, [](const std::string&) {})
        ->expected(0, 1)
        ->group("")
        ->check(CLI::Validator(
            [&f, name](std::string value) {
              if (value.empty() || value == "true") value = "1";  // it stands alone
              const bool is_taken = std::string(f.taken).find(" " + value + " ") != std::string::npos;
              return is_taken ? std::string() : name + ": " + in_quotes(value) + " is not supported: " + f.reason;
            },
            ""));
  }
  if (command->get_option_no_throw("--cache-type-k") != nullptr) return;
  auto types = std::make_shared<std::array<std::optional<KvTypes>, 2>>();
  for (size_t i = 0; i < 2; ++i) {
    command
        ->add_option_function<std::string>(
            i == 0 ? "--cache-type-k" : "--cache-type-v",
            [&o, types, i](const std::string& name) {
              (*types)[i] = *kv_types_from_name(name);  // one flag alone is of both
              o.own_kv_dtype = false;
              o.kv_dtype = {(*types)[0].value_or(*(*types)[i]).key, (*types)[1].value_or(*(*types)[i]).value};
            })
        ->group("")
        ->check(CLI::Validator(kv_dtype_fault, ""));
  }
}

std::string kv_dtype_fault(const std::string& name) {
  return kv_types_from_name(name) ? "" : "unknown value " + in_quotes(name) + "; expected " + std::string(kKvTypeNames);
}

}  // namespace ibid::cli
