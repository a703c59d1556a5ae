// Splitter: cuts a text into the words that a BPE model encodes one by one. The known regular expressions of the field
// are written by hand over our category tables; each stage cuts every piece of the stage before it, and sees nothing
// but its piece (a lookahead at a piece's end sees the end of text, as in the reference).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ibid {

// Gives the end of the piece that begins at p (p < end), matched or between matches. Invalid bytes read as U+FFFD.
using NextPiece = const char* (*)(const char* p, const char* end);

namespace split {
// Expressions that cut all of a text.
const char* gpt2(const char* p, const char* end);        // 's|'t|... ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
const char* llama3(const char* p, const char* end);      // numbers by three, punctuation takes newlines along
const char* minicpm5(const char* p, const char* end);    // llama3 with whole numbers
const char* k2_horizon(const char* p, const char* end);  // llama3 with marks and joiners in words
const char* qwen2(const char* p, const char* end);       // llama3 with single digits
const char* qwen35(const char* p, const char* end);      // qwen2 with marks in words
const char* seed_coder(const char* p, const char* end);  // qwen2, punctuation takes nothing along
const char* ufakzeka(const char* p, const char* end);    // qwen2 without contractions
const char* exaone_moe(const char* p, const char* end);  // qwen2, words take marks and the words after single spaces
const char* gpt4o(const char* p, const char* end);       // words by letter case, contractions stay with them
const char* youtu(const char* p, const char* end);       // gpt4o with single digits
const char* tekken(const char* p, const char* end);      // gpt4o without contractions, single digits
const char* kimi_k2(const char* p, const char* end);     // gpt4o, runs of Han apart
const char* deepseek3(const char* p, const char* end);   // its third, large expression
const char* spark25(const char* p, const char* end);     // deepseek3, line ends one by one

// Stages that cut something out.
const char* bloom(const char* p, const char* end);               //  ?[^(\s|.,!?…。，、।۔،)]+
const char* newline(const char* p, const char* end);             // [\r\n]
const char* lines(const char* p, const char* end);               // [^\n]+|[\n]+
const char* spaced_letters(const char* p, const char* end);      // \s?\p{L}+
const char* spaced_punctuation(const char* p, const char* end);  // \s?\p{P}+
const char* cased_letters(const char* p, const char* end);       // deepseek-llm: \s?[A-Za-zµÀ-Ö...]+
const char* wide_punctuation(const char* p, const char* end);  // deepseek-llm: \s?[!-/:-~！-／：-～‘-‟　-。]+
const char* trailing_space(const char* p, const char* end);    // \s+$
const char* cjk_deepseek(const char* p, const char* end);      // [一-龥ࠀ-一가-퟿]+
const char* cjk_deepseek3(const char* p, const char* end);     // [一-龥぀-ゟ゠-ヿ]+
const char* asian_scripts(const char* p, const char* end);     // afmoe: runs of Han, kana, Thai, Hangul ...
const char* youtu_scripts(const char* p, const char* end);     // runs of Hangul, of wide punctuation, of Han ...
const char* digit(const char* p, const char* end);             // one by one, as the Digits pre-tokenizer has them
const char* number(const char* p, const char* end);            // \p{N}, one by one
const char* digits(const char* p, const char* end);            // \p{N}+
const char* digits_by_three(const char* p, const char* end);   // \p{N}{1,3}
const char* ascii_digits_by_three(const char* p, const char* end);  // [0-9][0-9][0-9]
const char* punctuation(const char* p, const char* end);            // runs, as the Punctuation pre-tokenizer has them
const char* default_punctuation(const char* p, const char* end);    // [\p{P}\$\+<=>\^~\|]+ (llama.cpp's "default")
const char* each_punctuation(const char* p, const char* end);       // [\p{P}!-/:-@\[-`{-~]
const char* sentinels(const char* p, const char* end);              // <sentinel:[0-9]+>
const char* image_tokens(const char* p, const char* end);           // (IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z
const char* chameleon_spaces(const char* p, const char* end);       // ([\t\n]|    |  )

// Digits in threes from the right, each in two stages one after the other.
const char* number_groups(const char* p, const char* end);            // afmoe: \p{N}, then digits_by_three
const char* free_digit_groups(const char* p, const char* end);        // \d{1,3}(?=(?:\d{3})*\b), then
const char* digits_in_threes(const char* p, const char* end);         //   this
const char* before_digit_groups(const char* p, const char* end);      // (?=(\d{3})+(?!\d)), then
const char* before_digits_in_threes(const char* p, const char* end);  //   this
// jais-2, after llama3: runs of white space in pieces of 512, 256, 128, 64, 32, 16, 8, 4, 2, 1.
const char* spaces_by_halves(const char* p, const char* end);

// deepseek-llm's expression for cased_letters; built, as some of its characters are not in normal form C.
std::string cased_letters_pattern();
}  // namespace split

// A family, by its name in GGUF's tokenizer.ggml.pre.
struct SplitFamily {
  std::string_view name;
  std::vector<NextPiece> stages;
  bool ignore_merges = false;  // a word that is a token is that token
  bool nfc = false;            // the family's tokenizer.json normalizes to NFC
  bool characters = false;     // tokens spell characters, with U+2581 for spaces; no stages
};
// Null for unknown names.
const SplitFamily* find_split_family(std::string_view name);
std::span<const SplitFamily> split_families();  // of those that cut alike, the most used name is the first

// A regular expression as tokenizer.json spells it -> the stages that cut the same, one after the other; none for
// others.
std::span<const NextPiece> find_known_pattern(std::string_view pattern);

// Calls sink(word) for every word of [p, end).
template <typename Sink>
void split_words(const NextPiece* stage, size_t n_stages, const char* p, const char* end, Sink&& sink) {
  while (p < end) {
    const char* next = (*stage)(p, end);
    if (n_stages == 1) {
      sink(std::string_view(p, static_cast<size_t>(next - p)));
    } else {
      split_words(stage + 1, n_stages - 1, p, next, sink);
    }
    p = next;
  }
}

}  // namespace ibid
