#include <algorithm>
#include <iterator>

#include "text/splitter.h"

namespace ibid {
namespace {

using namespace split;

const std::vector<SplitFamily>& families() {
  static const std::vector<SplitFamily> kFamilies = [] {
    std::vector<SplitFamily> all;
    auto add = [&all](std::vector<NextPiece> stages, bool ignore_merges, bool nfc,
                      std::initializer_list<std::string_view> names) {
      for (std::string_view name : names) all.push_back({name, stages, ignore_merges, nfc});
    };
    add({gpt2}, false, false,
        {"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code",
         "roberta-bpe", "gigachat", "a.x-4.0", "mellum", "exaone4", "jais", "trillion", "granite-docling"});
    add({gpt2}, false, true, {"mpt", "olmo", "modern-bert"});
    add({digit, gpt2}, false, false, {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"});
    add({digit, gpt2}, false, true, {"command-r"});
    add({llama3}, true, false,
        {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"});
    add({llama3}, false, false, {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"});
    add({qwen2}, false, true, {"qwen2", "deepseek-r1-qwen", "megrez", "kormo"});
    add({qwen2}, false, false, {"stablelm2", "hunyuan", "solar-open"});
    add({gpt4o}, false, false, {"gpt-4o", "llama4", "minimax-m2"});
    add({tekken}, true, false, {"tekken"});
    add({newline, cased_letters, wide_punctuation, trailing_space, cjk_deepseek, digit}, false, false,
        {"deepseek-llm"});
    add({newline, spaced_letters, spaced_punctuation, cjk_deepseek, digit}, false, false, {"deepseek-coder"});
    add({digits_by_three, cjk_deepseek3, deepseek3}, false, false, {"deepseek-v3", "hunyuan-dense", "joyai-llm"});
    add({punctuation, gpt2, ascii_digits_by_three}, false, false, {"falcon"});
    add({bloom}, false, false, {"bloom", "poro-chat", "gpt3-finnish"});
    add({bloom, digit}, false, false, {"viking"});
    add({default_punctuation, gpt2, digits, ascii_digits_by_three}, false, false, {"default", ""});
    return all;
  }();
  return kFamilies;
}

struct KnownPattern {
  std::string_view text;
  NextPiece stage;
};
constexpr KnownPattern kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     qwen2},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     gpt4o},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     tekken},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     deepseek3},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     deepseek3},
    {R"( ?[^(\s|[.,!?…。，、।۔،])]+)", bloom},
    {R"( ?[^(\s|.,!?…。，、।۔،)]+)", bloom},
    {"[\r\n]", newline},
    {R"([\r\n])", newline},
    {R"(\s?\p{L}+)", spaced_letters},
    {R"(\s?\p{P}+)", spaced_punctuation},
    {"\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", wide_punctuation},
    {R"(\s+$)", trailing_space},
    {"[一-龥\u0800-一가-\uD7FF]+", cjk_deepseek},
    {"[一-龥\u3040-ゟ゠-ヿ]+", cjk_deepseek3},
    {R"(\p{N})", number},
    {R"(\p{N}+)", digits},
    {R"(\p{N}{1,3})", digits_by_three},
    {R"([0-9][0-9][0-9])", ascii_digits_by_three},
};

}  // namespace

const SplitFamily* find_split_family(std::string_view name) {
  const std::vector<SplitFamily>& all = families();
  auto found = std::find_if(all.begin(), all.end(), [name](const SplitFamily& f) { return f.name == name; });
  return found == all.end() ? nullptr : &*found;
}

NextPiece find_known_pattern(std::string_view pattern) {
  for (const KnownPattern& known : kPatterns) {
    if (known.text == pattern) return known.stage;
  }
  static const std::string kCasedLetters = cased_letters_pattern();
  return pattern == kCasedLetters ? cased_letters : nullptr;
}

}  // namespace ibid
