#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/unicode.h"

namespace ibid {
namespace {

using Step = PreTokenizerStep;
using Kind = PreTokenizerStep::Kind;

struct Span {
  size_t begin;
  size_t end;
  bool match;
};

// The matches of a step and the gaps between them, in order.
class Spans {
 public:
  Spans(const Step& step, std::string_view text, Pattern::Budget& budget)
      : step_(step), text_(text), valid_(step.kind == Kind::kPattern && utf8::is_valid(text)), budget_(budget) {}

  bool next(Span& span) {
    if (!next_found(span)) return false;
    if (step_.invert) span.match = !span.match;
    return true;
  }

 private:
  bool next_found(Span& span) {
    if (has_found_) {
      has_found_ = false;
      span = {found_.begin, found_.end, true};
      at_ = found_.end;
      return true;
    }
    if (at_ == text_.size() && (step_.kind != Kind::kPattern || done_)) return false;
    switch (step_.kind) {
      case Kind::kPattern:
        return next_of_pattern(span);
      case Kind::kLiteral:
        return next_of_literal(span);
      case Kind::kWords:
        return next_of_words(span);
      default:
        return next_of_characters(span);
    }
  }
  bool gap_then_found(Span& span) {
    if (found_.begin == at_) {
      span = {found_.begin, found_.end, true};
      at_ = found_.end;
    } else {
      has_found_ = true;
      span = {at_, found_.begin, false};
    }
    return true;
  }
  bool rest(Span& span) {
    done_ = true;
    if (at_ == text_.size()) return false;
    span = {at_, text_.size(), false};
    at_ = text_.size();
    return true;
  }
  bool next_of_pattern(Span& span) {
    while (from_ <= text_.size() && step_.pattern.find(text_, valid_, from_, budget_, found_)) {
      bool empty = found_.begin == found_.end;
      bool after_match = matched_ && found_.end == last_end_;
      from_ = found_.end;
      if (empty)
        from_ += from_ < text_.size() ? utf8::decode(text_.data() + from_, text_.data() + text_.size()).len : 1;
      if (empty && after_match) continue;  // the reference takes no empty match right after another
      matched_ = true;
      last_end_ = found_.end;
      return gap_then_found(span);
    }
    return rest(span);
  }
  bool next_of_literal(Span& span) {
    size_t at = step_.literal.empty() ? text_.npos : text_.find(step_.literal, at_);
    if (at == text_.npos) return rest(span);
    found_ = {at, at + step_.literal.size()};
    return gap_then_found(span);
  }
  uint32_t traits_at(size_t at, uint32_t& len) const {
    utf8::CodePoint c = utf8::decode(text_.data() + at, text_.data() + text_.size());
    len = c.len;
    return unicode::record(c.value);
  }
  bool next_of_characters(Span& span) {
    uint32_t len;
    bool match = (traits_at(at_, len) & step_.traits) != 0;
    size_t end = at_ + len;
    while (!match && end < text_.size() && !(traits_at(end, len) & step_.traits)) end += len;
    span = {at_, end, match};
    at_ = end;
    return true;
  }
  bool next_of_words(Span& span) {
    // White space is the match here, and dropped.
    using namespace unicode;
    auto kind_of = [](uint32_t traits) { return traits & kWord ? 1 : traits & kSpace ? 2 : 0; };
    uint32_t len;
    int kind = kind_of(traits_at(at_, len));
    size_t end = at_ + len;
    while (end < text_.size() && kind_of(traits_at(end, len)) == kind) end += len;
    span = {at_, end, kind == 2};
    at_ = end;
    return true;
  }

  const Step& step_;
  std::string_view text_;
  bool valid_;  // UTF-8
  Pattern::Budget& budget_;
  size_t at_ = 0;    // end of the last span
  size_t from_ = 0;  // where the expression searches next
  size_t last_end_ = 0;
  bool matched_ = false, done_ = false, has_found_ = false;
  Pattern::Found found_ = {};
};

}  // namespace

struct PreTokenizer::Sink {
  const WordModel& model;
  EncodeScratch& scratch;
  std::vector<TokenId>& out;
};

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStep> steps, bool bytes_for_model)
    : steps_(std::move(steps)), bytes_for_model_(bytes_for_model) {
  // A trailing ByteLevel step that only spells and cuts is a known cut where the model takes bytes.
  bool known = bytes_for_model_;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    bool last = i + 1 == steps_.size();
    if (s.kind == Kind::kByteLevel) words_are_spelled_ = true;
    if (s.kind == Kind::kKnown) {
      known_only_.push_back(s.known);
    } else if (s.kind == Kind::kByteLevel && last && s.prefix == Step::Prefix::kNever) {
      if (s.cut) known_only_.push_back(split::gpt2);
    } else {
      known = false;
    }
  }
  if (!known) known_only_.clear();
}

