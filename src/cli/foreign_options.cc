// Flags that people bring from llama.cpp. What they ask for is taken where it is so here, and refused by name with the
// reason where it is not: a flag that is read as another, or ignored, would measure and serve what nobody asked for.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/quoted.h"
#include "cli/command_line.h"

namespace ibid::cli {
namespace {

struct Foreign {
  const char* names;
  const char* taken;   // values that ask for what is so, each between blanks
  const char* reason;  // why others are refused
};

constexpr Foreign kForeign[] = {
    {"--n-gpu-layers,--gpu-layers", " 0 ", "models run on the CPU here; 0 would do"},
    {"--flash-attn", " 1 on auto ", "attention keeps no matrix of scores here, ever; 1, on or auto would do"},
    {"--no-kv-offload", " 0 1 ", "keys and values lie in main memory; 0 or 1 would do"},
    {"--no-op-offload", " 0 1 ", "all ops run on the CPU; 0 or 1 would do"},
    {"--split-mode", " none ", "there are no several GPUs to split a model over; none would do"},
    {"--main-gpu", " 0 ", "models run on the CPU here; 0 would do"},
    {"--tensor-split", " 0 ", "there are no several GPUs to split a model over; leave it out"},
    {"--override-tensor", "", "all tensors lie in main memory; leave it out"},
    {"--cpu-moe", "", "experts run on the CPU anyway; leave it out"},
    {"--n-cpu-moe", " 0 ", "experts run on the CPU anyway; 0 would do"},
    {"--device", " none ", "models run on the CPU here; none would do"},
    {"--rpc", "", "a model runs on one machine here; leave it out"},
    {"--mmap", " 1 ", "files are always mapped; 1 would do"},
    {"--direct-io", " 0 ", "files are always mapped; 0 would do"},
    {"--embeddings", " 0 ", "vectors of texts are made by 'ibid serve'; 0 would do"},
    {"--poll", " 0 50 ", "threads wait as they do; 0 or 50, llama.cpp's own, would do"},
    {"--cpu-mask", " 0x0 ", "taskset says on which cores a process runs"},
    {"--cpu-strict", " 0 ", "threads have no cores of their own; 0 would do"},
    {"--prio", " 0 ", "nice and chrt say how a process runs; 0 would do"},
    {"--threads-batch", "", "-t is for prompts and answers alike"},
    {"--parallel", "", "'ibid serve --max-sequences N' says how many run at once"},
    {"--cont-batching", " 1 ", "sequences always run together as they come; 1 would do, or nothing"},
    {"--batch-size", "", "'ibid serve --max-tokens-per-step N' bounds a step"},
    {"--ubatch-size", "", "'ibid serve --max-tokens-per-step N' bounds a step"},
    {"--hf-repo", "", "hf:user/repo:FILE as MODEL is fetched from the hub"},
    {"--hf-file", "", "hf:user/repo:FILE as MODEL is fetched from the hub"},
    {"--model-draft", "", "--spec draft:MODEL has a draft model"},
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
              return is_taken ? std::string() : name + ": " + in_quotes(value) + " is not taken: " + f.reason;
            },
            ""));
  }
  if (command->get_option_no_throw("--cache-type-k") != nullptr) return;
  auto types = std::make_shared<std::vector<std::string>>(2);
  for (size_t i = 0; i < 2; ++i) {
    command
        ->add_option_function<std::string>(
            i == 0 ? "--cache-type-k" : "--cache-type-v",
            [&o, types, i](const std::string& name) {
              (*types)[i] = name;
              const std::string& other = (*types)[1 - i];
              if (!other.empty() && other != name)
                throw CLI::ValidationError("--cache-type-k " + (*types)[0] + " and --cache-type-v " + (*types)[1] +
                                           ": keys and values have one type here, as --kv-dtype says");
              o.kv_dtype = *dtype_from_name(name);
            })
        ->group("")
        ->check(CLI::Validator(kv_dtype_fault, ""));
  }
}

std::string kv_dtype_fault(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  const bool is_known = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  return is_known ? "" : in_quotes(name) + " is no type of keys and values here: f32, f16 or bf16 would do";
}

}  // namespace ibid::cli
