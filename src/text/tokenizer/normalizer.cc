#include "text/tokenizer/normalizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace ibid {
namespace {

using Kind = NormalizerStep::Kind;

template <typename Function>
void each_code_point(std::string_view text, Function&& f) {
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    utf8::CodePoint c = utf8::decode(p, end);
    f(c, std::string_view(p, c.len));
    p += c.len;
  }
}

// Most texts are normal already; one look decides.
uint32_t traits_that_matter(const NormalizerStep& step) {
  using namespace unicode;
  switch (step.kind) {
    case Kind::kForm:
      switch (step.form) {
        case Form::kNfc:
          return kMayCompose;
        case Form::kNfd:
          return kDecomposes | 0xFF000000u;
        case Form::kNfkc:
          return kMayCompose | kCompatDecomposes | kDecomposes;
        case Form::kNfkd:
          return kCompatDecomposes | kDecomposes | 0xFF000000u;
      }
      return ~0u;
    case Kind::kLower:
      return kHasLower;
    case Kind::kStripAccents:
      return kStrippedAccent;
    default:
      return ~0u;
  }
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void replace_all(std::string_view text, std::string_view what, std::string_view with, std::string& out) {
  while (!what.empty()) {
    size_t at = text.find(what);
    if (at == text.npos) break;
    out.append(text.substr(0, at)).append(with);
    text.remove_prefix(at + what.size());
  }
  out.append(text);
}

void replace_pattern(std::string_view text, const Pattern& pattern, std::string_view with, Pattern::Budget& budget,
                     std::string& out) {
  size_t at = 0;
  const bool valid = utf8::is_valid(text);
  Pattern::Found found;
  for (size_t from = 0; from <= text.size() && pattern.find(text, valid, from, budget, found);) {
    out.append(text.substr(at, found.begin - at)).append(with);
    at = found.end;
    from = found.end;
    if (found.begin == found.end) {
      // After an empty match the search goes on after the next code point.
      from += from < text.size() ? utf8::decode(text.data() + from, text.data() + text.size()).len : 1;
    }
  }
  out.append(text.substr(at));
}

std::string_view trimmed(std::string_view text, bool left, bool right) {
  auto is_space = [](char32_t c) { return unicode::has(c, unicode::kSpace); };
  while (left && !text.empty()) {
    utf8::CodePoint c = utf8::decode(text.data(), text.data() + text.size());
    if (!is_space(c.value)) break;
    text.remove_prefix(c.len);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && utf8::goes_on(text[begin])) --begin;
    if (!is_space(utf8::decode(text.data() + begin, text.data() + text.size()).value)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

void clean_for_bert(std::string_view text, const NormalizerStep& step, std::string& out) {
  each_code_point(text, [&](const utf8::CodePoint& c, std::string_view bytes) {
    uint32_t r = unicode::record(c.value);
    if (step.clean && c.valid && (r & unicode::kBertDropped)) return;
    if (step.clean && (r & unicode::kBertSpace)) {
      out.push_back(' ');
    } else if (step.chinese && is_chinese(c.value)) {
      out.append(" ").append(bytes).append(" ");
    } else {
      out.append(bytes);
    }
  });
}

void drop(std::string_view text, uint32_t trait, std::string& out) {
  each_code_point(text, [&](const utf8::CodePoint& c, std::string_view bytes) {
    if (!unicode::has(c.value, trait)) out.append(bytes);
  });
}

void apply_nmt(std::string_view text, std::string& out) {
  each_code_point(text, [&](const utf8::CodePoint& c, std::string_view bytes) {
    char32_t v = c.value;
    bool dropped = (v >= 1 && v <= 8) || v == 0xB || (v >= 0xE && v <= 0x1F) || v == 0x7F || v == 0x8F || v == 0x9F;
    bool space = v == 9 || v == 0xA || v == 0xC || v == 0xD || v == 0x1680 || (v >= 0x200B && v <= 0x200F) ||
                 v == 0x2028 || v == 0x2029 || v == 0x2581 || v == 0xFEFF || (v == 0xFFFD && c.valid);
    if (dropped) return;
    space ? out.append(" ") : out.append(bytes);
  });
}

// SentencePiece's remove_extra_whitespaces: none at the ends, one between words.
void squash_spaces(std::string_view text, std::string& out) {
  size_t first = out.size();
  for (char c : text) {
    if (c != ' ' || (out.size() > first && out.back() != ' ')) out.push_back(c);
  }
  if (out.size() > first && out.back() == ' ') out.pop_back();
}

}  // namespace

std::string_view Normalizer::normalize(std::string_view text, EncodeScratch& scratch) const {
  size_t turn = 0;
  auto fresh = [&]() -> std::string& {
    std::string& out = scratch.normalized[turn];
    turn ^= 1;
    out.clear();
    return out;
  };
  for (const NormalizerStep& step : steps_) {
    if (text.empty()) break;
    if (uint32_t matters = traits_that_matter(step); matters != ~0u) {
      bool changes = false;
      for (const char *p = text.data(), *end = p + text.size(); p < end && !changes;) {
        utf8::CodePoint c = utf8::decode(p, end);
        changes = (unicode::record(c.value) & matters) != 0;
        p += c.len;
      }
      if (!changes) continue;
    }
    switch (step.kind) {
      case Kind::kForm: {
        std::string& out = fresh();
        unicode::append_normalized(text, step.form, out);
        text = out;
        break;
      }
      case Kind::kLower: {
        std::string& out = fresh();
        unicode::append_lower(text, out);
        text = out;
        break;
      }
      case Kind::kStripAccents: {
        std::string& out = fresh();
        drop(text, unicode::kStrippedAccent, out);
        text = out;
        break;
      }
      case Kind::kReplace: {
        if (text.find(step.pattern) == text.npos) break;
        std::string& out = fresh();
        replace_all(text, step.pattern, step.content, out);
        text = out;
        break;
      }
      case Kind::kReplacePattern: {
        std::string& out = fresh();
        replace_pattern(text, step.expression, step.content, scratch.budget, out);
        text = out;
        break;
      }
      case Kind::kPrepend: {
        std::string& out = fresh();
        out.append(step.content).append(text);
        text = out;
        break;
      }
      case Kind::kStrip:
        text = trimmed(text, step.left, step.right);
        break;
      case Kind::kBert: {
        std::string* out = &fresh();
        clean_for_bert(text, step, *out);
        text = *out;
        if (step.strip_accents) {
          out = &fresh();
          unicode::append_normalized(text, unicode::Form::kNfd, *out);
          text = *out;
          out = &fresh();
          drop(text, unicode::kBertAccent, *out);
          text = *out;
        }
        if (step.lower) {
          out = &fresh();
          unicode::append_lower(text, *out);
          text = *out;
        }
        break;
      }
      case Kind::kNmt: {
        std::string& out = fresh();
        apply_nmt(text, out);
        text = out;
        break;
      }
      case Kind::kSquashSpaces: {
        std::string& out = fresh();
        squash_spaces(text, out);
        text = out;
        break;
      }
    }
  }
  return text;
}

}  // namespace ibid
