#include "text/tokenizer/decoding.h"

#include <utility>

#include "text/tokenizer/byte_alphabet.h"

namespace ibid {
namespace {

// Written again, not in place, where every match would move the rest of the text.
void replace_all(std::string& text, std::string_view what, std::string_view with) {
  size_t at = what.empty() ? text.npos : text.find(what);
  if (at == text.npos) return;
  std::string out;
  out.reserve(text.size());
  size_t from = 0;
  for (; at != text.npos; at = text.find(what, from)) {
    out.append(text, from, at - from).append(with);
    from = at + what.size();
  }
  text = std::move(out.append(text, from));
}

// <0x00> to <0xFF>, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// What BERT's clean-up looks for begins with a space and one of these; most tokens have neither.
bool may_be_cleaned(std::string_view text) {
  constexpr std::string_view kSecond = ".?!,'nd";
  for (size_t at = text.find(' '); at != text.npos && at + 1 < text.size(); at = text.find(' ', at + 1)) {
    if (kSecond.find(text[at + 1]) != kSecond.npos) return true;
  }
  return false;
}

void strip(std::string& text, std::string_view content, size_t left, size_t right) {
  if (content.empty()) return;
  std::string_view kept = text;
  for (; left > 0 && kept.starts_with(content); --left) kept.remove_prefix(content.size());
  for (; right > 0 && kept.ends_with(content); --right) kept.remove_suffix(content.size());
  if (kept.size() < text.size()) text = std::string(kept);
}

}  // namespace

std::string Decoding::bytes_of(std::string_view token, std::span<const DecoderStep> steps) {
  std::string text(token);
  for (const DecoderStep& step : steps) {
    switch (step.kind) {
      case DecoderStep::Kind::kByteLevel: {
        std::string bytes;
        if (byte_alphabet::append_bytes(text, bytes)) text = std::move(bytes);
        break;
      }
      case DecoderStep::Kind::kByteFallback:
        if (int byte = fallback_byte(text); byte >= 0) text.assign(1, static_cast<char>(byte));
        break;
      case DecoderStep::Kind::kReplace:
        replace_all(text, step.pattern, step.content);
        break;
      case DecoderStep::Kind::kStrip:
        strip(text, step.content, step.left, step.right);
        break;
      case DecoderStep::Kind::kMetaspace:
        replace_all(text, step.pattern, " ");
        break;
      case DecoderStep::Kind::kBpe:
        replace_all(text, step.pattern, " ");
        break;
      case DecoderStep::Kind::kSpaced:
        text.insert(0, " ");
        break;
      case DecoderStep::Kind::kWordPiece:
        if (!step.pattern.empty() && text.starts_with(step.pattern)) {
          text.erase(0, step.pattern.size());
        } else {
          text.insert(0, " ");
        }
        if (step.clean_up && may_be_cleaned(text)) {
          static constexpr std::pair<std::string_view, std::string_view> kCleanUp[] = {
              {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
              {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
          for (auto [what, with] : kCleanUp) replace_all(text, what, with);
        }
        break;
    }
  }
  return text;
}

void Decoding::reserve(size_t n_tokens, size_t n_bytes) {
  bytes_.reserve(n_bytes);
  begins_.reserve(n_tokens + 1);
  hidden_.reserve(n_tokens);
}

void Decoding::add(std::string_view token, std::span<const DecoderStep> steps, bool hidden) {
  bool spelled = steps.size() == 1 && steps[0].kind == DecoderStep::Kind::kByteLevel;
  if (steps.empty()) {
    bytes_.append(token);
  } else if (!spelled || !byte_alphabet::append_bytes(token, bytes_)) {
    spelled ? bytes_.append(token) : bytes_.append(bytes_of(token, steps));
  }
  begins_.push_back(bytes_.size());
  hidden_.push_back(hidden);
}

}  // namespace ibid
