// Normalizer: what happens to a text before it is cut into words; a sequence of the reference's normalizers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/scratch.h"
#include "text/tokenizer/unicode.h"

namespace ibid {

struct NormalizerStep {
  enum class Kind {
    kForm,
    kLower,
    kStripAccents,
    kReplace,
    kReplacePattern,
    kPrepend,
    kStrip,
    kBert,
    kNmt,
    kSquashSpaces
  };
  Kind kind;
  unicode::Form form = unicode::Form::kNfc;                                   // kForm
  std::string pattern = {};                                                   // kReplace
  std::string content = {};                                                   // kReplace, kReplacePattern, kPrepend
  Pattern expression = {};                                                    // kReplacePattern
  bool left = false, right = false;                                           // kStrip
  bool clean = false, chinese = false, strip_accents = false, lower = false;  // kBert
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}
  bool empty() const { return steps_.empty(); }
  // The normalized text: `text` itself where nothing changes, else a buffer of scratch (valid until the next call).
  std::string_view normalize(std::string_view text, EncodeScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace ibid
