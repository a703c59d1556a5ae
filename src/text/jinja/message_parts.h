// Members of messages and what may be done to a whole history (message_form.h says what for).
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/message_form.h"
#include "text/jinja/value.h"

namespace ibid {

// Null where there is none, or the value is no dict.
inline const jinja::Value* member(const jinja::Value& dict, std::string_view key) {
  return dict.is(jinja::Kind::kDict) ? dict.as<jinja::DictObject>()->find(key) : nullptr;
}

// The dict with another value for the key, which keeps its place, or with the key after all others.
jinja::Value with(const jinja::Value& dict, std::string_view key, jinja::Value value);
jinja::Value without(const jinja::Value& dict, std::string_view key);

std::string_view role_of(const jinja::Value& message);  // "" where it has none; lives as long as the message

// The ids and types of calls, and the ids and names of their results, where the form fills them in: by the calls'
// order, as results that do not say which call they answer follow it.
void fill_calls(const MessageForm& form, std::vector<jinja::Value>& messages);
// System messages that the template does not print where they stand are joined to the first one, or to the first user's
// message where it prints none.
void place_systems(const MessageForm& form, std::vector<jinja::Value>& messages);

// Repairs; false where there was nothing to mend.
bool shorten_ids(std::vector<jinja::Value>& messages);
bool split_calls(std::vector<jinja::Value>& messages);
bool alternate(std::vector<jinja::Value>& messages);
bool say_blanks(std::vector<jinja::Value>& messages);

}  // namespace ibid
