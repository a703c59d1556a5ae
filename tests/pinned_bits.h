// Bits that tests compare with each other, held to digests that are checked in, so that machines are compared too
// (docs/design.md section 5, law 7): tests/house/arm64.sh runs the same tests on 64-bit ARM.
//
// A test notes what it computed. When it ends, what it noted, as a set (machines have other numbers of instruction
// sets), must have the digest of its line in tests/pinned_bits.txt. IBID_UPDATE_PINNED_BITS=1 writes the lines of the
// tests that ran: this requires a new arithmetic version, unless only the test has changed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "source_paths.h"

namespace ibid {

class PinnedBits final : public ::testing::EmptyTestEventListener {
 public:
  // Registered before main(): a test whose line is there and that notes nothing fails.
  static PinnedBits& instance() {
    static auto* pinned = new PinnedBits;  // GoogleTest's
    return *pinned;
  }
  void note(std::string_view bytes) { noted_.insert(sha256(bytes)); }

 private:
  PinnedBits() {
    std::ifstream in(path());
    for (std::string name, digest; in >> name >> digest;) lines_[name] = digest;
    ::testing::UnitTest::GetInstance()->listeners().Append(this);
  }
  static std::string path() { return source_dir() + "/tests/pinned_bits.txt"; }
  static bool updates() { return std::getenv("IBID_UPDATE_PINNED_BITS") != nullptr; }

  void OnTestStart(const ::testing::TestInfo&) override { noted_.clear(); }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    const auto line = lines_.find(name);
    if (test.result()->Failed() || (noted_.empty() && line == lines_.end())) return;
    Sha256 all;
    for (const Sha256Digest& digest : noted_) all.add(digest.data(), digest.size());
    const std::string digest = all.hex().substr(0, 32);
    if (updates()) {
      lines_[name] = digest;
    } else if (line == lines_.end()) {
      ADD_FAILURE() << "tests/pinned_bits.txt has no line for these bits: " << name << " " << digest;
    } else {
      EXPECT_EQ(digest, line->second) << noted_.size() << " different bits were noted";
    }
  }
  void OnTestProgramEnd(const ::testing::UnitTest&) override {
    if (!updates()) return;
    std::ofstream out(path());
    for (const auto& [name, digest] : lines_) out << name << " " << digest << "\n";
  }

  std::map<std::string, std::string> lines_;
  std::set<Sha256Digest> noted_;
};
inline PinnedBits& pinned_bits_listen = PinnedBits::instance();

inline void note_bits(std::string_view bytes) { PinnedBits::instance().note(bytes); }
// Floats; any NaN is the same as any other, which processors make with other signs.
inline void note_bits(std::span<const uint32_t> cells) {
  std::vector<uint32_t> same(cells.begin(), cells.end());
  for (uint32_t& u : same) u = (u & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : u;
  note_bits(std::string_view(reinterpret_cast<const char*>(same.data()), same.size() * sizeof(uint32_t)));
}
inline void note_bits(const std::vector<float>& row) {
  note_bits(std::span(reinterpret_cast<const uint32_t*>(row.data()), row.size()));
}

}  // namespace ibid
