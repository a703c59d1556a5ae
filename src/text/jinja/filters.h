// The tables of filters and tests; internal to filters_*.cc and tests.cc.
#pragma once

#include "text/jinja/text_ops.h"

namespace ibid::jinja {

// "a.0.b" as Jinja's filters read it: the elements "a", 0, "b".
class Path {
 public:
  Path() = default;
  Path(Machine& m, const Value& attribute) {
    if (attribute.is_none()) return;
    if (!attribute.is_string()) {
      parts_.push_back(attribute);
      return;
    }
    std::string_view s = attribute.str();
    for (size_t begin = 0; begin <= s.size() && m.spend() && m.room(parts_.size() * 2 * sizeof(Value));) {
      size_t end = std::min(s.find('.', begin), s.size());
      std::string_view part = s.substr(begin, end - begin);
      bool index = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(index ? Value::integer(std::stoll(std::string(part))) : m.string(part));
      begin = end + 1;
    }
  }
  Value get(Machine& m, Value item, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      if (!m.spend()) return {};
      item = m.item(item, part);
      if (otherwise != nullptr && !otherwise->is_none() && item.is_undefined()) item = *otherwise;
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
};

struct FilterEntry {
  std::string_view name;  // empty: the end
  FilterFn fn;
};
extern const FilterEntry kTextFilters[];
extern const FilterEntry kListFilters[];
extern const FilterEntry kApplyingFilters[];
extern const FilterEntry kJsonFilters[];
extern const FilterEntry kTests[];

}  // namespace ibid::jinja
