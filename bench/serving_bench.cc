// A load on a server with OpenAI's API, and the latencies of its users.
//   build/serving_bench --url http://127.0.0.1:8080 --streams 16 --words 220 --max-tokens 128 --repeats 5
//   build/serving_bench --streams 200 --rate 20 --requests 1000 --check -o json
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <random>

#include "bench/load/measure.h"
#include "bench/load/prompts.h"

namespace ibid::load {
namespace {

struct Options {
  std::string url = "http://127.0.0.1:8080";
  std::string api_key, model;
  bool completions = false;
  int n_streams = 16, n_requests = 0, n_repeats = 1;
  double rate = 0;
  PromptOptions prompts;
  int max_tokens = 128;
  double temperature = 0;
  int logprobs = -1;
  bool heed_eos = false;
  bool warm = false;
  bool check = false;
  int newcomer_words = 0;
  double newcomer_at = 5;
  std::vector<int> sweep;
  double slo_ttft = 0, slo_itl = 0;
  double timeout = 600;
  std::string output = "md";
};

std::string body_of(const Options& o, const std::string& prompt, uint64_t seed) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("model", o.model);
  if (o.completions) {
    json.field("prompt", prompt);
  } else {
    json.key("messages").begin_array().begin_object().field("role", "user").field("content", prompt);
    json.end_object().end_array();
  }
  json.key("stream").boolean(true).key("stream_options").raw(R"({"include_usage":true})");
  json.field("max_tokens", int64_t{o.max_tokens}).key("temperature").number(o.temperature);
  json.field("seed", static_cast<int64_t>(seed));
  if (!o.heed_eos) json.key("ignore_eos").boolean(true);
  if (o.logprobs >= 0 && o.completions) json.field("logprobs", int64_t{o.logprobs});
  if (o.logprobs >= 0 && !o.completions) json.key("logprobs").boolean(true).field("top_logprobs", int64_t{o.logprobs});
  json.end_object();
  return out;
}

// Seconds after the start at which each request is due.
std::vector<double> arrivals(const Options& o, size_t n, uint64_t run) {
  std::vector<double> out(n, 0.0);
  if (o.rate <= 0) return out;
  std::mt19937_64 random(o.prompts.seed + 0x5851f42d4c957f2d * (run + 1));
  double at = 0;
  for (double& due : out) {
    const double u = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    at += -std::log(u) / o.rate;
    due = at;
  }
  return out;
}

// What a newcomer's prompt did to the streams that were there, and they to it. Seconds.
struct Newcomer {
  double ttft = 0;
  double alone = 0;       // a prompt of the same length without other requests, until its first token
  double p50_before = 0;  // between two pieces of a stream's text, before it came
  double stall = 0;       // the longest such time while it was there
  double meanwhile = 0;   // what the streams' tokens until its first one take without it: p50_before for each of each
};

Newcomer newcomer_among(std::span<const LoadAnswer> streams, double came, double first) {
  Newcomer out{.ttft = first - came};
  std::vector<double> before;
  int64_t n_meanwhile = 0;
  for (const LoadAnswer& answer : streams) {
    const StreamContent content = read_stream(answer);
    for (size_t i = 1; i < content.times.size(); ++i) {
      const double gap = content.times[i] - content.times[i - 1];
      if (content.times[i] <= came) before.push_back(gap);
      if (content.times[i] > came) out.stall = std::max(out.stall, gap);
      n_meanwhile += content.times[i] > came && content.times[i] <= first;
    }
  }
  if (before.empty()) return out;
  std::ranges::nth_element(before, before.begin() + static_cast<std::ptrdiff_t>(before.size() / 2));
  out.p50_before = before[before.size() / 2];
  out.meanwhile = out.p50_before * static_cast<double>(n_meanwhile) / static_cast<double>(streams.size());
  return out;
}

struct Run {
  LoadFigures figures;
  double client_share = 0;  // of one core, while it ran
  int64_t n_different = -1;
  Newcomer newcomer;
};

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t count_different(const Target& target, const std::vector<LoadRequest>& requests,
                        std::span<const LoadAnswer> answers, double timeout) {
  int64_t n = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<LoadAnswer> alone = run_load(target, {{requests[i].path, requests[i].body}}, 1, timeout);
    n += !same_bytes(read_stream(alone[0]), read_stream(answers[i]));
  }
  return n;
}

