// The cost of a forward pass over r rows relative to one over one row, and where its time goes.
//   pass_bench [--model MODEL] [--threads N] [--context N] [--rounds N] [--isa NAME] [--streams] [ROWS ...]
// Rows are tokens of one sequence after `context` others, as drafts are; with --streams one of each of r sequences of
// that length, as decodes are. In each round every count of rows has its turn, so that v(r), the median of the rounds'
// ratios to one row, holds on a busy machine too; cpu is the caller's thread only. The parts are those between a
// model's intermediates (docs/developers/adding_a_model.md), each named by the one that ends it, medians of a pass's
// sum.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "cli/terminal/exit_code.h"
#include "host/loading.h"
#include "kernels/isa.h"

namespace ibid::bench {
namespace {

struct Settings {
  std::string model = "default";
  int threads = 0;
  int32_t context = 256, rounds = 41;
  bool streams = false;
  std::vector<int32_t> rows;
  std::optional<Isa> isa;
};

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

// S texts of the same length over blocks of their own.
class Texts {
 public:
  Texts(Model& model, Stream& stream, int32_t n_texts, int32_t capacity)
      : model_(model), stream_(stream), blocks_a_text_((capacity + kBlockLen - 1) / kBlockLen) {
    const std::vector<KvLayout> layers = kv_layouts(model.kv_geometries(), DType::kF16, kBlockLen);
    memory_.resize(static_cast<size_t>(kv_pool_bytes(layers, n_texts * blocks_a_text_)) + 64);
    kv_ = kv_pool(layers, n_texts * blocks_a_text_,
                  memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64);
    for (int32_t i = 0; i < n_texts * blocks_a_text_; ++i) blocks_.push_back(BlockId{i});
  }

  // Tokens [first, first + n) of texts [text, text + n_texts); the logits of all.
  void pass(int32_t text, int32_t n_texts, int32_t first, int32_t n) {
    tokens_.clear(), positions_.clear(), slots_.clear(), rows_.clear(), lens_.clear();
    query_start_.assign(1, 0), block_start_.assign(1, 0);
    for (int32_t t = text; t < text + n_texts; ++t) {
      for (int32_t i = first; i < first + n; ++i) {
        rows_.push_back(static_cast<int32_t>(rows_.size()));
        tokens_.push_back(TokenId{static_cast<int32_t>((t * 7919 + i * 104729) % model_.config().vocab_size)});
        positions_.push_back(i);
        slots_.push_back(t * blocks_a_text_ * kBlockLen + i);
      }
      lens_.push_back(first + n);
      query_start_.push_back(static_cast<int32_t>(tokens_.size()));
      block_start_.push_back(block_start_.back() + blocks_a_text_);
    }
    ForwardBatch b;
    b.n_tokens = b.n_rows = static_cast<int32_t>(tokens_.size());
    b.n_sequences = n_texts;
    b.block_len = kBlockLen;
    b.tokens = tokens_.data();
    b.positions = positions_.data();
    b.slots = slots_.data();
    b.query_start = query_start_.data();
    b.kv_len = lens_.data();
    b.block_start = block_start_.data();
    b.block_table = blocks_.data() + text * blocks_a_text_;
    b.logit_rows = rows_.data();
    // Never smaller again: vectors that grow are cleared, which is no part of a pass.
    const auto n_logits = static_cast<size_t>(b.n_rows) * static_cast<size_t>(model_.config().vocab_size);
    if (logits_.size() < n_logits) logits_.resize(n_logits);
    const TensorView logits(logits_.data(), DType::kF32, {b.n_rows, model_.config().vocab_size});
    model_.forward(stream_, b, kv_, logits);
  }

