#include "cli/options/options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/caught.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "cli/options/command_line.h"
#include "cli/options/command_words.h"
#include "cli/options/file_options.h"
#include "cli/options/help.h"
#include "cli/options/model_names.h"
#include "cli/terminal/exit_code.h"
#include "format/type_rules.h"
#include "kernels/arithmetic_version.h"

namespace ibid::cli {
namespace {

Result<double> read_up_to(std::string_view text, int most) {
  double value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = wrong == std::errc() && end == text.data() + text.size();
  if (is_number && value >= 0 && value <= most) return value;
  return invalid("expected a number from 0 to " + std::to_string(most));
}

constexpr const char* kIsas =
    "baseline, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, neon, neon_dotprod or neon_i8mm";
std::string check_isa(const std::string& name) {
  return isa_from_name(name) ? "" : "unknown value '" + name + "'; expected " + kIsas;
}

bool is_auto(const std::string& kv_dtype) { return kv_dtype == "auto" || kv_dtype == "AUTO"; }

// The positional words of a command whose first is MODEL, unless -m has named that.
struct Words {
  std::string first;
  std::vector<std::string> rest;
  const CLI::Option *first_option = nullptr, *named_option = nullptr;

  // The model goes into `model`; what is left is returned. `is_no_model`: of a word that stands alone, and may be
  // something else than a model.
  std::vector<std::string> settle(std::string& model, bool (*is_no_model)(const std::string&)) const {
    std::vector<std::string> out;
    const bool is_alone = rest.empty() && is_no_model(first);
    if (first_option->count() > 0) {
      named_option->count() > 0 || is_alone ? out.push_back(first) : static_cast<void>(model = first);
    }
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  }
};

std::shared_ptr<Words> add_words(CLI::App* command, std::string& model, const char* name, const char* help) {
  auto words = std::make_shared<Words>();
  words->first_option = command->add_option("MODEL", words->first, kModelHelp)->default_str(model);
  words->named_option = add_named_model(command, model);
  command->add_option(name, words->rest, help)->type_name(" ");
  return words;
}

bool never(const std::string&) { return false; }
bool is_json_file(const std::string& word) { return word.ends_with(".json"); }
bool names_no_model(const std::string& word) { return !is_model_name(word); }

// Words with a blank between them, as a shell has taken them apart.
std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

struct All {
  RunOptions run;
  ServeOptions serve;
  HealthOptions health;
  ReplayOptions replay;
  InspectOptions inspect;
  PullOptions pull;
  PullOptions verify;
  PullOptions remove;
  ConvertOptions convert;
  ImatrixOptions imatrix;
  QuantizeOptions quantize;
  PerplexityOptions perplexity;
  BuildStoreOptions build_store;
  FindLayersOptions find_layers;
  BenchOptions bench;
  CacheBenchOptions bench_cache;
  PlanOptions plan;
  TokenizeOptions tokenize;
  DetokenizeOptions detokenize;
  TemplateOptions apply_template;
};

void add_run(CLI::App& app, RunOptions& o, int& exit_code) {
  CLI::App* c = app.add_subcommand("run", "chat with a model in the terminal, or answer one prompt");
  const auto words = add_words(c, o.model.model, "PROMPT", "answer this prompt and exit, as -p");
  add_threads(c, o.model);
  add_machine_options(c, o.model);
  add_foreign_options(c, o.model);
  add_tier_options(c, o.tiers);
  add_spec_options(c, o.spec);
  add_lora_option(c, o.model.adapters, "adapter of low rank: a PEFT folder or a GGUF file");
  c->add_option("-p,--prompt", o.prompt, "answer this prompt and exit; standard input is appended to it");
  c->add_option("-s,--system", o.system, "system message");
  c->add_option("-n,--max-tokens,--n-predict", o.max_tokens, "maximum tokens of an answer; -1: up to the context");
  c->add_option("--seed", o.seed, "the same seed gives the same answer; default: random, shown by --stats");
  c->add_option("--tools", o.tools, "functions that the model may call (JSON); you type their results")
      ->type_name("FILE");
  c->add_option("--json-schema", o.json_schema, "constrain the answer to this JSON Schema")->type_name("JSON|FILE");
  c->add_option("--history", o.history, "load the conversation from this file, and save it there")->type_name("FILE");
  c->add_flag("!--no-history,!--nohistory", o.keeps_lines,
              "do not save typed lines; IBID_HISTFILE sets the file (empty: none)");
  c->add_option("--image", o.images, "picture (PNG, JPEG, WebP) that is shown before the first question; repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE");
  add_picture_options(c, o.model.pictures);
  c->add_flag("--raw", o.raw, "continue the text of -p without a chat template");
  c->add_flag("--stats", o.stats, "show time to first token and tokens per second");
  c->option_defaults()->group("Sampling (default: the model file's value, else the one shown)");
  add_sampling_options(c, o.sampling, SamplingScope::kAll);
  c->footer(
      "Examples:\n  ibid run\n  ibid run default \"Why is the sky blue?\" --temp 0 -n 100\n"
      "  ibid run model.gguf --raw -p \"Once upon a time\"\n  ibid run -p \"Summarise:\" < text.txt\n"
      "  ibid run MODEL --image cat.png \"What is it?\"");
  c->callback([&exit_code, &o, words, c] {
    check_variables(*c);
    const std::vector<std::string> prompt = words->settle(o.model.model, never);
    if (!prompt.empty() && o.prompt) throw CLI::ValidationError("There are two prompts: PROMPT and -p");
    if (!prompt.empty()) o.prompt = joined(prompt);
    exit_code = run(o);
  });
}

void add_replay(CLI::App& app, ReplayOptions& o, int& exit_code) {
  CLI::App* c = app.add_subcommand("replay", "run a recording of ibid serve --record again, step for step");
  c->add_option("FILE", o.file, "the recording")->required();
  c->add_option("-m,--model", o.model.model,
                "compute tokens with this model instead of reading them from the recording")
      ->type_name("MODEL")
      ->each([&o](const std::string&) { o.with_model = true; });
  add_whole(c, "-t,--threads", o.model.threads, 0, 4096, "threads; 0: the available cores (affinity, cgroup)");
  add_lora_modules(c, o.model.adapters);
  add_whole(c, "--request", o.request, 0, INT64_MAX, "show the timeline of the request with this number; 0: of none");
  c->add_option("--svg", o.svg, "write the timeline as SVG")->type_name("FILE")->needs("--request");
  c->footer(
      "Examples:\n  ibid replay server.rec\n  ibid replay server.rec --model default\n"
      "  ibid replay server.rec --request 17 --svg life.svg");
  on_parse(c, exit_code, o, replay);
}

void add_serve(CLI::App& app, ServeOptions& o, int& exit_code) {
  CLI::App* c = app.add_subcommand("serve", "serve a model over an OpenAI-compatible HTTP API, with a web page");
  add_serve_options(c, o);
  on_parse(c, exit_code, o, serve);
}

void add_health(CLI::App& app, HealthOptions& o, int& exit_code) {
  CLI::App* c = app.add_subcommand("health", "ask a server whether it is ready; exit code 0 if so");
  c->add_option("URL", o.url, "address of the server")->capture_default_str();
  add_whole(c, "--timeout", o.timeout_s, 1, 3600, "seconds without an answer that make it fail");
  c->footer("Example:\n  ibid health http://127.0.0.1:8080");
  on_parse(c, exit_code, o, health);
}

void add_files(CLI::App& app, All& all, int& exit_code) {
  CLI::App* c = app.add_subcommand("inspect", "show a model file: architecture, tensors, vocabulary, template");
  add_model(c, all.inspect.model);
  c->add_flag("--tensors", all.inspect.tensors, "list all tensors with type, shape and bytes");
  c->add_flag("--samplers", all.inspect.samplers, "list the sampling stages in order");
  on_parse(c, exit_code, all.inspect, inspect);

  c = app.add_subcommand("pull", "download a model");
  add_model(c, all.pull.model);
  on_parse(c, exit_code, all.pull, pull);

  c = app.add_subcommand("verify", "check a model file and its packed copy for corruption");
  add_model(c, all.verify.model);
  on_parse(c, exit_code, all.verify, verify);

  const auto known_mix = [](std::string_view name) -> Result<std::string> {
    if (quant_mix_from_name(name)) return std::string(name);
    return invalid("unknown value '" + std::string(name) + "'; expected " + quant_mix_names());
  };
  ConvertOptions& v = all.convert;
  c = app.add_subcommand("convert", "write the model of a safetensors folder as one GGUF file");
  c->add_option("IN", v.in, "folder with config.json, tokenizer.json and *.safetensors, or hf:user/repo")->required();
  c->add_option("-o,--outfile", v.out, "file to write")->type_name("FILE");
  add_read(c, "--type,--outtype", v.type, "TYPE", v.type,
           "type of the matrices, as in ibid quantize; auto: f16 of F16, else bf16, quantized ones as they are",
           [known_mix](std::string_view name) -> Result<std::string> {
             return name == "auto" ? Result<std::string>(std::string(name)) : known_mix(name);
           });
  add_bytes(c, "--split-max-size", v.split_max_bytes, 0, INT64_MAX, "several files of at most so much; 0: one file");
  c->add_flag("--dry-run", v.dry_run, "show types and sizes, write nothing");
  add_whole(c, "-t,--threads", v.threads, 0, 4096, "threads; 0: the available cores (affinity, cgroup)");
  c->add_flag("--force", v.force, "overwrite an existing file");
  c->footer("Example:\n  ibid convert Qwen3-0.6B -o qwen3-0.6b.gguf --type bf16");
  on_parse(c, exit_code, v, convert);

  QuantizeOptions& q = all.quantize;
  c = app.add_subcommand("quantize", "quantize a model to a GGUF file or a folder");
  c->add_option("IN", q.in, ".gguf file, folder, alias (ibid models), or hf:user/repo:FILE")->required();
  c->add_option("OUT", q.out, "file to write; with w4a16, w8a16 and w8a8 a folder");
  add_read(c, "--type,TYPE", q.type, "TYPE", q.type,
           "type of the matrices, as llama.cpp names mixtures; w4a16, w8a16, w8a8: a compressed-tensors folder",
           [known_mix](std::string_view name) -> Result<std::string> {
             if (folder_bits(name) > 0) return std::string(name);
             const auto known = known_mix(name);
             return known ? known : invalid(known.error().message + ", w4a16, w8a16, w8a8");
           });
  add_whole(c, "-t,--threads,THREADS", q.threads, 0, 4096, "threads; 0: the available cores (affinity, cgroup)");
  const auto target = [](std::string_view name) -> Result<std::string> {
    const auto dtype = read_target_type(name);
    return dtype ? Result<std::string>(std::string(name)) : dtype.error();
  };
  c->add_option("--tensor-type", q.tensor_types, "type of the tensors whose names match; the first match counts")
      ->type_name("REGEX=TYPE")
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](const std::string& text) {
            const auto named = read_named_type(text);
            return named ? std::string() : named.error().message;
          },
          ""));
  add_read(c, "--output-tensor-type", q.output_type, "TYPE", "", "type of output.weight, and of a tied embedding",
           target);
  add_read(c, "--token-embedding-type", q.embedding_type, "TYPE", "", "type of the token embeddings", target);
  c->add_flag("--pure", q.is_pure, "one type for all matrices, no mixture");
  c->add_flag("--leave-output-tensor", q.leaves_output, "keep the type of output.weight");
  c->add_flag("--allow-requantize", q.requantises, "quantize again what is quantized already");
  c->add_flag("--dry-run", q.dry_run, "show types and sizes, write nothing");
  c->add_flag("--keep-split", q.keep_split, "write as many files as IN has");
  add_bytes(c, "--split-max-size", q.split_max_bytes, 0, INT64_MAX, "several files of at most so much; 0: one file");
  add_whole(c, "--kv-heads", q.kv_heads, 0, 4096, "average key and value heads into N groups; 0: keep them");
  c->add_flag("--force", q.force, "overwrite an existing file");
  c->add_option("--imatrix", q.imatrix, "weigh errors by this file of ibid imatrix")->type_name("FILE");
  c->add_option("--lora", q.adapters, "merge this adapter into the weights; repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false);
  c->add_option("--lora-scaled", q.scaled_adapters, "merge this adapter times SCALE; repeatable")
      ->type_name("PATH:SCALE")
      ->allow_extra_args(false);
  add_whole(c, "--group-size", q.group_len, 32, 1 << 20, "of folders: inputs that share a scale, a multiple of 32");
  add_read(c, "--search", q.search, "none|gptq|awq|smoothquant", q.search,
           "of folders: how codes are found, by a text's inputs", [](std::string_view name) -> Result<std::string> {
             for (const char* known : {"none", "gptq", "awq", "smoothquant"}) {
               if (name == known) return std::string(name);
             }
             return invalid("unknown value '" + std::string(name) + "'; expected none, gptq, awq or smoothquant");
           });
  c->add_option("-f,--file", q.file, "the text of a search ('-': standard input)")->type_name("FILE");
  add_whole(c, "--chunk-size", q.chunk_len, 2, 1 << 20, "tokens of a chunk of the text");
  add_whole(c, "--chunks", q.n_chunks, 0, 1 << 24, "use only the first N chunks; 0: all");
  add_read(c, "--damp", q.damp, "X", "0.01", "of gptq: this share of the inputs' mean square is added to each",
           [](std::string_view text) { return read_up_to(text, 100); });
  add_read(c, "--smoothing", q.smoothing, "X", "0.5", "of smoothquant: how much of the inputs' range weights take",
           [](std::string_view text) { return read_up_to(text, 1); });
  c->add_flag("--act-order", q.act_order, "of gptq: inputs with large squares first");
  c->footer(
      "Example:\n  ibid quantize model-f16.gguf model-q4_k_m.gguf --type q4_k_m\n"
      "  ibid quantize model-f16.gguf merged-q8_0.gguf q8_0 --lora adapter\n"
      "  ibid quantize Qwen3-0.6B out.gguf q5_k_m --tensor-type attn_v=q8_0 --dry-run\n"
      "  ibid quantize Qwen3-0.6B Qwen3-0.6B-W4A16 w4a16 --search gptq -f text.txt");
  on_parse(c, exit_code, q, quantize);

  ImatrixOptions& i = all.imatrix;
  c = app.add_subcommand("imatrix", "measure how much a model's inputs matter, for ibid quantize");
  add_model_options(c, i.model);
  c->add_option("-f,--file", i.file, "the text ('-': standard input)")->type_name("FILE")->required();
  c->add_option("-o,--output-file", i.out, "file to write (GGUF)")->type_name("FILE")->required();
  c->add_option("--in-file", i.in_files, "add the sums of this file of earlier runs")
      ->type_name("FILE")
      ->allow_extra_args(false);
  add_whole(c, "--chunk-size", i.chunk_len, 2, 1 << 20, "tokens of a chunk");
  add_whole(c, "--chunks", i.n_chunks, 0, 1 << 24, "use only the first N chunks; 0: all");
  c->add_flag("--process-output", i.with_output, "sum the inputs of output.weight too");
  c->add_flag("--force", i.force, "overwrite an existing file");
  c->footer("Example:\n  ibid imatrix -m model-f16.gguf -f text.txt -o imatrix.gguf");
  on_parse(c, exit_code, i, imatrix);

  add_spec_commands(app, all.build_store, all.find_layers, exit_code);

  c = app.add_subcommand("models", "list local models");
  c->alias("list")->alias("ls");
  c->callback([&exit_code] { exit_code = list_models(); });

  c = app.add_subcommand("rm", "delete a downloaded model");
  c->add_option("MODEL", all.remove.model, "name, as in ibid models")->required();
  on_parse(c, exit_code, all.remove, remove_model);
}

