// Calls of tools, in each of the formats.
#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/json_writer.h"
#include "text/output/answer_parser.h"
#include "text/output/markers.h"

namespace ibid {
namespace {

constexpr size_t kMaxName = 128;
constexpr size_t kMaxObject = 64 << 10;  // of a call's object before its arguments can be told

bool is_of_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '.' || c == ':' || c == '/';
}

// A text as JSON has it between quotes.
std::string json_escaped(std::string_view text) {
  std::string out;
  JsonWriter(out).string(text);
  return out.substr(1, out.size() - 2);
}

}  // namespace

void AnswerParser::enter_call(std::string marker) {
  raw_ = std::move(marker);
  has_called_ = is_array_ = false;
  id_.clear();
  if (std::ranges::find(tools_.around, raw_) != tools_.around.end()) {
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
  id_.clear();
}

// Around calls: white space, and markers that say nothing.
bool AnswerParser::step_between(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  const std::string_view rest = std::string_view(buffer_).substr(n);
  if (tools_.kind == ToolFormat::Kind::kChannels) return go_on(n, State::kHead), raw_.clear(), true;
  std::vector<std::string> marks = tools_.begins;
  marks.insert(marks.end(), tools_.around.begin(), tools_.around.end());
  marks.insert(marks.end(), tools_.ends.begin(), tools_.ends.end());
  const markers::Fit fit = markers::fit(rest, marks);
  if (fit.is_open()) return false;
  if (!fit.is_whole()) {
    if (!has_called_) return fail(parts);
    raw_.clear();
    buffer_.erase(0, n);
    state_ = State::kText;
    return true;
  }
  go_on(n + fit.len, State::kBetween);
  if (static_cast<size_t>(fit.which) < tools_.begins.size()) {
    const bool has_called = has_called_;
    enter_call(has_called ? marks[static_cast<size_t>(fit.which)] : std::move(raw_));
    has_called_ = has_called;
  }
  return true;
}

bool AnswerParser::step_name(Parts& parts) {
  if (const size_t n = markers::n_blank(buffer_); n > 0) return go_on(n, state_);
  if (tools_.kind == ToolFormat::Kind::kNamed && (buffer_[0] == '[' || buffer_[0] == '{'))
    return go_on(0, State::kObjects);
  const auto end = std::ranges::find_if(buffer_, [](char c) { return !is_of_name(c); });
  const auto n = static_cast<size_t>(end - buffer_.begin());
  if (n > kMaxName) return fail(parts);
  if (end == buffer_.end()) return false;
  static const std::vector<std::string> kBrace = {"{"};
  const std::vector<std::string>& ends = tools_.kind == ToolFormat::Kind::kGemma ? kBrace : tools_.name_ends;
  const markers::Fit fit = markers::fit(std::string_view(buffer_).substr(n), ends);
  if (fit.is_open()) return false;
  if (n == 0 || !fit.is_whole()) return fail(parts);
  const std::string spelled = buffer_.substr(0, n);
  const std::string& mark = ends[static_cast<size_t>(fit.which)];
  if (state_ == State::kName) {
    name_ = name_of(spelled);
    if (tools_.is_id_name) id_ = spelled;
  } else {
    id_ = spelled;
  }
  if (!tools_.id_begin.empty() && mark == tools_.id_begin) return go_on(n + fit.len, State::kId);
  const auto is_next = [&](const std::vector<std::string>& marks) {
    return std::ranges::find(marks, mark) != marks.end();
  };
  if (tools_.kind == ToolFormat::Kind::kTagged) {
    go_on(is_next(tools_.key_begins) || is_next(tools_.ends) ? n : n + fit.len, State::kTagged);
    begin_call(parts);
    is_first_value_ = true;
    return true;
  }
  reader_ = ArgumentReader(tools_.kind == ToolFormat::Kind::kGemma ? ArgumentReader::Dialect::kGemma
                                                                   : ArgumentReader::Dialect::kJson);
  return go_on(tools_.kind == ToolFormat::Kind::kGemma ? n : n + fit.len, State::kArguments);
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
      buffer_.erase(0, i);
      add_arguments(json, parts);
      if (!is_in_call_) return fail(parts);
      is_broken_ = true;
      is_in_call_ = false;
      state_ = State::kText;
      return true;
    }
    buffer_.erase(0, i + 1);
    add_arguments(json, parts);
    end_call(parts);
    state_ = tools_.kind == ToolFormat::Kind::kPython ? State::kPython : State::kBetween;
    return true;
  }
  buffer_.clear();
  add_arguments(json, parts);
  return false;
}

