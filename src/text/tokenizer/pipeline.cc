#include "text/tokenizer/pipeline.h"

#include <algorithm>
#include <atomic>

#include "base/utf8.h"

namespace ibid {
namespace {

uint64_t next_serial() {
  static std::atomic<uint64_t> serial{0};
  return ++serial;
}

bool overlaps(std::span<const TextRange> ranges, size_t begin, size_t end) {
  auto r = std::upper_bound(ranges.begin(), ranges.end(), begin,
                            [](size_t at, const TextRange& range) { return at < range.end; });
  return r != ranges.end() && r->begin < end;
}

// The ranges of a text in which U+FFFD stands for every invalid sequence. What lies inside such a sequence moves to its
// edges.
std::vector<TextRange> ranges_after_repair(std::string_view text, std::span<const TextRange> ranges) {
  std::vector<TextRange> moved(ranges.begin(), ranges.end());
  size_t at = 0, after = 0, next_begin = 0, next_end = 0;
  while (at < text.size()) {
    utf8::CodePoint c = utf8::decode(text.data() + at, text.data() + text.size());
    size_t width = c.valid ? c.len : 3;
    for (; next_begin < moved.size() && ranges[next_begin].begin < at + c.len; ++next_begin) {
      moved[next_begin].begin = after;
    }
    for (; next_end < moved.size() && ranges[next_end].end <= at + c.len; ++next_end) {
      moved[next_end].end = ranges[next_end].end <= at ? after : after + width;
    }
    at += c.len;
    after += width;
  }
  for (; next_begin < moved.size(); ++next_begin) moved[next_begin].begin = after;
  for (; next_end < moved.size(); ++next_end) moved[next_end].end = after;
  return moved;
}

}  // namespace

Pipeline::Pipeline() : serial_(next_serial()) {}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> out;
  encode(text, options, out);
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string text;
  for (TokenId id : ids) text.append(token_bytes(id, special));
  if (strips_leading_space() && text.starts_with(' ')) text.erase(0, 1);
  std::string repaired;
  std::string_view valid = utf8::replace_invalid(text, repaired);
  return valid.data() == text.data() ? std::move(text) : std::move(repaired);
}

void Pipeline::encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const {
  EncodeScratch& scratch = scratch_of(serial_);
  scratch.budget = Pattern::Budget::of_text(text.size());
  EncodeOptions in = options;
  std::vector<TextRange> moved;
  if (!options.strict_bytes) {
    std::string_view valid = utf8::replace_invalid(text, scratch.repaired);
    if (valid.data() != text.data() && !options.plain_ranges.empty()) {
      moved = ranges_after_repair(text, options.plain_ranges);
      in.plain_ranges = moved;
    }
    text = valid;
  }
  if (!options.add_special || around.empty()) {
    encode_text(text, in, scratch, out);
  } else {
    for (TokenId id : around) {
      if (id == kText) {
        encode_text(text, in, scratch, out);
      } else {
        out.push_back(id);
      }
    }
  }
  scratch.trim();
}

std::string Pipeline::decode(std::span<const TokenId> ids, bool special) const {
  std::string text = Tokenizer::decode(ids, special);
  if (decoding.strips_trailing_space() && text.ends_with(' ')) text.pop_back();
  return text;
}

void Pipeline::encode_text(std::string_view text, const EncodeOptions& options, EncodeScratch& scratch,
                           std::vector<TokenId>& out) const {
  size_t from = 0;
  auto special_here = [&](size_t begin, size_t end) {
    return options.parse_special && !overlaps(options.plain_ranges, begin, end);
  };
  auto allowed = [&](const AddedTokens::Match& m) {
    return !m.token->special || special_here(m.text_begin, m.text_end);
  };
  AddedTokens::Match match;
  while (!raw_added.empty() && from < text.size() && raw_added.find(text, from, allowed, match)) {
    encode_segment(text.substr(from, match.begin - from), from == 0, special_here(from, match.begin), scratch, out);
    out.push_back(match.token->id);
    from = match.end;
  }
  encode_segment(text.substr(from), from == 0, special_here(from, text.size()), scratch, out);
}

// `special`: all of the segment is text in which special tokens may be spelled.
void Pipeline::encode_segment(std::string_view segment, bool at_start, bool special, EncodeScratch& scratch,
                              std::vector<TokenId>& out) const {
  if (segment.empty()) return;
  std::string_view text = normalizer.normalize(segment, scratch);
  auto allowed = [&](const AddedTokens::Match& m) { return !m.token->special || special; };
  size_t from = 0;
  AddedTokens::Match match;
  while (!normalized_added.empty() && from < text.size() && normalized_added.find(text, from, allowed, match)) {
    pre_tokenizer.encode(text.substr(from, match.begin - from), at_start && from == 0, *model, scratch, out);
    out.push_back(match.token->id);
    from = match.end;
  }
  pre_tokenizer.encode(text.substr(from), at_start && from == 0, *model, scratch, out);
}

}  // namespace ibid
