// Post-processors, decoders and tokenizer_config.json.
#include <algorithm>

#include "text/tokenizer/json_part.h"
#include "text/tokenizer/json_parts.h"

namespace ibid::json_parts {
namespace {

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
  Result<TokenId> id_of(const Json& v) const {
    const int64_t* id = v.integer();
    if (!id || *id < 0 || *id >= static_cast<int64_t>(n_tokens)) {
      return invalid("the post-processor names a token id that is not in the vocabulary of " +
                         std::to_string(n_tokens) + " tokens",
                     "post-processor");
    }
    return static_cast<TokenId>(*id);
  }
};

Status read_template(Part& part, Template& t) {
  const Json::Array* single = part.elements({"single"});
  TRY(part.status());
  if (single->size() > 1024) {
    return unsupported("the post-processor's template has more than 1024 pieces", "post-processor");
  }
  const Json* special = part.get("special_tokens");
  std::vector<TokenId> outer;
  for (const Json& item : *single) {
    const Json* sequence = item.find("Sequence");
    const Json* token = item.find("SpecialToken");
    const Json* named = token ? token : sequence;
    const Json* id_value = named ? named->find("id") : nullptr;
    const std::string* name = id_value ? id_value->string() : nullptr;
    if (!name) {
      part.wrong("pieces that are each a Sequence or a SpecialToken with an id", "single");
      return part.status();
    }
    if (sequence && !token) {
      if (*name != "A")
        return unsupported("the post-processor's template of one text uses a second one", "post-processor");
      outer.push_back(TokenId::kNone);
      continue;
    }
    const Json* entry = special ? special->find(*name) : nullptr;
    const Json* ids = entry ? entry->find("ids") : nullptr;
    if (!ids || !ids->array()) {
      return invalid(
          "the post-processor's template uses the special token " + in_quotes(*name) + ", which it does not define",
          "post-processor");
    }
    for (const Json& id : *ids->array()) {
      ASSIGN_OR_RETURN(TokenId one, t.id_of(id));
      outer.push_back(one);
      if (outer.size() > 1024) return unsupported("the post-processor adds more than 1024 tokens", "post-processor");
    }
  }
  return t.wrap(outer);
}

Status read_post_processor_part(const Json& value, Template& t, int depth) {
  Part part(value, "post-processor");
  TRY(part.status());
  std::string_view type = part.type();
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(part, t);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    TokenId ends[2];
    const char* keys[2] = {"cls", "sep"};
    for (int i = 0; i < 2; ++i) {
      const Json* pair = part.get(keys[i]);
      if (!pair || !pair->array() || pair->array()->size() != 2) {
        part.wrong("a token and its id", keys[i]);
        return part.status();
      }
      ASSIGN_OR_RETURN(ends[i], t.id_of((*pair->array())[1]));
    }
    return t.wrap({ends[0], TokenId::kNone, ends[1]});
  }
  if (type == "Sequence") {
    const Json::Array* all = part.elements({"processors"});
    TRY(part.status());
    for (const Json& one : *all) {
      if (depth > 8) return unsupported("post-processors are nested more than eight deep", "post-processor");
      TRY(read_post_processor_part(one, t, depth + 1));
    }
    return {};
  }
  return part.unknown();
}

Status read_decoder_part(const Json& value, DecoderParts& parts, bool& fused, int depth) {
  using Kind = DecoderStep::Kind;
  Part part(value, "decoder");
  TRY(part.status());
  std::string_view type = part.type();
  DecoderStep step = {.kind = Kind::kByteLevel};
  if (type == "Sequence") {
    const Json::Array* all = part.elements({"decoders"});
    TRY(part.status());
    for (const Json& one : *all) {
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
    part.grow(growth_of_replace(step.pattern, step.content), parts.growth);
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.content = part.text("content", " ");
    step.left = part.count("start");
    step.right = part.count("stop");
    TRY(part.status());
    if (fused) {
      // Applies to the whole text: the one form in use removes the space of the dummy prefix.
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

Result<std::vector<TokenId>> read_post_processor(std::string_view text, size_t n_tokens) {
  ASSIGN_OR_RETURN(Json value, parse(text, "post-processor"));
  Template t = {.n_tokens = n_tokens};
  if (!value.is_null()) TRY(read_post_processor_part(value, t, 0));
  return t.around;
}

Result<DecoderParts> read_decoder(std::string_view text) {
  ASSIGN_OR_RETURN(Json value, parse(text, "decoder"));
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
  ASSIGN_OR_RETURN(Json value, parse(text, "tokenizer_config.json"));
  if (!value.object()) return invalid("tokenizer_config.json is not an object", "tokenizer_config.json");
  auto token = [&value](const char* key) {
    const Json* v = value.find(key);
    if (v && v->object()) v = v->find("content");
    return v && v->string() ? *v->string() : std::string();
  };
  config.bos = token("bos_token");
  config.eos = token("eos_token");
  config.unknown = token("unk_token");
  config.padding = token("pad_token");
  config.separator = token("sep_token");
  const Json* chat = value.find("chat_template");
  if (chat && chat->string()) config.chat_template = *chat->string();
  if (chat && chat->array()) {
    // Several by name: the one called default.
    for (const Json& one : *chat->array()) {
      const Json* name = one.find("name");
      const Json* body = one.find("template");
      if (name && name->string() && *name->string() == "default" && body && body->string())
        config.chat_template = *body->string();
    }
  }
  return config;
}

}  // namespace ibid::json_parts