bool AnswerParser::step_objects(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  const char c = buffer_[n];
  if (c == '{') {
    object_.clear();
    held_arguments_.clear();
    member_.clear();
    name_.clear();
    is_telling_ = false;
    reader_ = ArgumentReader();
    return go_on(n, State::kObject);
  }
  if (c == '[' && !is_array_) return is_array_ = true, go_on(n + 1, State::kObjects);
  if (c == ',' && is_array_ && has_called_) return go_on(n + 1, State::kObjects);
  if (c == ']' && is_array_ && has_called_) return is_array_ = false, go_on(n + 1, State::kBetween);
  return has_called_ && !is_array_ ? go_on(0, State::kBetween) : fail(parts);
}

// {"name": N, "arguments": {...}}, in any order, with other members among them.
bool AnswerParser::step_object(Parts& parts) {
  for (size_t i = 0; i < buffer_.size(); ++i) {
    const char c = buffer_[i];
    const bool is_colon = reader_.depth() == 1 && reader_.expects_colon() && c == ':';
    std::string json;
    const ArgumentReader::Verdict verdict = reader_.feed(c, json);
    if (!is_in_call_) raw_ += c;
    const auto stop = [&](bool takes) {
      buffer_.erase(0, takes ? i + 1 : i);
      return true;
    };
    if (verdict == ArgumentReader::Verdict::kBad) {
      if (!is_in_call_ && !raw_.empty()) raw_.pop_back();
      stop(false);
      if (!is_in_call_ && is_telling_) return raw_.clear(), state_ = State::kText, true;  // behind whole arguments
      if (!is_in_call_) return fail(parts);
      is_broken_ = true;
      is_in_call_ = false;
      is_array_ = false;
      state_ = State::kText;
      return true;
    }
    if (is_in_call_) {
      add_arguments(json, parts);
      if (reader_.depth() == 1) end_call(parts);
      continue;
    }
    if (is_telling_) {  // the arguments are whole: what follows them changes nothing
      if (verdict != ArgumentReader::Verdict::kDone) continue;
      raw_.clear();
      state_ = is_array_ ? State::kObjects : State::kBetween;
      return stop(true);
    }
    const bool is_end = verdict == ArgumentReader::Verdict::kDone || (reader_.depth() == 1 && reader_.expects_key());
    if (is_end && !member_.empty() && !json.empty()) {
      const std::string value = object_.substr(value_begin_) + json.substr(0, json.size() - 1);
      if (!end_member(value, parts)) return stop(true), fail(parts);
    }
    object_ += json;
    if (is_end) key_begin_ = object_.size(), member_.clear();
    if (object_ == "{") key_begin_ = 1;
    if (is_colon) {
      const Result<Json> key = parse_json(object_.substr(key_begin_, object_.size() - 1 - key_begin_));
      member_ = key && key->string() != nullptr ? *key->string() : "";
      if (member_.empty()) member_ = " ";
      value_begin_ = object_.size();
    } else if (reader_.depth() == 2 && member_ == tools_.arguments_key && !name_.empty() && json == "{" &&
               object_.size() == value_begin_ + 1) {
      begin_call(parts);
      is_telling_ = true;
      add_arguments("{", parts);
      continue;
    }
    if (object_.size() > kMaxObject) return stop(true), fail(parts);
    if (verdict != ArgumentReader::Verdict::kDone) continue;
    stop(true);
    if (name_.empty()) return fail(parts);
    begin_call(parts);
    add_arguments(held_arguments_.empty() ? "{}" : held_arguments_, parts);
    end_call(parts);
    state_ = is_array_ ? State::kObjects : State::kBetween;
    return true;
  }
  buffer_.clear();
  return false;
}

// False where it cannot be a call's.
bool AnswerParser::end_member(std::string_view value, Parts&) {
  if (member_ == tools_.name_key) {
    const Result<Json> name = parse_json(value);
    if (!name || name->string() == nullptr || name->string()->empty() || name->string()->size() > kMaxName)
      return false;
    name_ = *name->string();
    const bool is_known = std::ranges::find(*options_.tools, name_, &DeclaredTool::name) != options_.tools->end();
    return std::ranges::all_of(name_, is_of_name) && (is_known || !tools_.is_bare);
  }
  if (member_ != tools_.arguments_key || value == "null") return true;
  held_arguments_ = value;
  if (value.starts_with('"')) {  // the text of an object
    const Result<Json> text = parse_json(value);
    held_arguments_ = text && text->string() != nullptr ? *text->string() : "";
    const Result<Json> object = parse_json(held_arguments_);
    return object && object->object() != nullptr;
  }
  return value.starts_with('{');
}

