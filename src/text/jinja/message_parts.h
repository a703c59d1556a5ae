// Members of messages and repairs of a whole history (their purpose is in message_form.h).
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/message_form.h"
#include "text/jinja/value.h"

namespace ibid {

// Null if there is none, or the value is not a dict.
inline const jinja::Value* member(const jinja::Value& dict, std::string_view key) {
  return dict.is(jinja::Kind::kDict) ? dict.as<jinja::DictObject>()->find(key) : nullptr;
}

// The dict with another value for the key, which keeps its place, or with the key after all others.
jinja::Value with(const jinja::Value& dict, std::string_view key, jinja::Value value);
jinja::Value without(const jinja::Value& dict, std::string_view key);

std::string_view role_of(const jinja::Value& message);  // "" where it has none; lives as long as the message

// The ids and types of calls, and the ids and names of their results, where the form fills them in: by the calls'
// order, which results that do not name their call follow.
void fill_calls(const MessageForm& form, std::vector<jinja::Value>& messages);
// System messages that the template does not print where they stand are joined to the first one, or to the first user's
// message where it prints none.
void place_systems(const MessageForm& form, std::vector<jinja::Value>& messages);

// Repairs; false if there was nothing to repair.
bool shorten_ids(std::vector<jinja::Value>& messages);
bool split_calls(std::vector<jinja::Value>& messages);
bool alternate(std::vector<jinja::Value>& messages);
bool say_blanks(std::vector<jinja::Value>& messages);

}  // namespace ibid
