// The parts around calls: text, reasoning, channels.
#include "text/output/answer_parser.h"

#include <algorithm>
#include <utility>

#include "text/output/markers.h"

namespace ibid {

namespace {

constexpr size_t kMaxHead = 512;  // bytes of a channel's head

const std::vector<std::string> kChannelEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
const std::vector<std::string> kHeadBegins = {"<|start|>", "<|channel|>", " to="};
const std::vector<std::string> kMessage = {"<|message|>"};

}  // namespace

AnswerParser::AnswerParser(Options options) : options_(std::move(options)), tools_(options_.format->tools) {
  const AnswerFormat& format = *options_.format;
  const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(text_marks_, format.hidden);
  if (has_tools()) {
    using Marks = std::vector<std::string>;
    const auto join = [&](Marks& to, std::initializer_list<const Marks*> lists) {
      for (const Marks* marks : lists) append(to, *marks);
    };
    join(text_marks_, {&tools_.begins, &tools_.around});
    join(closing_marks_, {&text_marks_, &tools_.ends});
    join(around_marks_, {&tools_.begins, &tools_.around, &tools_.ends});
    join(call_marks_, {&tools_.ends, &tools_.around, &tools_.begins});
    join(tagged_marks_, {&tools_.key_begins, &call_marks_, &tools_.value_ends});
  }
  if (!format.reasoning.is_none()) {
    reasoning_ends_ = {"\n" + format.reasoning.end, format.reasoning.end};
    if (has_tools() && format.reasoning.is_ended_by_call) {
      append(reasoning_ends_, tools_.begins);
      append(reasoning_ends_, tools_.around);
    }
  }
  if (format.reasoning.is_none() || !options_.finds_reasoning) is_reasoning_done_ = true;
  if (tools_.kind == ToolFormat::Kind::kChannels) {
    state_ = options_.is_in_message ? State::kChannel : State::kHead;
    is_reasoning_channel_ = options_.is_reasoning && options_.finds_reasoning;
  } else if (options_.is_reasoning && !is_reasoning_done_) {
    n_newlines_ = 1;
    state_ = State::kReasoning;
  }
}

void AnswerParser::push(std::string_view text, std::vector<AnswerPart>& parts) {
  buffer_ += text;
  while (!buffer_.empty() && step(parts)) {
  }
}

void AnswerParser::finish(std::vector<AnswerPart>& parts, bool is_own_end) {
  is_at_end_ = true;
  is_own_end_ = is_own_end;
  const auto is_tagged = [&] { return state_ == State::kValue || state_ == State::kTagged || state_ == State::kKey; };
  const bool was_tagged = is_tagged();
  while (was_tagged && !buffer_.empty() && step(parts)) {
  }
  if (state_ == State::kTagged && is_own_end && have_required()) end_tagged_call(parts);
  switch (state_) {
    case State::kReasoning:
      add(AnswerPart::Kind::kReasoning, buffer_, parts);
      break;
    case State::kValue:
    case State::kArguments:
    case State::kTagged:
    case State::kKey:
      break;  // cut: what is there has been emitted
    case State::kHead:
      break;
    case State::kText:
      add_text(buffer_, n_read_, parts);
      break;
    case State::kChannel:
      if (is_reasoning_channel_) add(AnswerPart::Kind::kReasoning, buffer_, parts);
      if (!is_reasoning_channel_ && !is_call_channel_) emit_text(buffer_, n_read_, parts);
      break;
    default:
      if (has_called_ && !is_own_end) break;
      if (!has_called_ || state_ != State::kBetween) add_text(raw_, n_read_ - raw_.size(), parts);
      add_text(buffer_, n_read_, parts);
  }
  drop(buffer_.size());
  raw_.clear();
  flush_strange(parts);
  if (!space_.empty() && n_calls_ == 0) emit_text(std::exchange(space_, {}), space_at_, parts);
  space_.clear();
}

size_t AnswerParser::n_certain() const {
  if (state_ == State::kReasoning) return n_read_ + buffer_.size();
  const size_t n = n_read_ - raw_.size();
  return space_.empty() ? n : std::min(n, space_at_);
}

void AnswerParser::drop(size_t n) {
  n_read_ += n;
  buffer_.erase(0, n);
}

void AnswerParser::add(AnswerPart::Kind kind, std::string_view text, Parts& parts) {
  if (text.empty()) return;
  if (parts.empty() || parts.back().kind != kind) {
    parts.emplace_back();
    parts.back().kind = kind;
  }
  parts.back().text += text;
}

void AnswerParser::emit_text(std::string_view text, size_t at, Parts& parts) {
  add(AnswerPart::Kind::kText, text, parts);
  if (spans_ != nullptr && !text.empty()) spans_->push_back({at, std::string(text)});
}

// White space is held back while a call may follow: it would belong to the call.
void AnswerParser::add_text(std::string_view text, size_t at, Parts& parts) {
  if (!has_tools()) return emit_text(text, at, parts);
  size_t n = text.size();
  while (n > 0 && markers::is_blank(text[n - 1])) --n;
  if (n > 0) {
    emit_text(std::exchange(space_, {}), space_at_, parts);
    emit_text(text.substr(0, n), at, parts);
  }
  if (n < text.size() && space_.empty()) space_at_ = at + n;
  space_ += text.substr(n);
}

bool AnswerParser::go_on(size_t n, State state) {
  raw_ += buffer_.substr(0, n);
  drop(n);
  state_ = state;
  return true;
}

// What looked like a call is text.
bool AnswerParser::fail(Parts& parts) {
  const size_t at = n_read_ - raw_.size();
  add_text(std::exchange(raw_, {}), at, parts);
  is_array_ = false;
  strange_.clear();
  state_ = State::kText;
  return true;
}

bool AnswerParser::step(Parts& parts) {
  switch (state_) {
    case State::kStart:
      return step_start(parts);
    case State::kReasoning:
      return step_reasoning(parts);
    case State::kText:
      return step_text(parts);
    case State::kBetween:
      return step_between(parts);
    case State::kName:
    case State::kId:
      return step_name(parts);
    case State::kHeadEnd:
      return step_head_end(parts);
    case State::kArguments:
      return step_arguments(parts);
    case State::kObjects:
      return step_objects(parts);
    case State::kObject:
      return step_object(parts);
    case State::kPython:
      return step_python(parts);
    case State::kTagged:
      return step_tagged(parts);
    case State::kKey:
      return step_key(parts);
    case State::kValue:
      return step_value(parts);
    case State::kHead:
      return step_head(parts);
    case State::kChannel:
      return step_channel(parts);
  }
  return false;
}

bool AnswerParser::step_start(Parts&) {
  while (n_newlines_ > 0 && !buffer_.empty() && buffer_[0] == '\n') {
    drop(1);
    --n_newlines_;
  }
  const size_t n_space = markers::n_blank(buffer_);
  if (n_space == buffer_.size()) return false;
  n_newlines_ = 0;
  const std::string_view rest = std::string_view(buffer_).substr(n_space);
  if (!is_reasoning_done_) {
    const markers::Fit fit = markers::fit(rest, std::span(&options_.format->reasoning.begin, 1));
    if (fit.is_open()) return false;
    is_reasoning_done_ = true;
    if (fit.is_whole()) {
      drop(n_space + fit.len);
      n_newlines_ = 1;
      state_ = State::kReasoning;
      return true;
    }
  }
  if (has_tools() && tools_.is_bare && (rest[0] == '{' || rest[0] == '[')) {
    has_called_ = is_array_ = false;
    return go_on(n_space, State::kObjects);
  }
  state_ = State::kText;
  return true;
}

bool AnswerParser::step_reasoning(Parts& parts) {
  if (std::exchange(n_newlines_, 0) > 0 && buffer_[0] == '\n') {
    drop(1);
    return true;
  }
  const markers::Found found = markers::find(buffer_, reasoning_ends_);
  add(AnswerPart::Kind::kReasoning, std::string_view(buffer_).substr(0, found.at), parts);
  drop(found.at);
  if (found.which < 0) return false;
  is_reasoning_done_ = true;
  state_ = State::kStart;  // a bare call may be all of the rest
  if (found.which < 2) {
    drop(reasoning_ends_[static_cast<size_t>(found.which)].size());
    n_newlines_ = 2;
  }
  return true;
}

bool AnswerParser::step_text(Parts& parts) {
  const std::vector<std::string>& marks = awaits_end_ ? closing_marks_ : text_marks_;
  const markers::Found found = markers::find(buffer_, marks);
  add_text(std::string_view(buffer_).substr(0, found.at), n_read_, parts);
  drop(found.at);
  if (found.which < 0) return false;
  const std::string& mark = marks[static_cast<size_t>(found.which)];
  drop(mark.size());
  if (static_cast<size_t>(found.which) >= text_marks_.size()) return awaits_end_ = false, true;
  if (static_cast<size_t>(found.which) < options_.format->hidden.size()) return true;
  enter_call(mark);
  return true;
}

// A head names the message's channel and recipient: "<|channel|>analysis", " to=functions.f<|channel|>commentary json".
bool AnswerParser::step_head(Parts& parts) {
  const size_t n_mark = raw_.empty() ? markers::skip(buffer_, kChannelEnds, 3) : 0;
  if (n_mark > 0) return drop(n_mark), true;
  if (raw_.empty()) {
    const markers::Fit fit = markers::fit(buffer_, kHeadBegins);
    const markers::Fit ended = markers::fit(buffer_, kChannelEnds);
    if (fit.is_open() || (ended.is_open() && !fit.is_whole())) return false;
    if (!fit.is_whole()) return fail(parts);
  }
  const markers::Found found = markers::find(buffer_, kMessage);
  go_on(found.at, State::kHead);
  if (raw_.size() > kMaxHead) return fail(parts);
  if (found.which < 0) return false;
  drop(kMessage[0].size());
  constexpr std::string_view kTo = "to=", kFunctions = "functions.";
  is_call_channel_ = false;
  if (const size_t to = raw_.find(kTo); has_tools() && to != std::string::npos) {
    std::string_view name = std::string_view(raw_).substr(to + kTo.size());
    name = name.substr(0, name.find_first_of(" <\n"));
    const bool is_function = name.starts_with(kFunctions);
    if (is_function) name.remove_prefix(kFunctions.size());
    is_call_channel_ = is_function || is_declared(name);
    name_ = name;
  }
  is_reasoning_channel_ = !is_call_channel_ && options_.finds_reasoning && raw_.find("analysis") != std::string::npos;
  if (is_call_channel_) {
    reader_ = ArgumentReader();
    raw_ += kMessage[0];
    state_ = State::kArguments;
    return true;
  }
  raw_.clear();
  state_ = State::kChannel;
  return true;
}

bool AnswerParser::step_channel(Parts& parts) {
  const markers::Found found = markers::find(buffer_, kChannelEnds);
  const std::string_view text = std::string_view(buffer_).substr(0, found.at);
  is_reasoning_channel_ ? add(AnswerPart::Kind::kReasoning, text, parts) : emit_text(text, n_read_, parts);
  drop(found.at);
  if (found.which < 0) return false;
  state_ = State::kHead;
  return true;
}

}  // namespace ibid