 private:
  static constexpr int32_t kBlockLen = 16;
  Model& model_;
  Stream& stream_;
  int32_t blocks_a_text_;
  std::vector<std::byte> memory_;
  std::vector<PagedKv> kv_;
  std::vector<BlockId> blocks_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, slots_, rows_, lens_, query_start_, block_start_;
  std::vector<float> logits_;
};

struct Measured {
  std::vector<double> seconds, cpu, ratio, cpu_ratio;
  std::map<std::string, std::vector<double>, std::less<>> parts;
};

int run(Settings settings) {
  if (settings.rows.empty()) settings.rows = {1, 2, 4, 8, 16};
  if (settings.rows.front() != 1) settings.rows.insert(settings.rows.begin(), 1);
  const int32_t most = *std::ranges::max_element(settings.rows), n_texts = settings.streams ? most : 1;
  host::ModelArgs args;
  args.model = settings.model;
  args.threads = settings.threads;
  args.isa = settings.isa;
  args.context_len = settings.context + most;
  auto loaded = host::load(args, {.max_sequences = most, .max_rows = 512});
  if (!loaded) return cli::fail(loaded.error());
  Model& model = *loaded->model;
  Texts texts(model, *loaded->stream, n_texts, settings.context + most);
  for (int32_t t = 0; t < n_texts; ++t) {
    for (int32_t i = 0; i < settings.context; i += 128) texts.pass(t, 1, i, std::min(128, settings.context - i));
  }
  std::map<int32_t, Measured> measured;
  std::map<std::string, double, std::less<>> parts;
  double last = 0;
  const Tap tap = [&](std::string_view name, int, const TensorView&) {
    const double now = processor_seconds();
    auto at = parts.find(name);
    if (at == parts.end()) at = parts.emplace(std::string(name), 0.0).first;
    at->second += now - last;
    last = now;
  };
  for (int32_t round = -2; round < settings.rounds; ++round) {
    for (const bool tapped : {false, true}) {
      model.set_tap(tapped ? tap : Tap{});
      double one = 0, one_cpu = 0;
      for (const int32_t r : settings.rows) {
        Measured& m = measured[r];
        for (auto& [name, seconds] : parts) seconds = 0;
        const double cpu_begin = last = processor_seconds(), begin = steady_clock().now();
        settings.streams ? texts.pass(0, r, settings.context, 1) : texts.pass(0, 1, settings.context, r);
        const double took = steady_clock().now() - begin, cpu = processor_seconds() - cpu_begin;
        if (r == 1) one = took, one_cpu = cpu;
        if (round < 0) continue;
        if (tapped) {
          for (const auto& [name, seconds] : parts) m.parts[name].push_back(seconds);
        } else {
          m.seconds.push_back(took), m.cpu.push_back(cpu);
          m.ratio.push_back(took / one), m.cpu_ratio.push_back(cpu / one_cpu);
        }
      }
    }
  }
  std::printf("%s, %d threads, %s, after %d tokens, %s\n\n| rows | ms | v | cpu ms | cpu v |\n|--:|--:|--:|--:|--:|\n",
              loaded->description().c_str(), loaded->team->n_threads(), std::string(isa_name(selected_isa())).c_str(),
              settings.context, settings.streams ? "a row a text" : "all of one text");
  for (const int32_t r : settings.rows) {
    const Measured& m = measured[r];
    std::printf("| %d | %.2f | %.2f | %.2f | %.2f |\n", r, 1e3 * median(m.seconds), median(m.ratio),
                1e3 * median(m.cpu), median(m.cpu_ratio));
  }
  std::printf("\n| part, us |");
  for (const int32_t r : settings.rows) std::printf(" %d |", r);
  std::printf(" share of %d - 1 |\n", most);
  double most_more = 0;
  for (const auto& [name, seconds] : measured[most].parts)
    most_more += median(seconds) - median(measured[1].parts[name]);
  for (const auto& [name, seconds] : measured[1].parts) {
    std::printf("| %s |", name.c_str());
    for (const int32_t r : settings.rows) std::printf(" %.0f |", 1e6 * median(measured[r].parts[name]));
    std::printf(" %.0f %% |\n", 100 * (median(measured[most].parts[name]) - median(seconds)) / most_more);
  }
  return 0;
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) {
  ibid::bench::Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (flag == "--model")
      s.model = value();
    else if (flag == "--threads")
      s.threads = std::atoi(value().c_str());
    else if (flag == "--context")
      s.context = std::max(1, std::atoi(value().c_str()));
    else if (flag == "--rounds")
      s.rounds = std::max(1, std::atoi(value().c_str()));
    else if (flag == "--isa")
      s.isa = ibid::isa_from_name(value());
    else if (flag == "--streams")
      s.streams = true;
    else
      s.rows.push_back(std::max(1, std::atoi(flag.c_str())));
  }
  return ibid::bench::run(std::move(s));
}
