// Tool calls: where they begin and end, and those whose arguments are one object after a name.
#include <algorithm>
#include <utility>

#include "base/json_writer.h"
#include "text/output/answer_parser.h"
#include "text/output/markers.h"

namespace ibid {
namespace {

bool is_in(const std::vector<std::string>& marks, const std::string& mark) {
  return std::ranges::find(marks, mark) != marks.end();
}

}  // namespace

std::string json_escaped(std::string_view text) {
  std::string out;
  JsonWriter(out).string(text);
  return out.substr(1, out.size() - 2);
}

bool AnswerParser::is_declared(std::string_view name) const {
  return std::ranges::find(*options_.tools, name, &DeclaredTool::name) != options_.tools->end();
}

void AnswerParser::enter_call(std::string marker) {
  raw_ = std::move(marker);
  has_called_ = is_array_ = false;
  id_.clear();
  if (is_in(tools_.around, raw_)) {
    state_ = State::kBetween;
  } else if (tools_.kind == ToolFormat::Kind::kObjects) {
    is_array_ = raw_.ends_with('[');
    state_ = State::kObjects;
  } else {
    state_ = tools_.kind == ToolFormat::Kind::kPython ? State::kPython : State::kName;
  }
}

std::string AnswerParser::name_of(std::string_view spelled) const {
  if (!tools_.is_id_name) return std::string(spelled);
  if (spelled.starts_with("functions.")) spelled.remove_prefix(10);
  return std::string(spelled.substr(0, spelled.rfind(':')));
}

void AnswerParser::begin_call(Parts& parts) {
  space_.clear();
  raw_.clear();
  if (!id_.empty() && !ids_.insert(id_).second) id_.clear();  // a result could not name its call
  AnswerPart part;
  part.kind = AnswerPart::Kind::kCall;
  part.call = n_calls_++;
  part.begins = true;
  part.name = name_;
  part.id = id_;
  parts.push_back(std::move(part));
  is_in_call_ = has_called_ = true;
}

void AnswerParser::add_arguments(std::string_view json, Parts& parts) {
  if (json.empty()) return;
  if (parts.empty() || parts.back().kind != AnswerPart::Kind::kCall || parts.back().ends) {
    parts.emplace_back();
    parts.back().kind = AnswerPart::Kind::kCall;
    parts.back().call = n_calls_ - 1;
  }
  parts.back().text += json;
}

void AnswerParser::end_call(Parts& parts) {
  if (parts.empty() || parts.back().kind != AnswerPart::Kind::kCall || parts.back().ends) {
    parts.emplace_back();
    parts.back().kind = AnswerPart::Kind::kCall;
    parts.back().call = n_calls_ - 1;
  }
  parts.back().ends = true;
  is_in_call_ = false;
  awaits_end_ = true;
  id_.clear();
}

void AnswerParser::break_call(Parts& parts) {
  is_broken_ = true;
  is_in_call_ = is_array_ = false;
  flush_strange(parts);
  state_ = State::kText;
}

void AnswerParser::flush_strange(Parts& parts) { add(AnswerPart::Kind::kText, std::exchange(strange_, {}), parts); }

// Around calls: white space, and markers without content.
bool AnswerParser::step_between(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  const std::string_view rest = std::string_view(buffer_).substr(n);
  if (tools_.kind == ToolFormat::Kind::kChannels) return go_on(n, State::kHead), raw_.clear(), true;
  const markers::Fit fit = markers::fit(rest, around_marks_);
  if (fit.is_open()) return false;
  const bool is_object = tools_.kind == ToolFormat::Kind::kObjects;
  if (!fit.is_whole() && is_object && has_called_ && awaits_end_ && std::string_view("{[,;").find(rest[0]) < 4)
    return go_on(n, State::kObjects);  // several after one opening
  if (!fit.is_whole() && tools_.kind == ToolFormat::Kind::kTagged && !has_called_ && rest[0] == '{')
    return go_on(n, State::kObjects);
  if (!fit.is_whole() && (is_object || tools_.kind == ToolFormat::Kind::kNamed) && awaits_end_ && has_called_ &&
      (rest[0] == '}' || rest[0] == ']'))
    return drop(n + 1), raw_.clear(), true;  // one bracket too many
  if (!fit.is_whole()) {
    if (!has_called_) return fail(parts);
    raw_.clear();
    drop(n);
    state_ = State::kText;
    return true;
  }
  go_on(n + fit.len, State::kBetween);
  if (static_cast<size_t>(fit.which) < tools_.begins.size()) {
    const bool has_called = has_called_;
    enter_call(has_called ? around_marks_[static_cast<size_t>(fit.which)] : std::move(raw_));
    if (tools_.kind == ToolFormat::Kind::kObjects)
      is_array_ = around_marks_[static_cast<size_t>(fit.which)].ends_with('[');
    has_called_ = has_called;
  } else if (is_in(tools_.ends, around_marks_[static_cast<size_t>(fit.which)])) {
    awaits_end_ = false;
  }
  return true;
}

bool AnswerParser::step_name(Parts& parts) {
  if (const size_t n = markers::n_blank(buffer_); n > 0) return go_on(n, state_);
  const bool is_tagged = tools_.kind == ToolFormat::Kind::kTagged, is_gemma = tools_.kind == ToolFormat::Kind::kGemma;
  if (!is_gemma && (buffer_[0] == '{' || (buffer_[0] == '[' && !is_tagged))) return go_on(0, State::kObjects);
  const auto end = std::ranges::find_if(buffer_, [](char c) { return !is_of_name(c); });
  const auto n = static_cast<size_t>(end - buffer_.begin());
  if (n > kMaxName) return fail(parts);
  if (end == buffer_.end()) return false;
  std::vector<std::string> ends = tools_.name_ends;
  if (is_tagged) {
    for (const auto* marks : {&tools_.key_begins, &tools_.ends}) ends.insert(ends.end(), marks->begin(), marks->end());
  } else {
    ends.emplace_back("{");  // the object itself, where a marker was left out
  }
  const markers::Fit fit = markers::fit(std::string_view(buffer_).substr(n), ends);
  if (fit.is_open()) return false;
  if (n == 0 || !fit.is_whole()) return fail(parts);
  const std::string spelled = buffer_.substr(0, n);
  const std::string& mark = ends[static_cast<size_t>(fit.which)];
  const size_t len = static_cast<size_t>(fit.which) < tools_.name_ends.size() ? fit.len : 0;
  const bool is_id = state_ == State::kId || (!tools_.name_begin.empty() && mark == tools_.name_begin);
  if (is_id) {
    id_ = spelled;
  } else {
    name_ = name_of(spelled);
    if (tools_.is_id_name) id_ = spelled;
  }
  if (is_id && state_ != State::kId) return go_on(n + len, State::kName);
  if (!tools_.id_begin.empty() && mark == tools_.id_begin) return go_on(n + len, State::kId);
  if (name_.empty()) return fail(parts);
  if (is_tagged) {
    keys_.clear();
    go_on(n + len, tools_.head_end.empty() || len == 0 ? State::kTagged : State::kHeadEnd);
    if (state_ == State::kTagged) begin_call(parts);
    return true;
  }
  reader_ = ArgumentReader(is_gemma ? ArgumentReader::Dialect::kGemma : ArgumentReader::Dialect::kJson);
  return go_on(n + len, State::kArguments);
}

bool AnswerParser::step_head_end(Parts& parts) {
  const markers::Found found = markers::find(buffer_, std::span(&tools_.head_end, 1));
  if (found.at > kMaxName) return fail(parts);
  if (found.which < 0) return false;
  go_on(found.at + tools_.head_end.size(), State::kTagged);
  begin_call(parts);
  return true;
}

bool AnswerParser::step_arguments(Parts& parts) {
  std::string json;
  for (size_t i = 0; i < buffer_.size(); ++i) {
    const ArgumentReader::Verdict verdict = reader_.feed(buffer_[i], json);
    if (verdict == ArgumentReader::Verdict::kMore && !json.empty() && !is_in_call_) begin_call(parts);
    if (verdict == ArgumentReader::Verdict::kMore) {
      if (!is_in_call_) raw_ += buffer_[i];
      continue;
    }
    if (verdict == ArgumentReader::Verdict::kBad) {
      drop(i);
      add_arguments(json, parts);
      return is_in_call_ ? break_call(parts), true : fail(parts);
    }
    drop(i + 1);
    add_arguments(json, parts);
    end_call(parts);
    state_ = tools_.kind == ToolFormat::Kind::kPython ? State::kPython : State::kBetween;
    return true;
  }
  drop(buffer_.size());
  add_arguments(json, parts);
  return false;
}

// [f(k="v"), g()]
bool AnswerParser::step_python(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  const char c = buffer_[n];
  if (c == '[' && !is_array_) return is_array_ = true, go_on(n + 1, State::kPython);
  if ((c == ',' || c == ';') && has_called_) return go_on(n + 1, State::kPython);
  if (c == ']' && has_called_) return is_array_ = false, go_on(n + 1, State::kBetween);
  const auto end = std::find_if(buffer_.begin() + static_cast<std::ptrdiff_t>(n), buffer_.end(),
                                [](char b) { return !is_of_name(b); });
  const auto stop = static_cast<size_t>(end - buffer_.begin());
  if (stop - n > kMaxName) return fail(parts);
  if (end == buffer_.end()) return false;
  if (stop == n || *end != '(') return has_called_ ? is_array_ = false, go_on(0, State::kBetween) : fail(parts);
  name_ = buffer_.substr(n, stop - n);
  reader_ = ArgumentReader(ArgumentReader::Dialect::kPython);
  return go_on(stop, State::kArguments);
}

}  // namespace ibid
