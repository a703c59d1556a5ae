// The flags of `ibid bench`: llama-bench's, and ours.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/quoted.h"
#include "cli/options/bench_lists.h"
#include "cli/options/command_line.h"

namespace ibid::cli {
namespace {

// An option of a list, as llama-bench has it: each use adds to those before, and the first takes the default's place.
template <typename T, typename Read>
CLI::Option* add_list(CLI::App* c, const char* name, std::vector<T>& values, const char* unit, std::string default_text,
                      const char* help, Read read) {
  const auto check = [read](const std::string& text) {
    const auto got = read(text);
    return got ? std::string() : got.error().message;
  };
  return c
      ->add_option_function<std::vector<std::string>>(
          name,
          [&values, read](const std::vector<std::string>& texts) {
            values.clear();
            for (const std::string& text : texts) {
              const auto more = *read(text);
              values.insert(values.end(), more.begin(), more.end());
            }
          },
          help)
      ->allow_extra_args(false)
      ->check(CLI::Validator(check, ""))
      ->type_name(unit)
      ->default_str(std::move(default_text));
}

CLI::Option* add_counts(CLI::App* c, const char* name, std::vector<int32_t>& values, int64_t min, int64_t max,
                        std::string default_text, const char* help) {
  return add_list(c, name, values, "N,..", std::move(default_text), help,
                  [min, max](std::string_view text) { return read_counts(text, min, max); });
}

Result<std::vector<std::string>> read_models(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    out.emplace_back(text.substr(at, end - at));
    if (out.back().empty()) return invalid(in_quotes(text) + " names no model between two commas");
    at = end + 1;
  }
  return out;
}

Result<std::vector<KvTypes>> read_kv_dtypes(std::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, read_models(text));
  std::vector<KvTypes> out;
  for (const std::string& name : names) {
    if (const std::string fault = kv_dtype_fault(name); !fault.empty()) return invalid(fault);
    out.push_back(*kv_types_from_name(name));
  }
  return out;
}

constexpr int64_t kMostTokens = 1 << 24;

void add_tests(CLI::App* c, BenchOptions& b) {
  add_counts(c, "-p,--n-prompt", b.n_prompt, 0, kMostTokens, "512", "tokens of prefill; 0: none");
  add_counts(c, "-n,--n-gen", b.n_gen, 0, kMostTokens, "128", "tokens of decode; 0: none");
  add_list(c, "--prompt-gen", b.prompt_gen, "N,N", "none", "prefill followed by decode, timed together; also -pg",
           [](std::string_view text) -> Result<std::vector<std::pair<int32_t, int32_t>>> {
             const auto pair = read_counts(text, 1, kMostTokens);
             if (!pair || pair->size() != 2)
               return invalid("invalid value '" + std::string(text) + "'; expected PROMPT,ANSWER, as 512,128");
             return std::vector<std::pair<int32_t, int32_t>>{{(*pair)[0], (*pair)[1]}};
           });
  add_counts(c, "-d,--n-depth", b.depths, 0, kMostTokens, "0", "tokens in the cache before each test");
  add_counts(c, "--streams", b.streams, 1, 4096, "1", "batched decode of N sequences; of 128 tokens each with -n 0");
  add_counts(c, "-t,--threads", b.threads, 0, 4096, "0", "threads; 0: the available cores (affinity, cgroup)");
  add_counts(c, "-b,--batch-size", b.n_batch, 1, 65536, "2048", "prompt tokens per step, limited by --ubatch-size");
  add_counts(c, "--ubatch-size", b.n_ubatch, 1, 65536, "512", "the same; the smaller one counts; also -ub");
  const auto types = [&](const char* name, const char* help) {
    return add_list(c, name, b.kv_dtypes, "TYPE,..", "f16", help, read_kv_dtypes);
  };
  types("--cache-type-k", "type of keys, and of both if alone: f32, f16, bf16, i8, i4; also -ctk");
  auto of_values = std::make_shared<std::vector<KvTypes>>();
  add_list(c, "--cache-type-v", *of_values, "TYPE,..", "as --cache-type-k",
           "type of values, each with each of --cache-type-k; also -ctv", read_kv_dtypes);
  // Read after all flags, whatever their order.
  c->parse_complete_callback([&b, of_values] {
    if (of_values->empty()) return;
    const std::vector<KvTypes> of_keys = b.kv_dtypes.empty() ? *of_values : b.kv_dtypes;
    b.kv_dtypes.clear();
    for (const KvTypes& keys : of_keys) {
      for (const KvTypes& values : *of_values) b.kv_dtypes.emplace_back(keys.key, values.value);
    }
  });
  add_whole(c, "-r,--repetitions", b.repeats, 1, 1000, "measured runs per test");
  c->add_flag("!--no-warmup", b.warms_up, "no warm-up run");
  c->add_option("-o,--output", b.output, "md, json, jsonl or csv; llama-bench's keys and columns first")
      ->capture_default_str()
      ->check(CLI::IsMember({"md", "json", "jsonl", "csv"}));
}

}  // namespace

CLI::App* add_bench(CLI::App& app, BenchOptions& b, int& exit_code) {
  CLI::App* c = app.add_subcommand("bench", "measure prefill and decode, with llama-bench's flags");
  add_positional_model(c, b.model.model);
  add_list(c, "-m,--model", b.models, "MODEL,..", b.model.model, "the same as MODEL; several are measured in turns",
           read_models)
      ->excludes("MODEL");
  add_tests(c, b);
  add_machine_options(c, b.model);
  add_foreign_options(c, b.model);
  add_lora_option(c, b.model.adapters, "adapter of low rank; several are of the streams in turn");
  add_spec_options(c, b.spec);
  c->add_option("--prompts", b.prompts,
                "with --spec: file of prompts to answer with -n tokens each; default: five of ibid's")
      ->type_name("FILE");
  add_read(c, "--temp", b.temperature, "T", "0", "with --spec: temperature of the answers",
           [](std::string_view text) { return read_seconds(text, 0, 100); });
  c->add_flag("--profile", b.profile, "one more run per test: time of each op beside the machine's limits");
  c->add_option("--trace", b.trace, "write that run's ops for a trace viewer (Perfetto)")->type_name("FILE");
  c->footer(
      "Lists are comma-separated numbers and ranges: 1,2,4-8, 8-32+8, 128-1024*2. GPU flags of llama-bench are "
      "accepted "
      "with\nvalues that match a CPU (-ngl 0, -fa 1, -mmp 1), and refused otherwise.\n"
      "Examples:\n  ibid bench\n  ibid bench -m model.gguf -p 512 -n 128 -t 1,2 -r 5 -o json\n"
      "  ibid bench -m model.gguf -pg 512,128 -ctk bf16 -o jsonl\n  ibid bench --streams 1,8,32");
  c->callback([&exit_code, &b, c] {
    if (c->get_subcommands().empty()) exit_code = bench(b);
  });
  return c;
}

}  // namespace ibid::cli
