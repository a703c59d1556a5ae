// PreTokenizer: cuts a normalized text into words; a sequence of the reference's pre-tokenizers. Each step cuts every
// piece of the step before it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pattern.h"
#include "text/tokenizer/scratch.h"
#include "text/tokenizer/splitter.h"
#include "text/tokenizer/word_model.h"

namespace ibid {

// What becomes of a match: dropped, a piece of its own, one piece with neighbouring matches, or joined to a neighbour.
enum class SplitBehavior { kRemoved, kIsolated, kContiguous, kMergedWithPrevious, kMergedWithNext };

struct PreTokenizerStep {
  enum class Kind {
    kKnown,       // one of split::, isolated
    kPattern,     // Split with a regular expression without a hand-written splitter
    kLiteral,     // Split with a text
    kCharacters,  // Punctuation, Digits, WhitespaceSplit: every character with a trait is a match
    kWords,       // Whitespace: \w+|[^\w\s]+
    kMetaspace,   // SentencePiece's spaces
    kByteLevel,   // bytes as printable characters
  };
  Kind kind;
  NextPiece known = nullptr;                          // kKnown
  Pattern pattern = {};                               // kPattern
  std::string literal = {};                           // kLiteral; kMetaspace: what spaces become
  uint32_t traits = 0;                                // kCharacters
  SplitBehavior behavior = SplitBehavior::kIsolated;  // kPattern, kLiteral, kCharacters
  bool invert = false;                                // kPattern, kLiteral: the gaps are the matches
  enum class Prefix { kNever, kFirst, kAlways };
  Prefix prefix = Prefix::kNever;  // kMetaspace, kByteLevel: a space before the text
  bool cut = false;                // kMetaspace: before every space; kByteLevel: as GPT-2 does
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  // With bytes_for_model, words reach the model as bytes although a ByteLevel step spells them; steps after that step
  // see the spelling, as in the reference.
  PreTokenizer(std::vector<PreTokenizerStep> steps, bool bytes_for_model);
  bool empty() const { return steps_.empty(); }

  // Passes the words of `text` to the model one by one. at_start: `text` begins the whole text.
  void encode(std::string_view text, bool at_start, const WordModel& model, EncodeScratch& scratch,
              std::vector<TokenId>& out) const;

 private:
  struct Sink;
  void run(size_t step, std::string_view piece, bool at_start, Sink& sink) const;
  void run_spans(size_t step, std::string_view piece, bool at_start, Sink& sink) const;
  void run_metaspace(size_t step, std::string_view piece, bool at_start, Sink& sink) const;
  void run_byte_level(size_t step, std::string_view piece, bool at_start, Sink& sink) const;

  std::vector<PreTokenizerStep> steps_;
  std::vector<NextPiece> known_only_;  // all steps, where each is kKnown but for a last plain ByteLevel
  bool bytes_for_model_ = false;
  bool words_are_spelled_ = false;  // after the last step, words are in the byte alphabet
};

}  // namespace ibid