void PreTokenizer::encode(std::string_view text, bool at_start, const WordModel& model, EncodeScratch& scratch,
                          std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (!known_only_.empty()) {
    split_words(known_only_.data(), known_only_.size(), text.data(), text.data() + text.size(),
                [&](std::string_view word) { model.encode_word(word, scratch, out); });
    return;
  }
  if (scratch.step_text.size() < steps_.size() + 1) scratch.step_text.resize(steps_.size() + 1);
  if (scratch.step_word.size() < steps_.size()) scratch.step_word.resize(steps_.size());
  Sink sink = {model, scratch, out};
  run(0, text, at_start, sink);
}

void PreTokenizer::run(size_t i, std::string_view piece, bool at_start, Sink& sink) const {
  if (piece.empty()) return;
  if (i == steps_.size()) {
    if (words_are_spelled_ && bytes_for_model_) {
      std::string& bytes = sink.scratch.step_text[i];
      bytes.clear();
      byte_alphabet::append_bytes(piece, bytes);
      piece = bytes;
    }
    if (!piece.empty()) sink.model.encode_word(piece, sink.scratch, sink.out);
    return;
  }
  switch (steps_[i].kind) {
    case Kind::kKnown: {
      const char* end = piece.data() + piece.size();
      for (const char* p = piece.data(); p < end;) {
        const char* next = steps_[i].known(p, end);
        run(i + 1, {p, static_cast<size_t>(next - p)}, at_start && p == piece.data(), sink);
        p = next;
      }
      return;
    }
    case Kind::kMetaspace:
      return run_metaspace(i, piece, at_start, sink);
    case Kind::kByteLevel:
      return run_byte_level(i, piece, at_start, sink);
    default:
      return run_spans(i, piece, at_start, sink);
  }
}

void PreTokenizer::run_spans(size_t i, std::string_view text, bool at_start, Sink& sink) const {
  const Step& step = steps_[i];
  Spans spans(step, text, sink.scratch.budget);
  auto emit = [&](const Span& s) { run(i + 1, text.substr(s.begin, s.end - s.begin), at_start && s.begin == 0, sink); };
  Span span, held = {};
  bool holds = false;
  while (spans.next(span)) {
    switch (step.behavior) {
      case SplitBehavior::kRemoved:
        if (!span.match) emit(span);
        break;
      case SplitBehavior::kIsolated:
        emit(span);
        break;
      case SplitBehavior::kContiguous:
        if (holds && held.match == span.match) {
          held.end = span.end;
        } else {
          if (holds) emit(held);
          held = span, holds = true;
        }
        break;
      case SplitBehavior::kMergedWithPrevious:
        // A match joins the gap before it; what follows another match stands alone.
        if (span.match && holds && !held.match) {
          emit({held.begin, span.end, true});
          held = {span.end, span.end, true};
        } else {
          if (holds) emit(held);
          held = span, holds = true;
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (!span.match && holds) {
          emit({held.begin, span.end, false});
          holds = false;
        } else {
          if (holds) emit(held);
          holds = span.match;
          held = span;
          if (!span.match) emit(span);
        }
        break;
    }
  }
  if (holds) emit(held);
}

void PreTokenizer::run_metaspace(size_t i, std::string_view piece, bool at_start, Sink& sink) const {
  const Step& step = steps_[i];
  std::string& text = sink.scratch.step_text[i];
  text.clear();
  bool wanted = step.prefix == Step::Prefix::kAlways || (step.prefix == Step::Prefix::kFirst && at_start);
  if (wanted && piece[0] != ' ' && !piece.starts_with(step.literal)) text += step.literal;
  for (char c : piece) c == ' ' ? text.append(step.literal) : text.append(1, c);
  if (!step.cut) return run(i + 1, text, at_start, sink);
  // Before every space, except that a run of them gives pieces of one each and the last goes with the word.
  std::string_view all = text;
  for (size_t begin = 0; begin < all.size();) {
    size_t next =
        all.find(step.literal, begin == 0 && !all.starts_with(step.literal) ? 0 : begin + step.literal.size());
    if (next == all.npos) next = all.size();
    run(i + 1, all.substr(begin, next - begin), at_start && begin == 0, sink);
    begin = next;
  }
}

void PreTokenizer::run_byte_level(size_t i, std::string_view piece, bool at_start, Sink& sink) const {
  const Step& step = steps_[i];
  std::string& spaced = sink.scratch.step_text[i];
  if (step.prefix == Step::Prefix::kAlways && piece[0] != ' ') {
    spaced.assign(" ").append(piece);
    piece = spaced;
  }
  const char* end = piece.data() + piece.size();
  for (const char* p = piece.data(); p < end;) {
    const char* next = step.cut ? split::gpt2(p, end) : end;
    std::string& word = sink.scratch.step_word[i];
    bool first = at_start && p == piece.data();
    if (bytes_for_model_ && i + 1 == steps_.size()) {
      sink.model.encode_word({p, static_cast<size_t>(next - p)}, sink.scratch, sink.out);
    } else {
      word.clear();
      byte_alphabet::append_spelled({p, static_cast<size_t>(next - p)}, word);
      run(i + 1, word, first, sink);
    }
    p = next;
  }
}

}  // namespace ibid
