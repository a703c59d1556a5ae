// How well a model predicts a text: in one context, or in windows over all of it; alone, or beside another model.
#include "model/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "base/quoted.h"
#include "cli/measure/text_windows.h"
#include "cli/options/options.h"
#include "cli/options/text_file.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"

namespace ibid::cli {
namespace {

struct Mean {
  int64_t n = 0;
  double sum = 0, sum_of_squares = 0;
  void add(double x) { ++n, sum += x, sum_of_squares += x * x; }
  double mean() const { return n > 0 ? sum / static_cast<double>(n) : 0; }
  double error() const {
    const double variance = n > 0 ? sum_of_squares / static_cast<double>(n) - mean() * mean() : 0;
    return n > 0 ? std::sqrt(std::fmax(variance, 0.0) / static_cast<double>(n)) : 0;
  }
};

// Rows of the base model on their way to the other's: a few, because a row is a whole vocabulary.
class Rows {
 public:
  // False once no thread waits for them any more.
  bool put(std::span<const float> row) {
    std::unique_lock lock(mutex_);
    turned_.wait(lock, [&] { return rows_.size() < kMost || is_over_; });
    if (is_over_) return false;
    rows_.emplace_back(row.begin(), row.end());
    turned_.notify_all();
    return true;
  }
  // Empty where none comes any more.
  std::vector<float> take() {
    std::unique_lock lock(mutex_);
    turned_.wait(lock, [&] { return !rows_.empty() || is_over_; });
    if (rows_.empty()) return {};
    std::vector<float> row = std::move(rows_.front());
    rows_.pop_front();
    turned_.notify_all();
    return row;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    turned_.notify_all();
  }

 private:
  static constexpr size_t kMost = 32;
  std::mutex mutex_;
  std::condition_variable turned_;
  std::deque<std::vector<float>> rows_;
  bool is_over_ = false;
};

struct Scores {
  Mean nll, base_nll, difference, divergence;
  int64_t n_same_first = 0;  // tokens that both hold most likely
  std::vector<double> each;  // divergence of each token
  // The least divergence that `share` of the tokens do not exceed.
  double quantile(double share) {
    if (each.empty()) return 0;
    const auto at = static_cast<ptrdiff_t>(share * static_cast<double>(each.size() - 1) + 0.5);
    std::ranges::nth_element(each, each.begin() + at);
    return each[static_cast<size_t>(at)];
  }
};

size_t largest_of(std::span<const float> row) {
  return static_cast<size_t>(std::ranges::max_element(row) - row.begin());
}

// The divergence from the base model, by its distribution: sum of p log(p / q).
double divergence(std::span<const float> base, std::span<const float> own) {
  double sum = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double p = static_cast<double>(base[i]), q = static_cast<double>(own[i]);
    if (std::isfinite(p)) sum += std::exp(p) * (p - q);
  }
  return std::fmax(sum, 0.0);
}

class Scorer {
 public:
  Scorer(const PerplexityOptions& options, host::Loaded& own, host::Loaded* base, std::vector<TokenId> tokens)
      : options_(options), own_(own), base_(base), tokens_(std::move(tokens)) {
    const std::vector<TokenId> empty = own.tokenizer->encode("", {.add_special = true});
    if (!empty.empty() && !tokens_.empty() && empty.front() == tokens_.front()) begin_ = empty.front();
  }

  Result<Scores> run(const std::vector<TextWindow>& windows, std::ofstream& dump, Progress& progress) {
    for (const TextWindow& w : windows) {
      // A window begins as the text does, if the vocabulary needs a token for that.
      std::vector<TokenId> tokens(tokens_.begin() + w.begin, tokens_.begin() + w.end);
      if (begin_ && w.begin > 0) tokens.front() = *begin_;
      TRY(score(w, tokens, dump));
      progress.update(static_cast<uint64_t>(w.end), tokens_.size());
    }
    return scores_;
  }

 private:
  Status score(const TextWindow& w, const std::vector<TokenId>& tokens, std::ofstream& dump) {
    Rows rows;
    Status of_base;
    std::jthread other;
    if (base_ != nullptr) {
      other = std::jthread([&] {
        const KvTypes kv_dtype = options_.base_kv_dtype.value_or(own_.kv_dtype);
        const auto scored = score_text(*base_->model, *base_->stream, kv_dtype, tokens,
                                       [&](int64_t position, std::span<const float> row) {
                                         if (w.begin + position + 1 >= w.first_scored) rows.put(row);
                                       });
        if (!scored) of_base = scored.error();
        rows.end();
      });
    }
    const auto done =
        score_text(*own_.model, *own_.stream, own_.kv_dtype, tokens, [&](int64_t position, std::span<const float> row) {
          if (dump.is_open())
            dump.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
          const int64_t next = w.begin + position + 1;
          if (next >= w.first_scored) add(next, w.end, row, rows);
        });
    if (!done) rows.end();
    if (other.joinable()) other.join();
    TRY(of_base);
    return done ? Status() : Status(done.error());
  }

  // `row`: the log-probabilities of token `next` of the text.
  void add(int64_t next, int64_t end, std::span<const float> row, Rows& rows) {
    std::vector<float> of_base;
    if (base_ != nullptr) of_base = rows.take();
    if (next >= end) return;
    const auto id = static_cast<size_t>(raw(tokens_[static_cast<size_t>(next)]));
    const double nll = -static_cast<double>(row[id]);
    scores_.nll.add(nll);
    if (of_base.size() != row.size()) return;
    const double base_nll = -static_cast<double>(of_base[id]);
    scores_.base_nll.add(base_nll);
    scores_.difference.add(nll - base_nll);
    const double d = divergence(of_base, row);
    scores_.divergence.add(d);
    scores_.each.push_back(d);
    scores_.n_same_first += largest_of(of_base) == largest_of(row) ? 1 : 0;
  }

