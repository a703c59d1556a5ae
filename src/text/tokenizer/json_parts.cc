// Normalizers and pre-tokenizers.
#include "text/tokenizer/json_parts.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizer/json_part.h"

namespace ibid::json_parts {
namespace {

Result<Pattern> compile(const std::string& text, std::string_view where) {
  auto made = Pattern::compile(text);
  if (made) return *made;
  return Error{made.error().kind, "the " + std::string(where) + " has " + made.error().message, std::string(where)};
}

Status read_normalizer_part(const Json& value, std::vector<NormalizerStep>& steps, double& growth, int depth) {
  using Kind = NormalizerStep::Kind;
  Part part(value, "normalizer");
  TRY(part.status());
  std::string_view type = part.type();
  NormalizerStep step = {.kind = Kind::kForm};
  if (type == "Sequence") {
    const Json::Array* all = part.elements({"normalizers"});
    TRY(part.status());
    for (const Json& one : *all) {
      if (depth > 8) return unsupported("normalizers are nested more than eight deep", "normalizer");
      TRY(read_normalizer_part(one, steps, growth, depth + 1));
    }
    return {};
  }
  if (type == "NFC") {
    step.form = unicode::Form::kNfc;
  } else if (type == "NFD") {
    step.form = unicode::Form::kNfd;
  } else if (type == "NFKC") {
    step.form = unicode::Form::kNfkc;
  } else if (type == "NFKD") {
    step.form = unicode::Form::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLower;
  } else if (type == "StripAccents") {
    step.kind = Kind::kStripAccents;
  } else if (type == "Nmt") {
    step.kind = Kind::kNmt;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.left = part.flag("strip_left", true);
    step.right = part.flag("strip_right", true);
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.content = part.text("prepend", "");
    part.grow(static_cast<double>(step.content.size()) / 16.0, growth);
  } else if (type == "Replace") {
    PatternText pattern = read_pattern(part);
    step.content = part.text("content", "");
    step.kind = pattern.regex ? Kind::kReplacePattern : Kind::kReplace;
    TRY(part.status());
    if (pattern.regex) {
      ASSIGN_OR_RETURN(step.expression, compile(pattern.text, "normalizer"));
      part.grow(2.0 + static_cast<double>(step.content.size()), growth);
    } else {
      step.pattern = pattern.text;
      part.grow(growth_of_replace(step.pattern, step.content), growth);
    }
  } else if (type == "BertNormalizer") {
    step.kind = Kind::kBert;
    step.clean = part.flag("clean_text", true);
    step.chinese = part.flag("handle_chinese_chars", true);
    step.lower = part.flag("lowercase", true);
    step.strip_accents = part.flag("strip_accents", step.lower);
  } else {
    return part.unknown();
  }
  TRY(part.status());
  steps.push_back(std::move(step));
  if (steps.size() > kMaxSteps) return unsupported("there are more than 32 normalizers in a sequence", "normalizer");
  return {};
}

std::optional<SplitBehavior> behavior_of(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  return std::nullopt;
}

// Expressions that leave no gap between their matches.
bool covers_everything(std::span<const NextPiece> known) {
  using namespace split;
  constexpr NextPiece kAll[] = {gpt2,     llama3,     minicpm5, k2_horizon, qwen2,  qwen35, seed_coder,
                                ufakzeka, exaone_moe, gpt4o,    youtu,      tekken, kimi_k2};
  return !known.empty() && std::find(std::begin(kAll), std::end(kAll), known[0]) != std::end(kAll);
}

Status read_pre_tokenizer_part(const Json& value, PreTokenizerParts& parts, int depth) {
  using Kind = PreTokenizerStep::Kind;
  using Prefix = PreTokenizerStep::Prefix;
  Part part(value, "pre-tokenizer");
  TRY(part.status());
  std::string_view type = part.type();
  PreTokenizerStep step = {.kind = Kind::kCharacters};
  if (type == "Sequence") {
    const Json::Array* all = part.elements({"pretokenizers"});
    TRY(part.status());
    for (const Json& one : *all) {
      if (depth > 8) return unsupported("pre-tokenizers are nested more than eight deep", "pre-tokenizer");
      TRY(read_pre_tokenizer_part(one, parts, depth + 1));
    }
    return {};
  }
  auto behavior = [&](std::string_view missing) {
    std::string name = part.text("behavior", missing);
    std::optional<SplitBehavior> b = behavior_of(name);
    if (!b) part.wrong("Removed, Isolated, Contiguous, MergedWithPrevious or MergedWithNext", "behavior");
    return b.value_or(SplitBehavior::kIsolated);
  };
  if (type == "ByteLevel") {
    if (parts.byte_level)
      return unsupported("two ByteLevel pre-tokenizers in one sequence are not supported", "pre-tokenizer");
    step.kind = Kind::kByteLevel;
    step.prefix = part.flag("add_prefix_space", true) ? Prefix::kAlways : Prefix::kNever;
    step.cut = part.flag("use_regex", true);
    parts.byte_level = true;
  } else if (type == "Split") {
    PatternText pattern = read_pattern(part);
    step.behavior = behavior("");
    step.invert = part.flag("invert", false);
    TRY(part.status());
    std::span<const NextPiece> known = pattern.regex ? find_known_pattern(pattern.text) : std::span<const NextPiece>();
    bool isolated = step.behavior == SplitBehavior::kIsolated;
    bool kept = step.behavior == SplitBehavior::kRemoved && step.invert && covers_everything(known);
    if (!known.empty() && (isolated || kept)) {
      step.kind = Kind::kKnown;
      step.known = known[0];
      if (known.size() > 1) {
        parts.steps.push_back(step);
        step.known = known[1];
      }
    } else if (pattern.regex) {
      step.kind = Kind::kPattern;
      ASSIGN_OR_RETURN(step.pattern, compile(pattern.text, "pre-tokenizer"));
    } else {
      step.kind = Kind::kLiteral;
      step.literal = pattern.text;
    }
  } else if (type == "CharDelimiterSplit") {
    step.kind = Kind::kLiteral;
    step.literal = part.text("delimiter", "");
    part.check_literal(step.literal);
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.literal = part.text("replacement", "\xE2\x96\x81");
    std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      part.wrong("always, first or never", "prepend_scheme");
    step.prefix = scheme == "always" ? Prefix::kAlways : scheme == "first" ? Prefix::kFirst : Prefix::kNever;
    step.cut = part.flag("split", true);
    if (!utf8::is_one(step.literal)) part.wrong("one character", "replacement");
    part.grow(4.0, parts.growth);  // one character for every space, and one before every piece
  } else if (type == "Whitespace") {
    step.kind = Kind::kWords;
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "WhitespaceSplit") {
    step.traits = unicode::kSpace;
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "Punctuation") {
    step.traits = unicode::kPunctuation;
    step.behavior = behavior("Isolated");
  } else if (type == "Digits") {
    step.traits = unicode::kNumeric;
    step.behavior = part.flag("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    if (step.behavior == SplitBehavior::kIsolated) {
      step.kind = Kind::kKnown;
      step.known = split::digit;
    }
  } else if (type == "BertPreTokenizer") {
    step.traits = unicode::kSpace;
    step.behavior = SplitBehavior::kRemoved;
    parts.steps.push_back(step);
    step.traits = unicode::kPunctuation;
    step.behavior = SplitBehavior::kIsolated;
  } else {
    return part.unknown();
  }
  TRY(part.status());
  parts.steps.push_back(std::move(step));
  if (parts.steps.size() > kMaxSteps)
    return unsupported("there are more than 32 pre-tokenizers in a sequence", "pre-tokenizer");
  return {};
}

}  // namespace

Result<std::vector<NormalizerStep>> read_normalizer(std::string_view text) {
  ASSIGN_OR_RETURN(Json value, parse(text, "normalizer"));
  std::vector<NormalizerStep> steps;
  double growth = 1.0;
  if (!value.is_null()) TRY(read_normalizer_part(value, steps, growth, 0));
  return steps;
}

Result<PreTokenizerParts> read_pre_tokenizer(std::string_view text) {
  ASSIGN_OR_RETURN(Json value, parse(text, "pre-tokenizer"));
  PreTokenizerParts parts;
  if (!value.is_null()) TRY(read_pre_tokenizer_part(value, parts, 0));
  return parts;
}

}  // namespace ibid::json_parts