void add_text(CLI::App& app, All& all, int& exit_code) {
  CLI::App* c = app.add_subcommand("tokenize", "print the token ids of a text");
  TokenizeOptions& t = all.tokenize;
  auto words = add_words(c, t.model, "TEXT", "text; default: -f, else standard input");
  c->add_option("-f,--file", t.file, "file of the text; -: standard input")->type_name("FILE");
  c->add_flag("--special", t.special, "parse special tokens in the text");
  c->add_flag("--bos", t.bos, "add the model's BOS and EOS");
  c->add_flag("--pieces", t.pieces, "show the pieces, in color on a terminal");
  c->footer("Examples:\n  echo 'Hello world' | ibid tokenize\n  ibid tokenize default 'Hello world' --pieces");
  c->callback([&exit_code, &t, words] {
    const std::vector<std::string> text = words->settle(t.model, names_no_model);
    if (!text.empty()) t.text = joined(text);
    exit_code = tokenize(t);
  });

  c = app.add_subcommand("detokenize", "print the text of token ids");
  DetokenizeOptions& d = all.detokenize;
  words = add_words(c, d.model, "IDS", "token ids; default: standard input");
  c->add_flag("--special", d.special, "show control tokens");
  c->footer("Example:\n  ibid detokenize default 19556 905");
  c->callback([&exit_code, &d, words] {
    const auto is_id = [](const std::string& word) { return read_whole(word, 0, INT32_MAX).ok(); };
    // No model is called like a number, but a file or folder may be.
    const bool all_ids = words->first_option->count() > 0 && is_id(words->first) && !is_model_name(words->first);
    std::vector<std::string> ids = words->settle(d.model, names_no_model);
    if (all_ids && words->named_option->count() == 0 && !words->rest.empty()) {
      d.model = DetokenizeOptions().model;
      ids.insert(ids.begin(), words->first);
    }
    if (!ids.empty()) d.ids = joined(ids);
    exit_code = detokenize(d);
  });

  c = app.add_subcommand("template", "print the prompt that the chat template makes of messages");
  TemplateOptions& p = all.apply_template;
  words = add_words(c, p.model, "MESSAGES",
                    "JSON file of messages, or of messages and tools; default: -f, else standard input");
  c->add_option("-f,--file", p.messages_file, "the same as MESSAGES")->type_name("FILE");
  c->add_flag("!--no-generation-prompt", p.generation_prompt, "do not open the assistant's turn");
  c->footer("Examples:\n  ibid template messages.json\n  ibid template model.gguf < messages.json");
  c->callback([&exit_code, &p, words] {
    const std::vector<std::string> file = words->settle(p.model, is_json_file);
    if (file.size() > 1)
      throw CLI::ValidationError("MESSAGES are one file, and " + std::to_string(file.size()) + " are named");
    if (!file.empty()) p.messages_file = file.front();
    exit_code = apply_template(p);
  });
}

