// Calls whose arguments stand between tags: BEGIN N NAME_END (KEY_BEGIN K KEY_END V VALUE_END)* END.
//
// A value may hold any text, tags too, and models omit, repeat and misspell tags. So what follows a tag decides whether
// it counts: a closing one where the call goes on or ends after it, a key's start where a value was not closed before
// it if it names an argument that the tool has and the call has not yet, a call's end if nothing shows that the value
// continues. The look-ahead is bounded, so that time stays linear.
#include <algorithm>
#include <utility>

#include "text/output/answer_parser.h"
#include "text/output/markers.h"

namespace ibid {
namespace {

constexpr size_t kMaxBlanks = 64;     // between a tag and what follows it
constexpr size_t kMaxDoubled = 4;     // closing tags
constexpr size_t kMaxStrange = 4096;  // bytes between arguments
constexpr size_t kAlike = 5;          // first bytes that a misspelled tag has right, at least
constexpr std::string_view kCdata = "<![CDATA[";

size_t n_common(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

bool is_on_lines(const ToolFormat& tools) { return tools.value_ends[0][0] == '\n'; }

}  // namespace

const ArgumentTypes& AnswerParser::types() {
  std::unique_ptr<ArgumentTypes>& types = types_[name_];
  if (types == nullptr) {
    const auto tool = std::ranges::find(*options_.tools, name_, &DeclaredTool::name);
    types = std::make_unique<ArgumentTypes>(tool != options_.tools->end() ? tool->parameters : nullptr);
  }
  return *types;
}

bool AnswerParser::have_required() {
  return std::ranges::all_of(types().required(), [&](const std::string& name) { return keys_.contains(name); });
}

void AnswerParser::end_tagged_call(Parts& parts) {
  add_arguments(keys_.empty() ? "{}" : "}", parts);
  end_call(parts);
  flush_strange(parts);
  state_ = State::kBetween;
}

bool AnswerParser::step_tagged(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  const std::string_view rest = std::string_view(buffer_).substr(n);
  const markers::Fit fit = markers::fit(rest, tagged_marks_);
  if (fit.which < 0 && fit.may_grow && !is_at_end_) return false;
  if (fit.which < 0) {
    size_t len = n + 1 + markers::find(rest.substr(1), tagged_marks_).at;
    while (markers::is_blank(buffer_[len - 1])) --len;  // at its end it is between tags
    if (const size_t room = kMaxStrange - std::min(kMaxStrange, strange_.size()); len > room) {
      for (len = room; len < buffer_.size() && (buffer_[len] & 0xC0) == 0x80;) ++len;
      strange_ += buffer_.substr(0, len);
      drop(len);
      return break_call(parts), true;
    }
    strange_ += buffer_.substr(0, len);
    drop(len);
    return true;
  }
  size_t which = static_cast<size_t>(fit.which);
  if (which < tools_.key_begins.size()) {
    key_mark_ = tagged_marks_[which];
    key_.clear();
    drop(n + fit.len);
    state_ = State::kKey;
    return true;
  }
  which -= tools_.key_begins.size();
  if (which < tools_.ends.size()) {
    drop(n + fit.len);
    end_tagged_call(parts);
    awaits_end_ = false;
  } else if (which < call_marks_.size()) {  // what comes after a call, or begins the next one
    drop(n);
    end_tagged_call(parts);
  } else {
    drop(n + fit.len);  // a closing tag too many
  }
  return true;
}

bool AnswerParser::step_key(Parts& parts) {
  const markers::Found found = markers::find(buffer_, tools_.key_ends);
  const size_t n_good = std::min(buffer_.find_first_of("<\n"), buffer_.size());
  // A key that is too long breaks off at one place, however the text is cut.
  size_t n = std::min({found.at, n_good, kMaxName + 1 - key_.size()});
  while (n < found.at && n < n_good && (buffer_[n] & 0xC0) == 0x80) ++n;
  key_ += buffer_.substr(0, n);
  const bool is_bad = key_.size() > kMaxName || n_good < found.at;
  drop(n);
  if (is_bad) {
    strange_ += key_mark_ + key_;
    state_ = State::kTagged;
    return true;
  }
  if (found.which < 0) return false;
  const std::string& mark = tools_.key_ends[static_cast<size_t>(found.which)];
  drop(mark.size());
  key_.resize(std::min(key_.size(), key_.find('"')));
  const auto contains = [&](const char* words) { return mark.find(words) != std::string::npos; };
  hint_ = contains("\"true\"") || contains("type=\"string\"") ? ValueHint::kText
          : contains("\"false\"") || contains("type=")        ? ValueHint::kJson
                                                              : ValueHint::kNone;
  add_arguments((keys_.empty() ? "{\"" : ",\"") + json_escaped(key_) + "\":", parts);
  keys_.insert(key_);
  value_.clear();
  is_string_value_ = has_value_bytes_ = has_maybe_end_ = is_cdata_ = false;
  n_value_checked_ = 0;
  n_newlines_ = is_on_lines(tools_) && mark != "\n" ? 1 : 0;
  state_ = State::kValue;
  return true;
}

bool AnswerParser::step_value(Parts& parts) {
  if (n_newlines_ > 0) {
    n_newlines_ = 0;
    if (buffer_[0] == '\n') return drop(1), true;
  }
  if (tools_.has_cdata && !has_value_bytes_ && n_value_checked_ == 0) {
    is_cdata_ = buffer_.starts_with(kCdata);
    if (!is_cdata_ && kCdata.starts_with(buffer_) && !is_at_end_) return false;
  }
  size_t i = n_value_checked_;
  for (; i < buffer_.size(); ++i) {
    const Ending ending = ending_at(i);
    if (ending.is == Is::kNo) continue;
    if (ending.is == Is::kOpen) break;
    const size_t begin = ending.is_of_call && has_maybe_end_ ? maybe_end_ : ending.begin;
    const size_t end = ending.is_of_call && has_maybe_end_ ? maybe_end_ : ending.end;
    add_value(std::string_view(buffer_).substr(0, begin), true, parts);
    drop(end);
    state_ = State::kTagged;
    return true;
  }
  n_value_checked_ = i;
  const size_t n = has_maybe_end_ ? maybe_end_ : i;
  add_value(std::string_view(buffer_).substr(0, n), false, parts);
  drop(n);
  n_value_checked_ -= n;
  maybe_end_ = 0;
  if (!is_at_end_ || !is_own_end_ || !has_maybe_end_) return false;
  add_value("", true, parts);
  state_ = State::kTagged;
  return true;
}

// A string is emitted as it arrives; the type of another value is known only at its end.
void AnswerParser::add_value(std::string_view piece, bool is_whole, Parts& parts) {
  has_value_bytes_ = has_value_bytes_ || !piece.empty();
  if (is_string_value_) return add_arguments(json_escaped(piece) + (is_whole ? "\"" : ""), parts);
  value_ += piece;
  const ArgumentType& type = types().of(key_);
  if (is_cdata_) {
    if (!is_whole) return;
    const std::string inner = value_.substr(kCdata.size(), value_.size() - kCdata.size() - 3);
    return add_arguments(type.read(inner, ValueHint::kText), parts);
  }
  if (is_whole) return add_arguments(type.read(value_, hint_), parts);
  if (!type.is_string_already(value_, hint_)) return;
  is_string_value_ = true;
  add_arguments('"' + json_escaped(std::exchange(value_, {})), parts);
}

// Whether one of these, or something similar, follows here.
AnswerParser::Is AnswerParser::is_structure(std::string_view rest, std::span<const std::string> marks) const {
  const size_t n = markers::n_blank(rest);
  if (n > kMaxBlanks) return Is::kNo;
  rest.remove_prefix(n);
  const markers::Fit fit = markers::fit(rest, marks);
  if (fit.which >= 0) return Is::kYes;
  if (rest.empty() || fit.may_grow) return is_at_end_ ? Is::kYes : Is::kOpen;
  return std::ranges::any_of(marks, [&](const std::string& m) { return n_common(rest, m) >= kAlike; }) ? Is::kYes
                                                                                                       : Is::kNo;
}

// Whether a closing tag stands here that is misspelled, and its length.
AnswerParser::Is AnswerParser::is_misspelled(std::string_view rest, size_t* len) const {
  const std::string_view mark = tools_.value_ends.back();
  const size_t n = n_common(rest, mark);
  const size_t n_alike = std::max(kAlike, n_common(mark, tools_.ends[0]) + 3);
  if (n == rest.size()) return is_at_end_ ? Is::kNo : Is::kOpen;
  if (n < n_alike || markers::fit(rest, tagged_marks_).which >= 0) return Is::kNo;
  const size_t end = rest.substr(0, n + kMaxBlanks).find_first_of("<>\n", n);
  if (end == std::string_view::npos) return rest.size() < n + kMaxBlanks && !is_at_end_ ? Is::kOpen : Is::kNo;
  *len = rest[end] == '>' ? end + 1 : end;
  return Is::kYes;
}

// Whether the start of a key follows that the call may have now.
AnswerParser::Is AnswerParser::is_next_key(std::string_view rest) {
  const std::string_view name = rest.substr(tools_.key_begins[0].size());
  const markers::Found found = markers::find(name.substr(0, kMaxName + kMaxBlanks), tools_.key_ends);
  if (found.at > kMaxName || name.substr(0, found.at).find_first_of("<\n") != std::string_view::npos) return Is::kNo;
  if (found.which < 0) return is_at_end_ ? Is::kNo : Is::kOpen;
  std::string key(name.substr(0, found.at));
  key.resize(std::min(key.size(), key.find('"')));
  return types().may_have(key) && !keys_.contains(key) ? Is::kYes : Is::kNo;
}

// At a place in a CDATA block, which "]]>" before the closing tag ends.
bool AnswerParser::is_in_cdata(size_t at) const {
  const size_t n = std::min<size_t>(at, 3), n_before = std::min(value_.size(), 3 - n);
  return value_.substr(value_.size() - n_before) + buffer_.substr(at - n, n) != "]]>";
}

AnswerParser::Ending AnswerParser::ending_at(size_t at) {
  if ((buffer_[at] != '\n' && buffer_[at] != '<') || (is_cdata_ && is_in_cdata(at))) return {};
  const Ending closed = close_at(at);
  return closed.is == Is::kNo ? missing_close_at(at) : closed;
}

// A closing tag, exact or misspelled, once or more often.
AnswerParser::Ending AnswerParser::close_at(size_t at) {
  const std::string_view rest = std::string_view(buffer_).substr(at);
  const Ending no{}, open{.is = Is::kOpen};
  const markers::Fit fit = markers::fit(rest, tools_.value_ends);
  size_t len = fit.len;
  bool is_misspelt = false;
  if (fit.which < 0) {
    if (fit.may_grow) return is_at_end_ ? no : open;
    const size_t n_line = rest[0] == '\n' ? 1 : 0;
    const Is is = is_misspelled(rest.substr(n_line), &len);
    if (is != Is::kYes) return is == Is::kNo ? no : open;
    len += n_line;
    is_misspelt = true;
  }
  const bool is_inline = rest[0] != '\n' && is_on_lines(tools_);
  for (size_t i = 0;; ++i) {
    const std::string_view following = rest.substr(len);
    const size_t n = markers::n_blank(following);
    const markers::Fit again = markers::fit(following.substr(n), tools_.value_ends);
    if (n > kMaxBlanks) break;
    if (again.which < 0 && again.may_grow && !is_at_end_) return open;
    if (again.which < 0) break;
    if (is_misspelt || is_inline || i == kMaxDoubled) return no;
    len += n + again.len;
  }
  const std::string_view following = rest.substr(len);
  const size_t n_marks = tools_.key_begins.size() + call_marks_.size();
  const Is is = is_structure(following, std::span(tagged_marks_).first(n_marks));
  if (is == Is::kNo || (is_misspelt && is_at_end_)) return no;
  if (is_misspelt && is == Is::kYes) {  // what follows must not be
    const markers::Fit exact =
        markers::fit(following.substr(markers::n_blank(following)), std::span(tagged_marks_).first(n_marks));
    if (exact.which < 0) return no;
  }
  return {.is = is, .begin = at, .end = at + len};
}

// What comes after a value's end, without it.
AnswerParser::Ending AnswerParser::missing_close_at(size_t at) {
  std::string_view rest = std::string_view(buffer_).substr(at);
  const Ending no{}, open{.is = is_at_end_ ? Is::kNo : Is::kOpen};
  const bool is_line = rest[0] == '\n' || (at == 0 && !has_value_bytes_);
  if (!is_line && !tools_.is_inline) return no;
  size_t n = rest[0] == '\n' ? 1 : 0;
  while (is_line && n < rest.size() && n <= kMaxBlanks && (rest[n] == ' ' || rest[n] == '\t')) ++n;
  rest.remove_prefix(n);
  if (rest.empty()) return open;
  const markers::Fit key = markers::fit(rest, tools_.key_begins);
  if (key.which >= 0) {
    const Is is = is_next_key(rest);
    return is == Is::kOpen ? open : Ending{.is = is, .begin = at, .end = at + n};
  }
  const markers::Fit fit = markers::fit(rest, call_marks_);
  if (fit.which < 0) return key.may_grow || fit.may_grow ? open : no;
  const std::string_view following = rest.substr(fit.len);
  const auto which = static_cast<size_t>(fit.which);
  if (which >= tools_.ends.size() + tools_.around.size()) {  // the next call's start
    const size_t n_name = static_cast<size_t>(std::ranges::find_if_not(following, is_of_name) - following.begin());
    if (n_name == following.size() && n_name <= kMaxName) return open;
    if (!is_declared(following.substr(0, n_name))) return no;
    return {.is = Is::kYes, .begin = at, .end = at + n, .is_of_call = true};
  }
  const Is is = is_structure(following, call_marks_);
  if (is == Is::kOpen) return open;
  const bool is_end = markers::n_blank(following) == following.size();
  if (is == Is::kYes && !(is_end && !is_own_end_)) return {.is = Is::kYes, .begin = at, .end = at + n};
  if (which < tools_.ends.size() && !has_maybe_end_) has_maybe_end_ = true, maybe_end_ = at;
  return no;
}

}  // namespace ibid
