// What a history as a whole needs for the template: ids that match, places of system messages, turns that alternate.
#include <deque>
#include <map>
#include <set>

#include "text/jinja/message_parts.h"

namespace ibid {

using jinja::DictObject;
using jinja::Kind;
using jinja::ListObject;
using jinja::Text;
using jinja::Value;

Value with(const Value& dict, std::string_view key, Value value) {
  auto* out = new DictObject;
  for (const auto& [name, old] : dict.as<DictObject>()->entries) out->set(name, old);
  out->set(Value::string(key), std::move(value));
  return Value::object(Kind::kDict, out);
}

Value without(const Value& dict, std::string_view key) {
  auto* out = new DictObject;
  for (const auto& [name, old] : dict.as<DictObject>()->entries)
    if (!name.is_string() || name.str() != key) out->set(name, old);
  return Value::object(Kind::kDict, out);
}

std::string_view role_of(const Value& message) {
  const Value* role = member(message, "role");
  return role != nullptr && role->is_string() ? role->str() : std::string_view();
}

namespace {

Value list_of(std::vector<Value> items) {
  auto* out = new ListObject;
  for (const Value& item : items) jinja::weigh(*out, item);
  out->items = std::move(items);
  return Value::object(Kind::kList, out);
}

Value message_of(std::string_view role, Value content) {
  auto* out = new DictObject;
  out->set(Value::string("role"), Value::string(role));
  out->set(Value::string("content"), std::move(content));
  return Value::object(Kind::kDict, out);
}

const std::vector<Value>& calls_of(const Value& message) {
  static const std::vector<Value> kNone;
  const Value* calls = member(message, "tool_calls");
  return calls != nullptr && calls->is(Kind::kList) ? calls->items() : kNone;
}

std::string text_of(const Value& dict, std::string_view key) {
  const Value* value = member(dict, key);
  return value != nullptr && value->is_string() ? std::string(value->str()) : std::string();
}

Value name_of(const Value& call) {
  const Value* function = member(call, "function");
  const Value* name = member(function != nullptr ? *function : call, "name");
  return name != nullptr ? *name : Value();
}

// Marked as a user's: a replacement of a user's text is not the template's either.
Value marked(std::string text) { return Value::string(Text::marked(std::move(text))); }

// Calls of one message that wait for their results.
struct Call {
  std::string id;
  Value name;
  size_t place = 0;
  bool is_answered = false;
};

class OpenCalls {
 public:
  void clear() { *this = {}; }
  void add(const Value& call) {
    const size_t place = calls_.size();
    calls_.push_back({text_of(call, "id"), name_of(call), place});
    if (!calls_.back().id.empty()) by_id_[calls_.back().id].push_back(place);
    if (calls_.back().name.is_string()) by_name_[std::string(calls_.back().name.str())].push_back(place);
  }
  // The call that a result answers: the one of its id, else the next one of its name, else the next one. Null where
  // none is open.
  const Call* answer(const Value& result) {
    Call* call = take(by_id_, text_of(result, "tool_call_id"));
    if (call == nullptr) call = take(by_name_, text_of(result, "name"));
    while (call == nullptr && next_ < calls_.size()) {
      if (!calls_[next_].is_answered) call = &calls_[next_];
      ++next_;
    }
    if (call != nullptr) call->is_answered = true;
    return call;
  }

 private:
  using Places = std::map<std::string, std::deque<size_t>>;
  Call* take(Places& places, const std::string& key) {
    const auto found = key.empty() ? places.end() : places.find(key);
    while (found != places.end() && !found->second.empty()) {
      Call& call = calls_[found->second.front()];
      found->second.pop_front();
      if (!call.is_answered) return &call;
    }
    return nullptr;
  }