void add_measures(CLI::App& app, All& all, int& exit_code) {
  PerplexityOptions& p = all.perplexity;
  CLI::App* c = app.add_subcommand("perplexity", "measure how well a model predicts a text");
  add_model_options(c, p.model);
  c->add_option("-f,--file", p.file, "the text ('-': standard input)")->type_name("FILE")->required();
  add_whole(c, "-n,--tokens", p.n_tokens, 0, 1 << 24, "use only the first N tokens; 0: all");
  add_whole(c, "--stride", p.stride, 0, 1 << 24,
            "tokens scored per window of a text longer than the context; 0: half the context");
  c->add_option("--base,--kl-divergence-base", p.base,
                "compare the predictions with those of this model (same vocabulary)")
      ->type_name("MODEL");
  c->add_option_function<std::string>(
       "--base-kv-dtype", [&p](const std::string& name) { p.base_kv_dtype = kv_types_from_name(name); },
       "type of the KV cache of --base; default: --kv-dtype")
      ->check(CLI::Validator(kv_dtype_fault, "DTYPE"));
  c->add_option("--dump", p.dump_file, "write the log-probabilities of one context, fp32 [positions, vocabulary]")
      ->type_name("FILE");
  c->add_option_function<std::string>(
       "--kernels", [&p](const std::string& name) { p.model.reference_kernels = name == "reference"; },
       "fast, or reference (each op in double precision, slow)")
      ->check(CLI::IsMember({"fast", "reference"}));
  c->footer("Example:\n  ibid perplexity model-q4_k_m.gguf -f text.txt --base model-f16.gguf");
  on_parse(c, exit_code, p, perplexity);

  c = add_bench(app, all.bench, exit_code);
  CacheBenchOptions& cache = all.bench_cache;
  c = c->add_subcommand("cache", "measure waste, sharing and cost of block lengths, without a model");
  c->add_option("--trace", cache.trace_file, "Azure's .csv or Mooncake's .jsonl; default: a synthetic workload")
      ->check(CLI::ExistingFile);
  add_whole(c, "--tokens", cache.n_tokens, 1 << 12, int64_t{1} << 30, "memory, in tokens");
  add_whole(c, "--streams", cache.n_streams, 1, 4096, "concurrent requests");
  add_whole(c, "-t,--threads", cache.n_threads, 0, 1024, "threads of attention; 0: all cores");
  on_parse(c, exit_code, cache, bench_cache);

  PlanOptions& plan_options = all.plan;
  c = app.add_subcommand("plan", "predict memory and speed of serving a model, without loading it");
  add_model_options(c, plan_options.serve.model);
  add_whole(c, "--max-sequences", plan_options.serve.max_sequences, 1, 4096, "maximum running sequences");
  add_whole(c, "--streams", plan_options.n_streams, 0, 4096, "streams to predict the speed of; 0: as many as fit");
  c->add_option("--devices", plan_options.devices,
                "memory of devices, as 2x80G,4x80G: whether weights and the KV cache of --streams fit")
      ->delimiter(',');
  c->add_flag("!--no-speed", plan_options.speed, "do not measure the speed");
  add_tier_options(c, plan_options.serve.tiers);
  add_spec_options(c, plan_options.serve.spec);
  c->add_option("--text", plan_options.text,
                "typical text to measure --spec on (-: standard input); default: five prompts of ibid's")
      ->type_name("FILE");
  add_read(c, "--temp", plan_options.temperature, "T", "0", "temperature for measuring --spec",
           [](std::string_view text) { return read_seconds(text, 0, 100); });
  c->footer("Example:\n  ibid plan model.gguf --memory 8G --streams 16 --ctx 4096");
  on_parse(c, exit_code, plan_options, plan);

  c = app.add_subcommand("selftest", "check ibid's arithmetic against published numbers");
  c->callback([&exit_code] { exit_code = selftest(); });
}

}  // namespace