Result<Run> run_once(const Options& o, const Target& target, uint64_t number) {
  PromptOptions p = o.prompts;
  p.run = number;
  const auto n = static_cast<size_t>(o.n_requests > 0 ? o.n_requests : o.n_streams);
  ASSIGN_OR_RETURN(const std::vector<std::string> prompts, make_prompts(p, n + 2));
  const std::string path = o.completions ? "/v1/completions" : "/v1/chat/completions";
  const std::vector<double> due = arrivals(o, n, number);
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < n; ++i) requests.push_back({path, body_of(o, prompts[i], p.seed + i), due[i]});
  if (o.warm) run_load(target, {{path, body_of(o, prompts[n], p.seed)}}, 1, o.timeout);
  const bool has_newcomer = o.newcomer_words > 0;
  double alone = 0;
  if (has_newcomer) {
    p.n_words = o.newcomer_words;
    p.run = number + 1'000'000;
    ASSIGN_OR_RETURN(const std::vector<std::string> newcomer, make_prompts(p, 2));
    const LoadAnswer other = run_load(target, {{path, body_of(o, newcomer[1], p.seed)}}, 1, o.timeout)[0];
    alone = read_stream(other).first - other.due;
    requests.push_back({path, body_of(o, newcomer[0], p.seed), o.newcomer_at});
  }

  const int n_streams = o.n_streams + (has_newcomer ? 1 : 0);
  const double cpu = cpu_seconds();
  std::vector<LoadAnswer> answers = run_load(target, requests, o.rate > 0 ? 0 : n_streams, o.timeout);
  Run run;
  const double used = cpu_seconds() - cpu;
  if (has_newcomer) {
    const LoadAnswer newcomer = answers.back();
    run.newcomer = newcomer_among(std::span(answers).first(n), newcomer.due, read_stream(newcomer).first);
    run.newcomer.alone = alone;
    answers.pop_back();
    requests.pop_back();
  }
  run.figures = figures_of(answers);
  run.client_share = run.figures.seconds > 0 ? used / run.figures.seconds : 0;
  if (o.check) run.n_different = count_different(target, requests, answers, o.timeout);
  return run;
}

// The name that the server gives its model.
std::string first_model(const Target& target) {
  const std::vector<LoadAnswer> got = run_load(target, {{"/v1/models", ""}}, 1, 10);
  const Result<Json> json = parse_json(got[0].body);
  const Json* data = json ? json->find("data") : nullptr;
  if (data == nullptr || data->array() == nullptr || data->array()->empty()) return "default";
  const Json* id = data->array()->front().find("id");
  return id != nullptr && id->string() != nullptr ? *id->string() : "default";
}

template <typename Get>
double median(const std::vector<Run>& runs, Get get) {
  std::vector<double> values;
  for (const Run& run : runs) values.push_back(get(run));
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_json(const std::vector<Run>& runs) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("runs").begin_array();
  for (const Run& run : runs) {
    json.begin_object().key("figures");
    write_figures(json, run.figures);
    json.key("client_cores").number(run.client_share, 4);
    if (run.n_different >= 0) json.field("different_from_alone", run.n_different);
    if (const Newcomer& late = run.newcomer; late.ttft > 0) {
      json.key("newcomer_ttft_seconds").number(late.ttft, 6).key("newcomer_alone_seconds").number(late.alone, 6);
      json.key("streams_meanwhile_seconds").number(late.meanwhile, 6);
      json.key("p50_before_seconds").number(late.p50_before, 6).key("longest_stall_seconds").number(late.stall, 6);
    }
    json.end_object();
  }
  json.end_array().end_object();
  std::printf("%s\n", out.c_str());
}

