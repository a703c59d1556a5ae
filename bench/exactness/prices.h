// A table of what ibid's kernels take beside the fastest of several variants, measured in turns.
#pragma once

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"

namespace ibid::bench {

struct Variant {
  std::string name;
  std::function<void()> run;
};

class Prices {
 public:
  Prices(bool by_clock, int n_rounds, std::string family)
      : clock_(by_clock ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID), n_(n_rounds), family_(std::move(family)) {
    std::printf("| family | ibid, us | any order, us | price | quartiles | fastest of |\n|---|--:|--:|--:|--:|---|\n");
  }

  // `outputs`: what both write, to be near each other.
  void row(const std::string& family, const std::function<void()>& ours, const std::vector<Variant>& variants,
           const std::vector<float>& our_out, const std::vector<float>& any_out) {
    CHECK(!variants.empty());
    if (family.find(family_) == std::string::npos) return;
    ours();
    const double once = seconds(ours);
    // By the clock short batches, of which some are not interrupted.
    const bool by_clock = clock_ == CLOCK_MONOTONIC;
    const int inner = std::max(1, static_cast<int>((by_clock ? 5e-4 : 2e-3) / std::max(once, 1e-9)));
    const auto many = [&](const std::function<void()>& f) {
      return seconds([&] {
               for (int i = 0; i < inner; ++i) f();
             }) /
             inner;
    };
    const Variant* fastest = nullptr;
    double least = 0.0;
    for (const Variant& variant : variants) {
      variant.run();
      expect_near(family + ", " + variant.name, our_out, any_out);
      double best = many(variant.run);
      for (int i = 0; i < (by_clock ? 24 : 6); ++i) best = std::min(best, many(variant.run));
      if (std::getenv("EVERY") != nullptr) std::printf("  %s: %.1f us\n", variant.name.c_str(), best * 1e6);
      if (fastest == nullptr || best < least) {
        fastest = &variant;
        least = best;
      }
    }
    std::vector<double> a, b, ratio;
    for (int i = 0; i < n_; ++i) {
      a.push_back(many(ours));
      b.push_back(many(fastest->run));
      ratio.push_back(a.back() / b.back());
    }
    for (std::vector<double>* v : {&a, &b, &ratio}) std::sort(v->begin(), v->end());
    const auto at = [](const std::vector<double>& v, int quarter) {
      return v[v.size() * static_cast<size_t>(quarter) / 4];
    };
    const auto percent = [](double r) { return (r - 1.0) * 100.0; };
    const int quarter = by_clock ? 0 : 2;
    const double price = by_clock ? a.front() / b.front() : at(ratio, 2);
    std::printf("| %s | %.1f | %.1f | %.0f %% | %.0f to %.0f | %zu: %s |\n", family.c_str(), at(a, quarter) * 1e6,
                at(b, quarter) * 1e6, percent(price), percent(at(ratio, 1)), percent(at(ratio, 3)), variants.size(),
                fastest->name.c_str());
    std::fflush(stdout);
  }

 private:
  double seconds(const std::function<void()>& work) const {
    const double begin = now();
    work();
    return now() - begin;
  }
  double now() const {
    timespec t = {};
    clock_gettime(clock_, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  static void expect_near(const std::string& what, const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0.0, apart = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(a[i])));
      apart = std::max(apart, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    if (!(apart <= 1e-4 * largest)) {
      std::fprintf(stderr, "%s: %g apart where the largest is %g\n", what.c_str(), apart, largest);
      std::exit(1);
    }
  }

  clockid_t clock_;
  int n_;
  std::string family_;
};

}  // namespace ibid::bench