void add_positional_model(CLI::App* command, std::string& model) {
  command->add_option("MODEL", model, kModelHelp)->capture_default_str();
}

CLI::Option* add_named_model(CLI::App* command, std::string& model) {
  return command->add_option("-m,--model", model, "the same as MODEL")->type_name("MODEL");
}

void add_model(CLI::App* command, std::string& model) {
  add_positional_model(command, model);
  add_named_model(command, model)->excludes("MODEL");
}

void add_threads(CLI::App* command, ModelArgs& o) {
  add_whole(command, "-t,--threads", o.threads, 0, 4096, "threads; 0: the available cores (affinity, cgroup)");
}

void add_model_options(CLI::App* command, ModelArgs& o) {
  add_model(command, o.model);
  add_threads(command, o);
  add_machine_options(command, o);
}

void add_machine_options(CLI::App* command, ModelArgs& o) {
  add_whole(command, "-c,--ctx,--ctx-size", o.context_len, 0, 1 << 24,
            "context length of a sequence; 0: the model's, at most 8192");
  add_read(command, "--memory", o.memory_bytes, "BYTES", "the machine's", "memory limit of the process, as 2G",
           [](std::string_view text) { return read_bytes(text, 1 << 20, int64_t{1} << 50); });
  command
      ->add_option_function<std::string>(
          "--kv-dtype",
          [&o](const std::string& name) {
            o.own_kv_dtype = is_auto(name);
            o.kv_dtype = kv_types_from_name(name).value_or(KvTypes());
          },
          "KV cache: auto (a folder's own), f32, f16, bf16, f8, i8, i8i4, i4 or KEYS:VALUES")
      ->check(CLI::Validator(
          [](const std::string& name) { return is_auto(name) ? std::string() : kv_dtype_fault(name); }, "DTYPE"));
  command
      ->add_option_function<std::string>(
          "--cpu-isa", [&o](const std::string& name) { o.isa = isa_from_name(name); },
          "instruction set; default: the best of this CPU. Answers are the same")
      ->check(CLI::Validator(check_isa, "ISA"));
  add_read(command, "--numa", o.numa, "POLICY", "system",
           "memory placement: system, spread (all nodes), or a node's number",
           [](std::string_view text) { return numa_policy_from(text); });
  command->add_flag("--keep-packed", o.keep_packed, "keep packed weights in the cache folder, for faster starts");
}

