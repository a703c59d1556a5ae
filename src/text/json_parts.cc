#include "text/json_parts.h"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

namespace ibid::json_parts {
namespace {

namespace json = boost::json;
constexpr size_t kMaxPartBytes = size_t{2} << 20;
constexpr size_t kMaxSteps = 32;

std::string shown(std::string_view s) {
  constexpr size_t kMost = 60;
  return '"' + (s.size() > kMost ? std::string(s.substr(0, kMost)) + "..." : std::string(s)) + '"';
}

Result<json::value> parse(std::string_view text, const char* part) {
  if (text.size() > kMaxPartBytes) {
    return unsupported(std::string(part) + " has " + std::to_string(text.size()) + " bytes; at most " +
                           std::to_string(kMaxPartBytes) + " are read",
                       part);
  }
  boost::system::error_code failure;
  json::parse_options options;
  options.max_depth = 40;
  try {
    json::value value = json::parse(text, failure, {}, options);
    if (failure) return invalid(std::string(part) + " is no JSON: " + failure.message(), part);
    return value;
  } catch (const std::exception& e) {
    return exhausted(std::string(part) + " could not be read: " + e.what(), part);
  }
}

// An object with a "type", and typed looks at its other keys. The first wrong one is remembered.
class Part {
 public:
  Part(const json::value& value, const char* kind) : kind_(kind), object_(value.if_object()) {
    if (!object_) {
      wrong("the form of an object", {});
      return;
    }
    const json::value* type = object_->if_contains("type");
    if (!type || !type->is_string()) {
      wrong("a \"type\" that is a string", {});
      return;
    }
    type_ = std::string_view(type->get_string());
  }
  std::string_view type() const { return type_; }
  const json::value* get(const char* key) const {
    const json::value* v = object_ ? object_->if_contains(key) : nullptr;
    return v && !v->is_null() ? v : nullptr;
  }
  bool flag(const char* key, bool missing) {
    const json::value* v = get(key);
    if (!v) return missing;
    if (!v->is_bool()) return wrong("true or false", key), missing;
    return v->get_bool();
  }
  std::string text(const char* key, std::string_view missing) {
    const json::value* v = get(key);
    if (!v) return std::string(missing);
    if (!v->is_string()) return wrong("a string", key), std::string(missing);
    return std::string(std::string_view(v->get_string()));
  }
  size_t count(const char* key) {
    const json::value* v = get(key);
    if (!v) return 0;
    if (!v->is_int64() || v->get_int64() < 0) return wrong("a whole number, not negative", key), 0;
    return static_cast<size_t>(v->get_int64());
  }
  // Elements of the sequence under the first of the keys that is there.
  const json::array* elements(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const json::value* v = get(key);
      if (v && v->is_array()) return &v->get_array();
    }
    wrong("an array", *keys.begin());
    return nullptr;
  }
  void wrong(std::string_view expected, std::string_view key) {
    if (error_) return;
    std::string what = key.empty() ? std::string() : " under " + shown(key);
    error_ = invalid(std::string("the ") + kind_ + (type_.empty() ? "" : " " + shown(type_)) + " is expected to have " +
                         std::string(expected) + what,
                     kind_);
  }
  Error unknown() const {
    return unsupported(std::string("the ") + kind_ + " " + shown(type_) + " is not supported", kind_);
  }
  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  const char* kind_;
  const json::object* object_ = nullptr;
  std::string_view type_;
  std::optional<Error> error_;
};

// {"String": "..."} or {"Regex": "..."}.
struct PatternText {
  bool regex = false;
  std::string text;
};
PatternText read_pattern(Part& part) {
  PatternText p;
  const json::value* v = part.get("pattern");
  const json::object* o = v ? v->if_object() : nullptr;
  const json::value* string = o ? o->if_contains("String") : nullptr;
  const json::value* regex = o ? o->if_contains("Regex") : nullptr;
  const json::value* text = string ? string : regex;
  if (!text || !text->is_string()) {
    part.wrong("a String or a Regex", "pattern");
    return p;
  }
  p.regex = regex && !string;
  p.text = std::string_view(text->get_string());
  return p;
}

Result<Pattern> compile(const std::string& text, std::string_view where) {
  auto made = Pattern::compile(text);
  if (made) return *made;
  return Error{made.error().kind, "the " + std::string(where) + " has " + made.error().message, std::string(where)};
}

Status read_normalizer_part(const json::value& value, std::vector<NormalizerStep>& steps, double& growth, int depth) {
  using Kind = NormalizerStep::Kind;
  Part part(value, "normalizer");
  TRY(part.status());
  std::string_view type = part.type();
  NormalizerStep step = {.kind = Kind::kForm};
  if (type == "Sequence") {
    const json::array* all = part.elements({"normalizers"});
    TRY(part.status());
    for (const json::value& one : *all) {
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
    growth *= std::max(1.0, static_cast<double>(step.content.size()) / 16.0);
  } else if (type == "Replace") {
    PatternText pattern = read_pattern(part);
    step.content = part.text("content", "");
    step.kind = pattern.regex ? Kind::kReplacePattern : Kind::kReplace;
    TRY(part.status());
    if (pattern.regex) {
      ASSIGN_OR_RETURN(step.expression, compile(pattern.text, "normalizer"));
      growth *= 2.0 + static_cast<double>(step.content.size());
    } else {
      step.pattern = pattern.text;
      double ratio =
          static_cast<double>(step.content.size()) / static_cast<double>(std::max<size_t>(1, pattern.text.size()));
      growth *= std::max(1.0, ratio);
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
  if (growth > 64.0) {
    return unsupported("the normalizers together could make a text more than 64 times as long; that is refused",
                       "normalizer");
  }
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
bool covers_everything(NextPiece known) {
  using namespace split;
  return known == gpt2 || known == llama3 || known == qwen2 || known == gpt4o || known == tekken;
}

Status read_pre_tokenizer_part(const json::value& value, PreTokenizerParts& parts, int depth) {
  using Kind = PreTokenizerStep::Kind;
  using Prefix = PreTokenizerStep::Prefix;
  Part part(value, "pre-tokenizer");
  TRY(part.status());
  std::string_view type = part.type();
  PreTokenizerStep step = {.kind = Kind::kCharacters};
  if (type == "Sequence") {
    const json::array* all = part.elements({"pretokenizers"});
    TRY(part.status());
    for (const json::value& one : *all) {
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
    NextPiece known = pattern.regex ? find_known_pattern(pattern.text) : nullptr;
    bool isolated = step.behavior == SplitBehavior::kIsolated;
    bool kept = step.behavior == SplitBehavior::kRemoved && step.invert && known && covers_everything(known);
    if (known && (isolated || kept)) {
      step.kind = Kind::kKnown;
      step.known = known;
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
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.literal = part.text("replacement", "\xE2\x96\x81");
    std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      part.wrong("always, first or never", "prepend_scheme");
    step.prefix = scheme == "always" ? Prefix::kAlways : scheme == "first" ? Prefix::kFirst : Prefix::kNever;
    step.cut = part.flag("split", true);
    if (step.literal.empty() || step.literal.size() > 4) part.wrong("one character", "replacement");
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

struct Template {
  size_t n_tokens;
  std::vector<TokenId> around = {TokenId::kNone};

  Status wrap(const std::vector<TokenId>& outer) {
    std::vector<TokenId> wrapped;
    for (TokenId id : outer) {
      if (id == TokenId::kNone) {
        wrapped.insert(wrapped.end(), around.begin(), around.end());
      } else {
        wrapped.push_back(id);
      }
      if (wrapped.size() > 1024) return unsupported("the post-processor adds more than 1024 tokens", "post-processor");
    }
    around = std::move(wrapped);
    return {};
  }
  Result<TokenId> id_of(const json::value* v) const {
    if (!v || !v->is_int64() || v->get_int64() < 0 || v->get_int64() >= static_cast<int64_t>(n_tokens)) {
      return invalid("the post-processor names a token id that is not in the vocabulary of " +
                         std::to_string(n_tokens) + " tokens",
                     "post-processor");
    }
    return static_cast<TokenId>(v->get_int64());
  }
};

Status read_template(Part& part, Template& t) {
  const json::array* single = part.elements({"single"});
  TRY(part.status());
  const json::value* special = part.get("special_tokens");
  std::vector<TokenId> outer;
  for (const json::value& item : *single) {
    const json::object* o = item.if_object();
    const json::value* sequence = o ? o->if_contains("Sequence") : nullptr;
    const json::value* token = o ? o->if_contains("SpecialToken") : nullptr;
    const json::object* named = token ? token->if_object() : sequence ? sequence->if_object() : nullptr;
    const json::value* name = named ? named->if_contains("id") : nullptr;
    if (!name || !name->is_string()) {
      part.wrong("pieces that are each a Sequence or a SpecialToken with an id", "single");
      return part.status();
    }
    if (sequence && !token) {
      if (name->get_string() != "A")
        return unsupported("the post-processor's template of one text uses a second one", "post-processor");
      outer.push_back(TokenId::kNone);
      continue;
    }
    const json::object* all = special ? special->if_object() : nullptr;
    const json::value* entry = all ? all->if_contains(name->get_string()) : nullptr;
    const json::object* found = entry ? entry->if_object() : nullptr;
    const json::value* ids = found ? found->if_contains("ids") : nullptr;
    if (!ids || !ids->is_array()) {
      return invalid("the post-processor's template uses the special token " + shown(name->get_string()) +
                         ", which it does not define",
                     "post-processor");
    }
    for (const json::value& id : ids->get_array()) {
      ASSIGN_OR_RETURN(TokenId one, t.id_of(&id));
      outer.push_back(one);
      if (outer.size() > 1024) return unsupported("the post-processor adds more than 1024 tokens", "post-processor");
    }
  }
  return t.wrap(outer);
}

Status read_post_processor_part(const json::value& value, Template& t, int depth) {
  Part part(value, "post-processor");
  TRY(part.status());
  std::string_view type = part.type();
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(part, t);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    TokenId ends[2];
    const char* keys[2] = {"cls", "sep"};
    for (int i = 0; i < 2; ++i) {
      const json::value* pair = part.get(keys[i]);
      if (!pair || !pair->is_array() || pair->get_array().size() != 2) {
        part.wrong("a token and its id", keys[i]);
        return part.status();
      }
      ASSIGN_OR_RETURN(ends[i], t.id_of(&pair->get_array()[1]));
    }
    return t.wrap({ends[0], TokenId::kNone, ends[1]});
  }
  if (type == "Sequence") {
    const json::array* all = part.elements({"processors"});
    TRY(part.status());
    for (const json::value& one : *all) {
      if (depth > 8) return unsupported("post-processors are nested more than eight deep", "post-processor");
      TRY(read_post_processor_part(one, t, depth + 1));
    }
    return {};
  }
  return part.unknown();
}

Status read_decoder_part(const json::value& value, DecoderParts& parts, bool& fused, int depth) {
  using Kind = DecoderStep::Kind;
  Part part(value, "decoder");
  TRY(part.status());
  std::string_view type = part.type();
  DecoderStep step = {.kind = Kind::kByteLevel};
  if (type == "Sequence") {
    const json::array* all = part.elements({"decoders"});
    TRY(part.status());
    for (const json::value& one : *all) {
      if (depth > 8) return unsupported("decoders are nested more than eight deep", "decoder");
      TRY(read_decoder_part(one, parts, fused, depth + 1));
    }
    return {};
  }
  if (type == "Fuse") {
    fused = true;
    return {};
  }
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Replace") {
    PatternText pattern = read_pattern(part);
    step.kind = Kind::kReplace;
    step.pattern = pattern.text;
    step.content = part.text("content", "");
    TRY(part.status());
    if (pattern.regex)
      return unsupported("the decoder \"Replace\" with a regular expression is not supported", "decoder");
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.content = part.text("content", " ");
    step.left = part.count("start");
    step.right = part.count("stop");
    TRY(part.status());
    if (fused) {
      // Of the whole text: the one form in use takes the space of the dummy prefix away.
      if (step.content != " " || step.left > 1 || step.right > 0) {
        return unsupported("the decoder \"Strip\" of a whole text is supported for one leading space only", "decoder");
      }
      parts.strips_leading_space |= step.left == 1;
      return {};
    }
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.pattern = part.text("replacement", "\xE2\x96\x81");
    std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    parts.strips_leading_space |= scheme != "never";
  } else if (type == "WordPiece") {
    step.kind = Kind::kWordPiece;
    step.pattern = part.text("prefix", "##");
    step.clean_up = part.flag("cleanup", true);
    parts.strips_leading_space = true;
  } else if (type == "BPEDecoder") {
    step.kind = Kind::kBpe;
    step.pattern = part.text("suffix", "</w>");
    parts.strips_trailing_space = true;
  } else {
    return part.unknown();
  }
  TRY(part.status());
  parts.steps.push_back(std::move(step));
  if (parts.steps.size() > kMaxSteps) return unsupported("there are more than 32 decoders in a sequence", "decoder");
  return {};
}

}  // namespace

Result<std::vector<NormalizerStep>> read_normalizer(std::string_view text) {
  ASSIGN_OR_RETURN(json::value value, parse(text, "normalizer"));
  std::vector<NormalizerStep> steps;
  double growth = 1.0;
  if (!value.is_null()) TRY(read_normalizer_part(value, steps, growth, 0));
  return steps;
}

Result<PreTokenizerParts> read_pre_tokenizer(std::string_view text) {
  ASSIGN_OR_RETURN(json::value value, parse(text, "pre-tokenizer"));
  PreTokenizerParts parts;
  if (!value.is_null()) TRY(read_pre_tokenizer_part(value, parts, 0));
  return parts;
}

Result<std::vector<TokenId>> read_post_processor(std::string_view text, size_t n_tokens) {
  ASSIGN_OR_RETURN(json::value value, parse(text, "post-processor"));
  Template t = {.n_tokens = n_tokens};
  if (!value.is_null()) TRY(read_post_processor_part(value, t, 0));
  return t.around;
}

Result<DecoderParts> read_decoder(std::string_view text) {
  ASSIGN_OR_RETURN(json::value value, parse(text, "decoder"));
  DecoderParts parts;
  bool fused = false;
  if (!value.is_null()) {
    TRY(read_decoder_part(value, parts, fused, 0));
  } else {
    parts.steps.push_back({.kind = DecoderStep::Kind::kSpaced});  // without a decoder, tokens stand apart
    parts.strips_leading_space = true;
  }
  return parts;
}

Result<Config> read_config(std::string_view text) {
  Config config;
  if (text.empty()) return config;
  ASSIGN_OR_RETURN(json::value value, parse(text, "tokenizer_config.json"));
  const json::object* all = value.if_object();
  if (!all) return invalid("tokenizer_config.json is not an object", "tokenizer_config.json");
  auto token = [all](const char* key) -> std::string {
    const json::value* v = all->if_contains(key);
    if (v && v->is_object()) v = v->get_object().if_contains("content");
    return v && v->is_string() ? std::string(std::string_view(v->get_string())) : std::string();
  };
  config.bos = token("bos_token");
  config.eos = token("eos_token");
  config.unknown = token("unk_token");
  config.padding = token("pad_token");
  config.separator = token("sep_token");
  const json::value* chat = all->if_contains("chat_template");
  if (chat && chat->is_string()) config.chat_template = std::string_view(chat->get_string());
  if (chat && chat->is_array()) {
    // Several by name: the one called default.
    for (const json::value& one : chat->get_array()) {
      const json::object* o = one.if_object();
      const json::value* name = o ? o->if_contains("name") : nullptr;
      const json::value* body = o ? o->if_contains("template") : nullptr;
      if (name && body && body->is_string() && *name == "default")
        config.chat_template = std::string_view(body->get_string());
    }
  }
  return config;
}

}  // namespace ibid::json_parts
