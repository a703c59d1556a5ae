// Codes of groups, GPTQ and AWQ: against the same in NumPy (tools/make_group_goldens.py), and what they are for.
#include "model/group_quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "base/sha256.h"
#include "source_paths.h"
#include "tensor/half.h"

namespace ibid {
namespace {

constexpr int64_t kN = 24, kK = 256, kT = 384, kGroups = kK / 32;
constexpr GroupFormat kFormat = {.bits = 4, .group_len = 32, .scales = DType::kF16};

class GroupCodesOf : public ::testing::Test {
 protected:
  GroupCodesOf() : w_(kN * kK), x_(kT * kK) {
    uint32_t state = 1;
    const auto next = [&state] {
      state = state * 1664525 + 1013904223;
      return static_cast<float>(static_cast<int>(state >> 8 & 0xffff) - 32768) / 65536;
    };
    for (float& v : w_) v = next();
    for (float& v : x_) v = next();
    for (size_t t = 0; t < kT; ++t) {
      float* row = x_.data() + t * kK;
      for (size_t k = 1; k < kK; ++k) row[k] = row[k] + 0.5f * row[k - 1];  // neighbours go together
      for (size_t k = 0; k < kK; k += 37) row[k] *= 32;
      row[5] = 0;
    }
  }
  TensorView rows(int64_t first, int64_t n) { return {x_.data() + first * kK, DType::kF32, {n, kK}}; }
  InputMoments moments(ThreadTeam& team, int64_t step = kT) {
    Stream s(team);
    EXPECT_TRUE(s.reserve_workspace(InputMoments::workspace_bytes()).ok());
    InputMoments m(kK);
    for (int64_t t = 0; t < kT; t += step) m.add(s, rows(t, std::min(step, kT - t)));
    m.finish(s);
    return m;
  }
  static std::string digest(const GroupCodes& codes) {
    return sha256_hex({reinterpret_cast<const char*>(codes.codes.data()), codes.codes.size()});
  }
  static std::string expected(const std::string& what) {
    std::ifstream file(source_dir() + "/tests/golden/group_codes.txt");
    std::map<std::string, std::string> all;
    for (std::string name, value; file >> name >> value;) all[name] = value;
    return all[what];
  }
  // Of outputs, as a share of their squares; s: what inputs are divided by.
  double error(const GroupCodes& codes, const std::vector<double>& s = {}) const {
    double sum = 0, size = 0;
    for (size_t t = 0; t < kT; ++t) {
      for (size_t n = 0; n < kN; ++n) {
        double is = 0, was = 0;
        for (size_t k = 0; k < kK; ++k) {
          const double x = static_cast<double>(x_[t * kK + k]);
          const double scale = static_cast<double>(codes.scales[n * kGroups + k / 32]);
          is += x / (s.empty() ? 1.0 : s[k]) * scale * codes.codes[n * kK + k];
          was += x * static_cast<double>(w_[n * kK + k]);
        }
        sum += (is - was) * (is - was);
        size += was * was;
      }
    }
    return sum / size;
  }