  std::vector<Call> calls_;
  Places by_id_, by_name_;
  size_t next_ = 0;
};

std::set<std::string> all_ids(const std::vector<Value>& messages) {
  std::set<std::string> ids;
  for (const Value& message : messages) {
    ids.insert(text_of(message, "tool_call_id"));
    for (const Value& call : calls_of(message)) ids.insert(text_of(call, "id"));
  }
  return ids;
}

// Nine characters, as Mistral's templates require.
std::string numbered_id(size_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return "call" + digits;
}

// The ids by which results after a message name calls that it does not have: those of its calls without ids.
std::deque<std::string> unclaimed_ids(const std::vector<Value>& messages, size_t at) {
  std::set<std::string> claimed = {""};
  for (const Value& call : calls_of(messages[at])) claimed.insert(text_of(call, "id"));
  std::deque<std::string> ids;
  for (size_t i = at + 1; i < messages.size() && role_of(messages[i]) == "tool"; ++i) {
    std::string id = text_of(messages[i], "tool_call_id");
    if (claimed.insert(id).second) ids.push_back(std::move(id));
  }
  return ids;
}

}  // namespace

void fill_calls(const MessageForm& form, std::vector<Value>& messages) {
  if (form.filled == 0) return;
  const std::set<std::string> given = form.fills(Member::kCallId) ? all_ids(messages) : std::set<std::string>();
  size_t n_calls = 0;
  OpenCalls open;
  for (size_t i = 0; i < messages.size(); ++i) {
    Value& message = messages[i];
    if (role_of(message) == "tool") {
      const Call* call = open.answer(message);
      if (call == nullptr) continue;
      if (form.fills(Member::kResultId) && !call->id.empty() && member(message, "tool_call_id") == nullptr)
        message = with(message, "tool_call_id", marked(call->id));
      if (form.fills(Member::kResultName) && call->name.is_string() && member(message, "name") == nullptr)
        message = with(message, "name", call->name);
      continue;
    }
    if (calls_of(message).empty()) continue;
    open.clear();
    std::vector<Value> calls = calls_of(message);
    std::deque<std::string> known =
        form.fills(Member::kCallId) ? unclaimed_ids(messages, i) : std::deque<std::string>();
    for (Value& call : calls) {
      if (!call.is(Kind::kDict)) continue;
      if (form.fills(Member::kCallType) && member(call, "type") == nullptr)
        call = with(call, "type", Value::string("function"));
      if (form.fills(Member::kCallId) && member(call, "id") == nullptr) {
        std::string id = numbered_id(n_calls);
        while (given.contains(id)) id = numbered_id(++n_calls);
        if (!known.empty()) id = std::move(known.front()), known.pop_front();
        call = with(call, "id", marked(std::move(id)));
      }
      ++n_calls;
      open.add(call);
    }
    message = with(message, "tool_calls", list_of(std::move(calls)));
  }
}

namespace {

bool is_system(const Value& message) { return role_of(message) == "system" || role_of(message) == "developer"; }

bool is_absent(const Value* content) {
  return content == nullptr || content->is_none() || (content->is_string() && content->str().empty());
}

std::vector<Value> parts_of(const Value& content) {
  if (content.is(Kind::kList)) return content.items();
  auto* part = new DictObject;
  part->set(Value::string("type"), Value::string("text"));
  part->set(Value::string("text"), content);
  return {Value::object(Kind::kDict, part)};
}

// Two contents as one: texts with an empty line between them, or the parts of both.
Value joined(const Value* a, const Value* b) {
  if (is_absent(a)) return is_absent(b) ? Value::string("") : *b;
  if (is_absent(b)) return *a;
  if (a->is_string() && b->is_string()) {
    Text text = a->text();
    text.append("\n\n");
    text.append(b->text());
    return Value::string(std::move(text));
  }
  std::vector<Value> parts = parts_of(*a);
  for (Value& part : parts_of(*b)) parts.push_back(std::move(part));
  return list_of(std::move(parts));
}

// Joins many: each byte is copied once or twice, however many there are.
class Joiner {
 public:
  void add(const Value* content) {
    if (is_absent(content)) return;
    if (!parts_.empty() || !content->is_string()) {
      if (parts_.empty() && text_.size() > 0) parts_ = parts_of(Value::string(std::move(text_)));
      for (Value& part : parts_of(*content)) parts_.push_back(std::move(part));
      return;
    }
    if (text_.size() > 0) text_.append("\n\n");
    text_.append(content->text());
  }
  Value take() { return parts_.empty() ? Value::string(std::move(text_)) : list_of(std::move(parts_)); }

 private:
  Text text_;
  std::vector<Value> parts_;
};

}  // namespace

void place_systems(const MessageForm& form, std::vector<Value>& messages) {
  if (form.takes_system && form.takes_second_system && form.takes_later_system) return;
  size_t n_leading = 0;
  while (n_leading < messages.size() && is_system(messages[n_leading])) ++n_leading;
  const auto stays = [&](size_t i) {
    if (!form.takes_system) return false;
    return i == 0 || (i < n_leading ? form.takes_second_system : form.takes_later_system);
  };
  std::vector<Value> kept;
  Joiner moved;
  size_t n_moved = 0, n_kept_leading = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (is_system(messages[i]) && !stays(i)) {
      moved.add(member(messages[i], "content"));
      ++n_moved;
      continue;
    }
    if (i < n_leading) ++n_kept_leading;
    kept.push_back(messages[i]);
  }
  if (n_moved == 0) return;
  const Value text = moved.take();
  if (form.takes_system && n_kept_leading > 0) {
    Value& last = kept[n_kept_leading - 1];
    last = with(last, "content", joined(member(last, "content"), &text));
  } else if (form.takes_system) {
    kept.insert(kept.begin(), message_of("system", text));
  } else if (!is_absent(&text)) {
    size_t user = 0;
    while (user < kept.size() && role_of(kept[user]) != "user") ++user;
    if (user == kept.size()) {
      kept.insert(kept.begin(), message_of("user", text));
    } else {
      kept[user] = with(kept[user], "content", joined(&text, member(kept[user], "content")));
    }
  }
  messages = std::move(kept);
}