// [f(k="v"), g()]
bool AnswerParser::step_python(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  const char c = buffer_[n];
  if (c == '[' && !is_array_) return is_array_ = true, go_on(n + 1, State::kPython);
  if (c == ',' && is_array_ && has_called_) return go_on(n + 1, State::kPython);
  if (c == ']' && is_array_ && has_called_) return is_array_ = false, go_on(n + 1, State::kBetween);
  const auto end = std::find_if(buffer_.begin() + static_cast<std::ptrdiff_t>(n), buffer_.end(),
                                [](char b) { return !is_of_name(b); });
  const auto stop = static_cast<size_t>(end - buffer_.begin());
  if (stop - n > kMaxName) return fail(parts);
  if (end == buffer_.end()) return false;
  if (stop == n || *end != '(') return has_called_ && !is_array_ ? go_on(0, State::kBetween) : fail(parts);
  name_ = buffer_.substr(n, stop - n);
  reader_ = ArgumentReader(ArgumentReader::Dialect::kPython);
  return go_on(stop, State::kArguments);
}

bool AnswerParser::step_tagged(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  std::vector<std::string> marks = tools_.key_begins;
  marks.insert(marks.end(), tools_.ends.begin(), tools_.ends.end());
  const markers::Fit fit = markers::fit(std::string_view(buffer_).substr(n), marks);
  if (fit.is_open()) return false;
  if (!fit.is_whole()) {
    is_broken_ = true;
    is_in_call_ = false;
    state_ = State::kText;
    return true;
  }
  buffer_.erase(0, n + fit.len);
  if (static_cast<size_t>(fit.which) < tools_.key_begins.size()) {
    key_.clear();
    state_ = State::kKey;
    return true;
  }
  add_arguments(is_first_value_ ? "{}" : "}", parts);
  end_call(parts);
  state_ = State::kBetween;
  return true;
}

bool AnswerParser::step_key(Parts& parts) {
  const markers::Found found = markers::find(buffer_, tools_.key_ends);
  // A key that is too long breaks off at one place, however the text is cut.
  size_t n = std::min(found.at, kMaxName + 1 - key_.size());
  while (n < found.at && (buffer_[n] & 0xC0) == 0x80) ++n;
  key_ += buffer_.substr(0, n);
  buffer_.erase(0, n);
  if (key_.size() > kMaxName) {
    is_broken_ = true;
    is_in_call_ = false;
    state_ = State::kText;
    return true;
  }
  if (found.which < 0) return false;
  const std::string& mark = tools_.key_ends[static_cast<size_t>(found.which)];
  buffer_.erase(0, mark.size());
  const auto tool = std::ranges::find(*options_.tools, name_, &DeclaredTool::name);
  is_text_value_ = mark.find("\"true\"") != std::string::npos;
  if (tool != options_.tools->end()) {
    const auto argument = std::ranges::find(tool->arguments, key_, &DeclaredTool::Argument::name);
    is_text_value_ = is_text_value_ || (argument != tool->arguments.end() && argument->is_string);
  }
  add_arguments((is_first_value_ ? "{\"" : ",\"") + json_escaped(key_) + (is_text_value_ ? "\":\"" : "\":"), parts);
  is_first_value_ = false;
  value_.clear();
  n_newlines_ = tools_.value_ends[0][0] == '\n' ? 1 : 0;  // a value on lines of its own
  state_ = State::kValue;
  return true;
}

bool AnswerParser::step_value(Parts& parts) {
  if (std::exchange(n_newlines_, 0) > 0 && buffer_[0] == '\n') {
    buffer_.erase(0, 1);
    return true;
  }
  const markers::Found found = markers::find(buffer_, tools_.value_ends);
  end_value(std::string_view(buffer_).substr(0, found.at), found.which >= 0, parts);
  buffer_.erase(0, found.at);
  if (found.which < 0) return false;
  buffer_.erase(0, tools_.value_ends[static_cast<size_t>(found.which)].size());
  state_ = State::kTagged;
  return true;
}

// A text goes out as it comes; of what may be JSON it is known at its end whether it is.
void AnswerParser::end_value(std::string_view piece, bool is_whole, Parts& parts) {
  if (is_text_value_) return add_arguments(json_escaped(piece) + (is_whole ? "\"" : ""), parts);
  value_ += piece;
  if (!is_whole) return;
  const std::string_view value = std::string_view(value_).substr(markers::n_blank(value_));
  if (value == "True" || value == "False") return add_arguments(value == "True" ? "true" : "false", parts);
  if (value == "None") return add_arguments("null", parts);
  if (parse_json(value)) return add_arguments(value, parts);
  add_arguments('"' + json_escaped(value_) + '"', parts);
}

}  // namespace ibid
