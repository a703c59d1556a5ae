#include <algorithm>
#include <iterator>

#include "text/tokenizer/splitter.h"

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
    add({digit, gpt2}, false, false, {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"});
    add({digit, gpt2}, false, true, {"command-r"});
    add({llama3}, true, false,
        {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
         "glm4", "glm5"});
    add({llama3}, false, false, {"dbrx", "smaug-bpe", "chatglm-bpe"});
    add({llama3, spaces_by_halves}, false, false, {"jais-2"});
    add({digits_by_three, minicpm5}, true, false, {"minicpm5"});
    add({k2_horizon}, false, false, {"k2-horizon"});
    add({qwen2}, false, true, {"qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"});
    add({qwen2}, false, false,
        {"stablelm2", "hunyuan", "solar-open", "grok-2", "bailingmoe", "bailingmoe2", "llada-moe"});
    add({qwen35}, false, true, {"qwen35"});
    add({lines, qwen2}, false, false, {"laguna"});
    add({seed_coder}, false, false, {"seed-coder"});
    add({ufakzeka}, false, false, {"ufakzeka"});
    add({exaone_moe}, false, false, {"exaone-moe"});
    add({gpt4o}, false, false, {"gpt-4o", "llama4", "minimax-m2", "kanana2", "talkie"});
    add({gpt4o}, true, false, {"granite-embed-multi-97m"});
    add({free_digit_groups, digits_in_threes, gpt4o}, false, true, {"tiny_aya", "cohere2moe"});
    add({youtu_scripts, youtu}, true, false, {"youtu"});
    add({kimi_k2}, false, false, {"kimi-k2"});
    add({tekken}, true, false, {"tekken"});
    add({newline, cased_letters, wide_punctuation, trailing_space, cjk_deepseek, digit}, false, false,
        {"deepseek-llm"});
    add({newline, spaced_letters, spaced_punctuation, cjk_deepseek, digit}, false, false, {"deepseek-coder"});
    add({digits_by_three, cjk_deepseek3, deepseek3}, false, false,
        {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"});
    add({digits_by_three, cjk_deepseek3, spark25, number}, false, false, {"spark2_5"});
    add({number_groups, digits_by_three, asian_scripts, deepseek3}, false, false, {"afmoe"});
    add({digits, before_digit_groups, before_digits_in_threes}, false, false, {"superbpe"});
    add({sentinels, image_tokens, chameleon_spaces, number, each_punctuation, gpt2}, false, false, {"chameleon"});
    add({punctuation, gpt2, ascii_digits_by_three}, false, false, {"falcon"});
    add({bloom}, false, false, {"bloom", "poro-chat", "gpt3-finnish"});
    add({bloom, digit}, false, false, {"viking"});
    add({default_punctuation, gpt2, digits, ascii_digits_by_three}, false, false, {"default", ""});
    for (std::string_view name : {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}) {
      all.push_back({.name = name, .stages = {}, .characters = true});
    }
    return all;
  }();
  return kFamilies;
}

struct KnownPattern {
  std::string_view text;
  NextPiece stages[2];  // the second one may be null
  size_t n_stages() const { return stages[1] ? 2 : 1; }
};
constexpr KnownPattern kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {gpt2, nullptr}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {llama3, nullptr}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {qwen2, nullptr}},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {gpt4o, nullptr}},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {tekken, nullptr}},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {deepseek3, nullptr}},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     {deepseek3, nullptr}},
    {R"( ?[^(\s|[.,!?…。，、।۔،])]+)", {bloom, nullptr}},
    {R"( ?[^(\s|.,!?…。，、।۔،)]+)", {bloom, nullptr}},
    {"[\r\n]", {newline, nullptr}},
    {R"([\r\n])", {newline, nullptr}},
    {R"(\s?\p{L}+)", {spaced_letters, nullptr}},
    {R"(\s?\p{P}+)", {spaced_punctuation, nullptr}},
    {"\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", {wide_punctuation, nullptr}},
    {R"(\s+$)", {trailing_space, nullptr}},
    {"[一-龥\u0800-一가-\uD7FF]+", {cjk_deepseek, nullptr}},
    {"[一-龥\u3040-ゟ゠-ヿ]+", {cjk_deepseek3, nullptr}},
    {R"(\p{N})", {number, nullptr}},
    {R"(\p{N}+)", {digits, nullptr}},
    {R"(\p{N}{1,3})", {digits_by_three, nullptr}},
    {R"([0-9][0-9][0-9])", {ascii_digits_by_three, nullptr}},
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {qwen35, nullptr}},
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {minicpm5, nullptr}},
    {R"re([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re", {ufakzeka, nullptr}},
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)re",
     {exaone_moe, nullptr}},
    {R"re('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)re",
     {qwen2, nullptr}},
    {R"re([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {kimi_k2, nullptr}},
    {R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {youtu, nullptr}},
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})re",
     {llama3, spaces_by_halves}},
    {R"re(\d{1,3}(?=(?:\d{3})*\b))re", {free_digit_groups, digits_in_threes}},
    {R"re((?=(\d{3})+(?!\d)))re", {before_digit_groups, before_digits_in_threes}},
    {R"re([^\n]+|[\n]+)re", {lines, nullptr}},
    {R"re(<sentinel:[0-9]+>)re", {sentinels, nullptr}},
    {R"re((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)re", {image_tokens, nullptr}},
    {R"re(([\t\n]|    |  ))re", {chameleon_spaces, nullptr}},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| "
     "?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     {seed_coder, nullptr}},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+",
     {spark25, nullptr}},
    {"[\u4E00-\u9FFF\u3400-\u4DBF\u8C48-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F\u2F00-\u2FDF\u0E40-\u0E7F\u0E80-"
     "\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+",
     {asian_scripts, nullptr}},
    {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
     {youtu_scripts, nullptr}},
    {R"re([\p{P}!-/:-@\[-`{-~])re", {each_punctuation, nullptr}},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}|\\p{M}|\u200C|\u200D)+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {k2_horizon, nullptr}},
};

}  // namespace

const SplitFamily* find_split_family(std::string_view name) {
  const std::vector<SplitFamily>& all = families();
  auto found = std::find_if(all.begin(), all.end(), [name](const SplitFamily& f) { return f.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::span<const SplitFamily> split_families() { return families(); }

std::span<const NextPiece> find_known_pattern(std::string_view pattern) {
  for (const KnownPattern& known : kPatterns) {
    if (known.text == pattern) return {known.stages, known.n_stages()};
  }
  static const std::string kCasedLetters = cased_letters_pattern();
  static constexpr NextPiece kCased[] = {cased_letters};
  return pattern == kCasedLetters ? std::span<const NextPiece>(kCased) : std::span<const NextPiece>();
}

}  // namespace ibid