void add_tier_options(CLI::App* command, TierArgs& o) {
  add_bytes(command, "--cache-host-bytes", o.host_bytes, 0, int64_t{1} << 50,
            "host memory for evicted KV blocks, as 4G");
  command
      ->add_option("--cache-disk", o.disk_folder, "folder for KV blocks that survive restarts; one process at a time")
      ->type_name("DIR");
  add_bytes(command, "--cache-disk-bytes", o.disk_bytes, 1 << 20, int64_t{1} << 50, "maximum size of that folder");
}

namespace {

Result<int> run_command(int argc, char** argv) {
  CLI::App app{
      "ibid: an inference and serving engine for large language models.\n"
      "The same request gives the same bytes, whatever else runs.",
      "ibid"};
  set_up_help(app);
  app.set_version_flag("--version", "ibid " IBID_VERSION " (arithmetic " + arithmetic_id() + ")");
  app.require_subcommand(1);
  app.fallthrough();
  app.option_defaults()->always_capture_default(false);
  std::string log_level = "warn";
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->each([](const std::string& level) { set_log_level(level); });
  All all;
  int exit_code = kOk;
  add_run(app, all.run, exit_code);
  add_serve(app, all.serve, exit_code);
  add_health(app, all.health, exit_code);
  add_replay(app, all.replay, exit_code);
  add_files(app, all, exit_code);
  add_text(app, all, exit_code);
  add_measures(app, all, exit_code);
  for (CLI::App* command : app.get_subcommands([](CLI::App* c) { return c->get_name() != "serve"; })) {
    refuse_empty_values(command, Refusing::kPaths);
    for (CLI::App* below : command->get_subcommands([](CLI::App*) { return true; }))
      refuse_empty_values(below, Refusing::kPaths);
  }
  if (const std::string flag = flag_without_value(argc, argv); !flag.empty()) {
    return fail(invalid(flag + "= has no value; is a variable of the shell unset?"), kUsage);
  }
  // After the commands, which would have it too.
  app.footer("MODEL is " + std::string(kModelHelp) +
             ".\nWithout MODEL, the default model is used. 'ibid COMMAND --help' shows the flags of a command.");
  Result<std::vector<std::string>> words = command_words(app, {argv + 1, argv + argc});
  if (!words) return fail(words.error(), kUsage);
  std::ranges::reverse(*words);  // as the parser takes them
  try {
    app.parse(*std::move(words));
  } catch (const CLI::CallForHelp&) {
    std::fputs(help_text(app, false).c_str(), stdout);
    return int{kOk};
  } catch (const CLI::CallForAllHelp&) {
    std::fputs(help_text(app, true).c_str(), stdout);
    return int{kOk};
  } catch (const CLI::Success& e) {
    return int{app.exit(e) == 0 ? kOk : kUsage};
  } catch (const CLI::ParseError& e) {
    return fail(invalid(refusal(app, e)), kUsage);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  end_where_files_are_cut(kFailed);
  // Flags and their texts are some hundred kilobytes, for which there may be no memory either.
  const Result<int> code = caught([&] { return run_command(argc, argv); });
  return code ? *code : fail(code.error());
}

}  // namespace ibid::cli