  const PerplexityOptions& options_;
  host::Loaded& own_;
  host::Loaded* base_;
  std::vector<TokenId> tokens_;
  std::optional<TokenId> begin_;  // of every text
  Scores scores_;
};

// Whether both read a text alike.
Status check_base(const host::Loaded& own, const host::Loaded& base, const std::vector<TokenId>& tokens,
                  const std::string& text) {
  if (own.model->config().vocab_size == base.model->config().vocab_size &&
      base.tokenizer->encode(text, {.add_special = true}) == tokens)
    return {};
  return invalid("The base " + in_quotes(base.path) + " has another vocabulary; what both predict cannot be compared.",
                 "--base");
}

void print(Scores s, const host::Loaded* base, double tokens_per_second) {
  std::printf("%s\n", fmt::format("tokens {}  perplexity {:.4f}  nll {:.6f} +- {:.6f}  {:.1f} tokens/s", s.nll.n,
                                  std::exp(s.nll.mean()), s.nll.mean(), s.nll.error(), tokens_per_second)
                          .c_str());
  if (base == nullptr) return;
  std::printf(
      "%s\n",
      fmt::format("base {}: perplexity {:.4f}  nll {:.6f} +- {:.6f}\nnll above it {:+.6f} +- {:.6f}  perplexity times "
                  "{:.4f}  KL divergence {:.6f} +- {:.6f}, at most {:.4f}, median {:.6f}, 99 % {:.6f}  same first "
                  "choice {:.2f} %",
                  base->description(), std::exp(s.base_nll.mean()), s.base_nll.mean(), s.base_nll.error(),
                  s.difference.mean(), s.difference.error(), std::exp(s.difference.mean()), s.divergence.mean(),
                  s.divergence.error(), s.quantile(1), s.quantile(0.5), s.quantile(0.99),
                  100.0 * static_cast<double>(s.n_same_first) / static_cast<double>(std::max<int64_t>(1, s.nll.n)))
          .c_str());
}

}  // namespace

int perplexity(const PerplexityOptions& options) {
  auto text = text_of_file(options.file);
  if (!text) return fail(text.error());
  const host::StepLimits limits = {.step_tokens = 512, .max_sequences = 64};
  auto loaded = host::load(options.model, limits, {}, terminal_progress());
  if (!loaded) return fail(loaded.error());
  std::vector<TokenId> tokens = loaded->tokenizer->encode(*text, {.add_special = true});
  std::optional<host::Loaded> base;
  if (!options.base.empty()) {
    ModelArgs args = options.model;
    args.model = options.base;
    args.context_len = loaded->context_len;
    auto other = host::load(args, limits, {}, terminal_progress());
    if (!other) return fail(other.error());
    base = *std::move(other);
    if (const Status fine = check_base(*loaded, *base, tokens, *text); !fine) return fail(fine.error(), kUsage);
  }
  const size_t n_all = tokens.size();
  if (options.n_tokens > 0) tokens.resize(std::min(n_all, static_cast<size_t>(options.n_tokens)));
  const int64_t n = static_cast<int64_t>(tokens.size()), context_len = loaded->context_len;
  if (n < 2) return fail(invalid(fmt::format("the text has {} tokens; two or more can be scored", n)));
  const int64_t stride = options.stride > 0 ? options.stride : std::max<int64_t>(1, context_len / 2);
  if (stride >= context_len && n > context_len)
    return fail(
        invalid(fmt::format("--stride {} leaves nothing of the {} tokens of a context to predict from; {} would "
                            "do",
                            stride, context_len, context_len / 2)),
        kUsage);
  const std::vector<TextWindow> windows = text_windows(n, context_len, stride);
  std::ofstream dump;
  if (!options.dump_file.empty()) {
    if (windows.size() > 1)
      return fail(
          invalid(fmt::format("--dump is of one context, and the text has {} tokens where {} fit; use -n {} or a "
                              "larger --ctx",
                              n, context_len, context_len)),
          kUsage);
    dump.open(options.dump_file, std::ios::binary);
    if (!dump) return fail(unavailable("cannot write " + options.dump_file));
  }
  const double started = steady_clock().now();
  Scorer scorer(options, *loaded, base ? &*base : nullptr, std::move(tokens));
  const auto scores = [&] {
    Progress progress("scoring");
    return scorer.run(windows, dump, progress);
  }();
  if (!scores) return fail(scores.error());
  if (dump.is_open() && !dump.flush())
    return fail(unavailable("writing " + options.dump_file + " failed; is the disk full?"));
  print(*scores, base ? &*base : nullptr, static_cast<double>(n) / (steady_clock().now() - started));
  if (windows.size() > 1)
    std::printf("%s\n", fmt::format("{} windows of {} tokens, {} scored in each after those before them",
                                    windows.size(), context_len, stride)
                            .c_str());
  if (static_cast<size_t>(n) < n_all)
    std::printf("%s\n", fmt::format("{} of the text's {} tokens are left out because of -n",
                                    n_all - static_cast<size_t>(n), n_all)
                            .c_str());
  return kOk;
}

}  // namespace ibid::cli
