// The tables of filters and tests; internal to jinja_filters*.cc and jinja_tests.cc.
#pragma once

#include "text/jinja_text_ops.h"

namespace ibid::jinja {

struct FilterEntry {
  std::string_view name;  // empty: the end
  FilterFn fn;
};
extern const FilterEntry kTextFilters[];
extern const FilterEntry kListFilters[];
extern const FilterEntry kTests[];

}  // namespace ibid::jinja