void print_table(const std::vector<Run>& runs) {
  const auto row = [&](const char* name, const char* unit, double scale, auto get) {
    std::vector<double> all;
    for (const Run& run : runs) all.push_back(get(run) * scale);
    const auto [low, high] = std::minmax_element(all.begin(), all.end());
    std::printf("| %s | %.1f | %.1f to %.1f | %s |\n", name, median(runs, get) * scale, *low, *high, unit);
  };
  std::printf("| medians of %zu runs | | spread | |\n|---|--:|---|---|\n", runs.size());
  row("answers that are whole", "", 1, [](const Run& r) { return static_cast<double>(r.figures.n_whole); });
  row("answers that are not", "", 1,
      [](const Run& r) { return static_cast<double>(r.figures.n_requests - r.figures.n_whole); });
  row("prompt tokens", "tokens", 1, [](const Run& r) { return static_cast<double>(r.figures.prompt_tokens); });
  row("of them cached", "tokens", 1, [](const Run& r) { return static_cast<double>(r.figures.cached_tokens); });
  row("generated", "tokens/s", 1, [](const Run& r) {
    return static_cast<double>(r.figures.completion_tokens) / std::max(r.figures.seconds, 1e-9);
  });
  const auto latency = [&](const std::string& name, Percentiles LoadFigures::*which) {
    row((name + " p50").c_str(), "ms", 1e3, [which](const Run& r) { return (r.figures.*which).p50; });
    row((name + " p95").c_str(), "ms", 1e3, [which](const Run& r) { return (r.figures.*which).p95; });
    row((name + " p99").c_str(), "ms", 1e3, [which](const Run& r) { return (r.figures.*which).p99; });
    row((name + " p99.9").c_str(), "ms", 1e3, [which](const Run& r) { return (r.figures.*which).p999; });
  };
  latency("time to first token", &LoadFigures::ttft);
  latency("between tokens", &LoadFigures::itl);
  if (runs[0].newcomer.ttft > 0) {
    row("newcomer's first token", "ms", 1e3, [](const Run& r) { return r.newcomer.ttft; });
    row("of such a prompt alone", "ms", 1e3, [](const Run& r) { return r.newcomer.alone; });
    row("the others' tokens meanwhile, without it", "ms", 1e3, [](const Run& r) { return r.newcomer.meanwhile; });
    row("newcomer's first token against that sum", "%", 100,
        [](const Run& r) { return r.newcomer.ttft / std::max(r.newcomer.alone + r.newcomer.meanwhile, 1e-9); });
    row("between tokens p50 before it came", "ms", 1e3, [](const Run& r) { return r.newcomer.p50_before; });
    row("longest stall of the others", "ms", 1e3, [](const Run& r) { return r.newcomer.stall; });
  }
  row("this client", "% of a core", 100, [](const Run& r) { return r.client_share; });
  for (const Run& run : runs) {
    for (const auto& [what, n] : run.figures.errors)
      std::printf("%lld times: %s\n", static_cast<long long>(n), what.c_str());
    if (run.n_different >= 0)
      std::printf("%lld of %lld answers differ from the same request alone\n", static_cast<long long>(run.n_different),
                  static_cast<long long>(run.figures.n_requests));
  }
}

// What a larger batch buys and costs: one line for each number of streams.
int print_sweep(Options o, const Target& target) {
  std::printf(
      "| streams | whole | tokens/s | first token p50, p95 ms | between tokens p50, p95, p99 ms | kept the targets "
      "|\n|--:|--:|--:|--:|--:|--:|\n");
  uint64_t number = 0;
  for (const int n : o.sweep) {
    o.n_streams = n;
    std::vector<Run> runs;
    for (int i = 0; i < o.n_repeats; ++i) {
      Result<Run> run = run_once(o, target, number++);
      if (!run) return std::fprintf(stderr, "error: %s\n", run.error().message.c_str()), 1;
      runs.push_back(*std::move(run));
    }
    const auto ms = [&](Percentiles LoadFigures::*which, double Percentiles::*q) {
      return 1e3 * median(runs, [&](const Run& r) { return r.figures.*which.*q; });
    };
    const double rate = median(runs, [](const Run& r) {
      return static_cast<double>(r.figures.completion_tokens) / std::max(r.figures.seconds, 1e-9);
    });
    const double whole = median(runs, [](const Run& r) {
      return static_cast<double>(r.figures.n_whole) / static_cast<double>(std::max<int64_t>(r.figures.n_requests, 1));
    });
    const bool kept = whole == 1 &&
                      (o.slo_ttft == 0 || ms(&LoadFigures::ttft, &Percentiles::p95) <= 1e3 * o.slo_ttft) &&
                      (o.slo_itl == 0 || ms(&LoadFigures::itl, &Percentiles::p95) <= 1e3 * o.slo_itl);
    std::printf("| %d | %.0f %% | %.1f | %.0f, %.0f | %.1f, %.1f, %.1f | %s |\n", n, 100 * whole, rate,
                ms(&LoadFigures::ttft, &Percentiles::p50), ms(&LoadFigures::ttft, &Percentiles::p95),
                ms(&LoadFigures::itl, &Percentiles::p50), ms(&LoadFigures::itl, &Percentiles::p95),
                ms(&LoadFigures::itl, &Percentiles::p99), kept ? "yes" : "no");
    for (const auto& [what, times] : runs.back().figures.errors)
      std::printf("%lld times in the last run: %s\n", static_cast<long long>(times), what.c_str());
    std::fflush(stdout);
  }
  return 0;
}