  std::vector<float> w_, x_;
  ThreadTeam team_{2}, one_{1};
};

TEST_F(GroupCodesOf, RoundingIsToTheNearest) {
  const GroupCodes codes = round_to_groups(team_, w_, kK, kFormat);
  EXPECT_EQ(digest(codes), expected("round"));
  for (size_t i = 0; i < w_.size(); ++i) {
    const float scale = codes.scales[i / 32];
    EXPECT_LE(std::fabs(w_[i] - scale * static_cast<float>(codes.codes[i])), 0.505f * scale) << i;
  }
}

TEST_F(GroupCodesOf, MomentsAreSumsOverTokens) {
  const InputMoments m = moments(team_);
  for (int64_t i = 0; i < kK; i += 7) {
    for (int64_t j = 0; j <= i; j += 5) {
      double sum = 0;
      for (int64_t t = 0; t < kT; ++t)
        sum += static_cast<double>(x_[static_cast<size_t>(t * kK + i)]) *
               static_cast<double>(x_[static_cast<size_t>(t * kK + j)]);
      EXPECT_NEAR(m.product(i, j), sum, 1e-6 * std::sqrt(m.product(i, i) * m.product(j, j)));
      EXPECT_EQ(m.product(j, i), m.product(i, j));
    }
  }
  const InputMoments other = moments(one_, 7);
  EXPECT_EQ(other.n_tokens(), kT);
  for (int64_t i = 0; i < kK; ++i) {
    EXPECT_EQ(other.mean_size(i), m.mean_size(i));
    for (int64_t j = 0; j <= i; ++j) ASSERT_EQ(other.product(i, j), m.product(i, j));
  }
}

TEST_F(GroupCodesOf, TheFactorIsThatOfTheInverse) {
  const InputMoments m = moments(team_);
  const GptqFactor f = *gptq_factor(team_, m, 0.01, false);
  double mean = 0;
  for (int64_t k = 0; k < kK; ++k) mean += (m.product(k, k) == 0 ? 1 : m.product(k, k)) / kK;
  // U (H + damp) U^T = 1.
  std::vector<double> uh(kK * kK);
  for (int64_t i = 0; i < kK; ++i) {
    for (int64_t j = 0; j < kK; ++j) {
      double sum = 0;
      for (int64_t k = i; k < kK; ++k) {
        double h = m.product(k, j);
        if (k == j) h = (h == 0 ? 1 : h) + 0.01 * mean;
        sum += f.u[static_cast<size_t>(i * kK + k)] * h;
      }
      uh[static_cast<size_t>(i * kK + j)] = sum;
    }
  }
  for (int64_t i = 0; i < kK; ++i) {
    for (int64_t j = 0; j < kK; ++j) {
      double sum = 0;
      for (int64_t k = j; k < kK; ++k)
        sum += uh[static_cast<size_t>(i * kK + k)] * f.u[static_cast<size_t>(j * kK + k)];
      EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-9) << i << " " << j;
    }
  }
}

TEST_F(GroupCodesOf, GptqIsThePapers) {
  const InputMoments m = moments(team_);
  for (const bool act_order : {false, true}) {
    const GptqFactor f = *gptq_factor(team_, m, 0.01, act_order);
    const GroupCodes codes = gptq(team_, w_, f, kFormat);
    EXPECT_EQ(digest(codes), expected(act_order ? "gptq_order" : "gptq"));
    EXPECT_LT(error(codes), 0.7 * error(round_to_groups(team_, w_, kK, kFormat)));
    for (size_t n = 0; n < kN; ++n) EXPECT_EQ(codes.codes[n * kK + 5], 0);  // an input that is always 0
    const GptqFactor alone = *gptq_factor(one_, m, 0.01, act_order);
    EXPECT_EQ(alone.u, f.u);
    EXPECT_EQ(gptq(one_, w_, alone, kFormat).codes, codes.codes);
    EXPECT_EQ(gptq(one_, w_, alone, kFormat).scales, codes.scales);
  }
}

// Groups shorter, as long as and longer than what is gone through at once.
TEST_F(GroupCodesOf, GptqIsBetterThanRoundingForAnyGroup) {
  const InputMoments m = moments(team_);
  const GptqFactor f = *gptq_factor(team_, m, 0.01, false);
  for (const int64_t g : {32, 64, 128, 256}) {
    for (const int bits : {3, 4, 8}) {
      const GroupFormat format = {.bits = bits, .group_len = g, .scales = DType::kBF16};
      GroupCodes searched = gptq(team_, w_, f, format), rounded = round_to_groups(team_, w_, kK, format);
      for (GroupCodes* codes : {&searched, &rounded}) {  // scales of 32 for error()
        std::vector<float> scales;
        for (int64_t i = 0; i < kN * kGroups; ++i) {
          const int64_t from = i / kGroups * (kK / g) + i % kGroups * 32 / g;
          scales.push_back(codes->scales[static_cast<size_t>(from)]);
        }
        codes->scales = scales;
      }
      EXPECT_LT(error(searched), 0.85 * error(rounded)) << g << " " << bits;
    }
  }
}

TEST_F(GroupCodesOf, AwqIsThePapers) {
  const InputMoments m = moments(team_);
  const std::span<const float> all[] = {w_};
  const std::vector<double> s = awq_factors(team_, m, all, kFormat);
  EXPECT_EQ(awq_factors(one_, m, all, kFormat), s);
  EXPECT_GT(s[37], 1.05 * s[36]);  // a large input
  std::vector<float> scaled(w_.size());
  for (size_t i = 0; i < w_.size(); ++i) scaled[i] = static_cast<float>(static_cast<double>(w_[i]) * s[i % kK]);
  const std::vector<float> clips = awq_clips(team_, m, s, scaled, kFormat);
  EXPECT_EQ(awq_clips(one_, m, s, scaled, kFormat), clips);
  const GroupCodes codes = round_to_groups(team_, scaled, kK, kFormat, clips);
  EXPECT_EQ(digest(codes), expected("awq"));
  const GroupCodes whole = round_to_groups(team_, scaled, kK, kFormat);
  EXPECT_LT(error(whole, s), 0.97 * error(round_to_groups(team_, w_, kK, kFormat)));
  EXPECT_LT(error(codes, s), error(whole, s));
}

TEST_F(GroupCodesOf, SmoothQuantMovesWhatIsHardFromActivationsToWeights) {
  const InputMoments m = moments(team_);
  const std::span<const float> all[] = {w_};
  // What a row of activations loses as codes of 8 bits with one scale, in products with W as codes with one an output.
  const auto error_of = [&](const std::vector<double>& s) {
    std::vector<float> scaled(w_.size());
    for (size_t i = 0; i < w_.size(); ++i) scaled[i] = static_cast<float>(static_cast<double>(w_[i]) * s[i % kK]);
    const GroupCodes codes = round_to_groups(team_, scaled, kK, {8, kK, DType::kF32});
    double lost = 0, size = 0, moved = 0;
    for (size_t t = 0; t < kT; ++t) {
      std::vector<double> x(kK);
      double largest = 0;
      for (size_t k = 0; k < kK; ++k) {
        x[k] = static_cast<double>(x_[t * kK + k]) / s[k];
        largest = std::max(largest, std::fabs(x[k]));
      }
      const double scale = largest / 127;
      for (size_t n = 0; n < kN; ++n) {
        double was = 0, is = 0, same = 0;
        for (size_t k = 0; k < kK; ++k) {
          was += static_cast<double>(x_[t * kK + k]) * static_cast<double>(w_[n * kK + k]);
          same += x[k] * static_cast<double>(scaled[n * kK + k]);
          is += std::nearbyint(x[k] / scale) * scale * static_cast<double>(codes.scales[n]) * codes.codes[n * kK + k];
        }
        lost += (is - was) * (is - was);
        moved += (same - was) * (same - was);
        size += was * was;
      }
    }
    EXPECT_LT(moved, 1e-12 * size);  // in floats the product is the same
    return lost / size;
  };
  const std::vector<double> ones(kK, 1.0), s = smooth_factors(m, all, 0.5);
  for (size_t k = 0; k < kK; ++k) {
    double of_x = 0, of_w = 0;
    for (size_t t = 0; t < kT; ++t) of_x = std::max(of_x, std::fabs(static_cast<double>(x_[t * kK + k])));
    for (size_t n = 0; n < kN; ++n) of_w = std::max(of_w, std::fabs(static_cast<double>(w_[n * kK + k])));
    EXPECT_NEAR(s[k], of_x > 0 ? std::sqrt(of_x / of_w) : 1, 1e-9 * s[k]) << k;
  }
  EXPECT_LT(error_of(s), 0.25 * error_of(ones));  // of inputs with outliers
}

TEST_F(GroupCodesOf, ScalesAreNumbersOfF16OfTheirType) {
  std::vector<float> w(64);
  for (const auto& [largest, dtype] : {std::pair(1e30f, DType::kBF16),
                                       {1e30f, DType::kF32},
                                       {1e-30f, DType::kF16},
                                       {3e-6f, DType::kBF16},
                                       {0.0f, DType::kF32}}) {
    w.assign(64, largest);
    const GroupCodes codes = round_to_groups(team_, w, 32, {.bits = 4, .group_len = 32, .scales = dtype});
    for (const float scale : codes.scales) {
      EXPECT_GT(scale, 0);
      EXPECT_EQ(half_to_float(float_to_half(scale)), scale);
      const bool is_bf16 = bf16_to_float(float_to_bf16(scale)) == scale;
      EXPECT_TRUE(is_bf16 || dtype != DType::kBF16);
    }
  }
}

TEST_F(GroupCodesOf, AnInputThatFollowsFromOthersNeedsDamp) {
  for (size_t t = 0; t < kT; ++t) x_[t * kK + 9] = x_[t * kK + 8];
  const InputMoments m = moments(team_);
  EXPECT_TRUE(gptq_factor(team_, m, 0.01, false));
  // Without any, its rest is 0 or what rounding leaves of it: an error or a factor, never a number that is not finite.
  if (const auto f = gptq_factor(team_, m, 0, false); f) {
    for (const double u : f->u) ASSERT_TRUE(std::isfinite(u));
  } else {
    EXPECT_NE(f.error().message.find("--damp"), std::string::npos);
  }
  EXPECT_FALSE(gptq_factor(team_, InputMoments(kK), 0.01, false));
}

}  // namespace
}  // namespace ibid
