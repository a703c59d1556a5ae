#include "bench/load/prompts.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

namespace ibid::load {
namespace {

constexpr const char* kWords[] = {
    "the",   "harbour", "morning",  "of",      "and",    "a",      "river",  "to",    "old",   "house",   "in",
    "light", "that",    "people",   "walked",  "slowly", "garden", "it",     "was",   "early", "window",  "for",
    "on",    "are",     "with",     "kitchen", "they",   "bread",  "be",     "at",    "one",   "winter",  "have",
    "this",  "from",    "station",  "by",      "hot",    "word",   "but",    "what",  "some",  "carried", "is",
    "you",   "or",      "had",      "letters", "book",   "we",     "many",   "out",   "other", "paper",   "were",
    "all",   "there",   "when",     "up",      "use",    "your",   "how",    "said",  "an",    "each",    "she",
    "which", "do",      "their",    "time",    "if",     "will",   "way",    "about", "music", "then",    "them",
    "write", "would",   "like",     "so",      "these",  "her",    "long",   "make",  "thing", "see",     "him",
    "two",   "has",     "look",     "more",    "day",    "could",  "go",     "come",  "did",   "number",  "sound",
    "no",    "most",    "my",       "over",    "know",   "water",  "than",   "call",  "first", "who",     "may",
    "down",  "side",    "been",     "now",     "find",   "any",    "new",    "work",  "part",  "take",    "get",
    "place", "made",    "live",     "where",   "after",  "back",   "little", "only",  "round", "man",     "year",
    "came",  "show",    "every",    "good",    "me",     "give",   "our",    "under", "name",  "very",    "through",
    "just",  "form",    "sentence", "great",   "think",  "say",    "help",   "low",   "line",  "differ",  "turn",
    "cause", "much",    "mean",     "before",  "move",   "right",  "boy",    "same",  "tell",  "does",    "set",
    "three", "want",    "air",      "well",    "also",   "play",   "small",  "end",   "put",   "home",    "read"};

// A way through words: those of a text in its order, or random ones in sentences.
class Words {
 public:
  Words(std::vector<std::string> text, uint64_t seed) : text_(std::move(text)), random_(seed) {}

  std::string take(int n) {
    std::string out;
    size_t at = text_.empty() ? 0 : random_() % text_.size();
    for (int i = 0; i < n; ++i) {
      if (i > 0) out += ' ';
      if (!text_.empty()) {
        out += text_[at++ % text_.size()];
      } else {
        out += kWords[random_() % std::size(kWords)];
        if (i % 12 == 11) out += '.';
      }
    }
    return out;
  }

 private:
  std::vector<std::string> text_;
  std::mt19937_64 random_;
};

}  // namespace

Result<std::vector<std::string>> make_prompts(const PromptOptions& options, size_t n) {
  std::vector<std::string> text;
  if (!options.file.empty()) {
    std::ifstream file(options.file);
    for (std::string word; file >> word;) text.push_back(word);
    if (text.empty()) return not_found("The text " + options.file + " cannot be read, or has no words.", "prompts");
  }
  std::string shared = Words(text, options.seed).take(options.n_shared_words);
  if (!shared.empty()) shared += "\n\n";
  Words words(std::move(text), options.seed + 0x9e3779b97f4a7c15 * (options.run + 1));
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) out.push_back(shared + words.take(options.n_words));
  return out;
}

}  // namespace ibid::load