int main(int argc, char** argv) {
  Options o;
  CLI::App app("A load on a server that speaks OpenAI's API: latency and throughput as its users see them.");
  app.option_defaults()->always_capture_default();
  app.add_option("--url", o.url, "the server");
  app.add_option("--api-key", o.api_key, "sent as a bearer token");
  app.add_option("--model", o.model, "model to ask for (the first that the server lists)");
  app.add_flag("--completions", o.completions, "/v1/completions instead of /v1/chat/completions");
  app.add_option("--streams", o.n_streams, "requests under way at once")->check(CLI::Range(1, 100000));
  app.add_option("--requests", o.n_requests, "requests in all (0: one for each stream)");
  app.add_option("--rate", o.rate,
                 "arrivals per second, as a Poisson process without bound on streams (0: all at once)");
  app.add_option("--repeats", o.n_repeats, "runs, each with other prompts")->check(CLI::Range(1, 1000));
  app.add_option("--prompts", o.prompts.file, "text whose words make the prompts (generated English)");
  app.add_option("--words", o.prompts.n_words, "words of each prompt's own");
  app.add_option("--shared-words", o.prompts.n_shared_words, "words before them that all prompts share");
  app.add_flag("--warm", o.warm, "ask one more request first, so that what is shared is cached");
  app.add_option("--max-tokens", o.max_tokens, "tokens to generate");
  app.add_flag("--heed-eos", o.heed_eos, "let the model end its answer");
  app.add_option("--temperature", o.temperature, "of each request");
  app.add_option("--logprobs", o.logprobs, "log-probabilities of so many candidates (-1: none)");
  app.add_option("--seed", o.prompts.seed, "of prompts, arrivals and requests");
  app.add_option("--newcomer-words", o.newcomer_words, "a prompt of so many words arrives over the others (0: none)");
  app.add_option("--newcomer-at", o.newcomer_at, "seconds after the start");
  app.add_option("--sweep", o.sweep, "one line for each of these numbers of streams, as 1,4,16")->delimiter(',');
  app.add_option("--slo-ttft", o.slo_ttft, "of a sweep: p95 of first tokens in seconds that is still good");
  app.add_option("--slo-itl", o.slo_itl, "of a sweep: p95 between tokens in seconds that is still good");
  app.add_option("--timeout", o.timeout, "seconds that one request may take");
  app.add_flag("--check", o.check, "ask each request again, alone, and compare the bytes");
  app.add_option("-o,--output", o.output, "md or json")->check(CLI::IsMember({"md", "json"}));
  CLI11_PARSE(app, argc, argv);

  Result<Target> target = Target::parse(o.url);
  if (!target) return std::fprintf(stderr, "error: %s\n", target.error().message.c_str()), 2;
  target->api_key = o.api_key;
  if (o.model.empty()) o.model = first_model(*target);
  if (!o.sweep.empty()) return print_sweep(o, *target);
  std::vector<Run> runs;
  for (int i = 0; i < o.n_repeats; ++i) {
    Result<Run> run = run_once(o, *target, static_cast<uint64_t>(i));
    if (!run) return std::fprintf(stderr, "error: %s\n", run.error().message.c_str()), 1;
    runs.push_back(*std::move(run));
  }
  o.output == "json" ? print_json(runs) : print_table(runs);
  const bool all_right = std::ranges::all_of(
      runs, [](const Run& r) { return r.figures.n_whole == r.figures.n_requests && r.n_different <= 0; });
  return all_right ? 0 : 1;
}

}  // namespace
}  // namespace ibid::load

int main(int argc, char** argv) { return ibid::load::main(argc, argv); }