namespace {

bool is_short_id(std::string_view id) {
  if (id.size() != 9) return false;
  for (const char c : id) {
    if ((c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')) return false;
  }
  return true;
}

// By the id alone, so that a conversation keeps its ids as it grows; FNV-1a in base 62.
std::string short_id(std::string_view id, uint64_t salt) {
  uint64_t hash = 14695981039346656037ull ^ salt;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  std::string out;
  for (int i = 0; i < 9; ++i, hash /= 62)
    out += "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[hash % 62];
  return out;
}

}  // namespace

bool shorten_ids(std::vector<Value>& messages) {
  std::set<std::string> taken = all_ids(messages);
  std::map<std::string, std::string> shorter;
  const auto shorten = [&](const Value& dict, std::string_view key) {
    const std::string id = text_of(dict, key);
    if (id.empty() || is_short_id(id)) return dict;
    std::string& made = shorter[id];
    for (uint64_t salt = 0; made.empty(); ++salt) {
      std::string tried = short_id(id, salt);
      if (taken.insert(tried).second) made = std::move(tried);
    }
    return with(dict, key, marked(made));
  };
  for (Value& message : messages) {
    if (member(message, "tool_call_id") != nullptr) message = shorten(message, "tool_call_id");
    if (calls_of(message).empty()) continue;
    std::vector<Value> calls = calls_of(message);
    for (Value& call : calls)
      if (call.is(Kind::kDict)) call = shorten(call, "id");
    message = with(message, "tool_calls", list_of(std::move(calls)));
  }
  return !shorter.empty();
}

bool split_calls(std::vector<Value>& messages) {
  std::vector<Value> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::vector<Value> calls = calls_of(messages[i]);
    if (calls.size() < 2) {
      out.push_back(messages[i]);
      continue;
    }
    OpenCalls open;
    for (const Value& call : calls) open.add(call);
    const Value original = messages[i];
    std::vector<std::vector<Value>> results(calls.size());
    while (i + 1 < messages.size() && role_of(messages[i + 1]) == "tool") {
      const Call* call = open.answer(messages[++i]);
      results[call != nullptr ? call->place : calls.size() - 1].push_back(messages[i]);
    }
    for (size_t c = 0; c < calls.size(); ++c) {
      out.push_back(
          with(c == 0 ? original : message_of("assistant", Value::string("")), "tool_calls", list_of({calls[c]})));
      for (Value& result : results[c]) out.push_back(std::move(result));
    }
  }
  const bool has_split = out.size() != messages.size();
  messages = std::move(out);
  return has_split;
}

bool alternate(std::vector<Value>& messages) {
  std::vector<Value> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string role(role_of(messages[i]));
    size_t end = i + 1;
    const auto goes_on = [&] {
      return end < messages.size() && (role == "user" || role == "assistant") && role_of(messages[end]) == role &&
             calls_of(messages[end - 1]).empty();
    };
    while (goes_on()) ++end;
    if (end == i + 1) {
      out.push_back(std::move(messages[i]));
      continue;
    }
    Joiner content, reasoning;
    for (size_t j = i; j < end; ++j) {
      content.add(member(messages[j], "content"));
      reasoning.add(member(messages[j], "reasoning_content"));
    }
    Value both = with(messages[end - 1], "content", content.take());
    if (const Value reasoned = reasoning.take(); !is_absent(&reasoned))
      both = with(both, "reasoning_content", reasoned);
    out.push_back(std::move(both));
    i = end - 1;
  }
  // Templates count turns without calls and results.
  std::vector<Value> turns;
  bool wants_user = true;
  for (Value& message : out) {
    const std::string_view role = role_of(message);
    const bool counts = (role == "user" || role == "assistant") && calls_of(message).empty();
    if (counts) {
      if ((role == "user") != wants_user)
        turns.push_back(message_of(wants_user ? "user" : "assistant", Value::string("")));
      wants_user = role != "user";
    }
    turns.push_back(std::move(message));
  }
  const bool has_joined = out.size() != messages.size(), has_added = turns.size() != out.size();
  messages = std::move(turns);
  return has_joined || has_added;
}

bool say_blanks(std::vector<Value>& messages) {
  bool has_text = false;
  for (Value& message : messages) {
    if (role_of(message) != "assistant" || !calls_of(message).empty() || !is_absent(member(message, "content")))
      continue;
    message = with(message, "content", Value::string(" "));
    has_text = true;
  }
  return has_text;
}

}  // namespace ibid
