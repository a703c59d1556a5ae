// Filters that apply other filters, tests or attributes to each item.
#include "text/jinja/filters.h"

namespace ibid::jinja {
namespace {

using Values = std::vector<Value>;

Value map(Machine& m, const Value& subject, Args& args) {
  Deeper deeper(m);  // a character is a string to map over, for as long as there are names of filters
  Values out;
  if (m.failed()) return {};
  if (!truth(subject)) return m.iterator({});  // none and 0 too: templates map over what may be absent
  Values items;
  if (!m.collect(subject, items)) return {};
  if (args.positional.empty()) {
    Params p(m, args, "map", {"", "attribute", "default"});
    if (!p) return {};
    if (!p.has(1)) return m.fail("map needs the name of a filter, or attribute=.");
    Path path(m, p[1]);
    for (const Value& item : items) {
      out.push_back(path.get(m, item, p.has(2) ? &p[2] : nullptr));
      if (m.failed()) return {};
    }
    return m.iterator(std::move(out));
  }
  FilterFn fn = args.positional[0].is_string() ? find_filter(args.positional[0].str()) : nullptr;
  if (fn == nullptr) return m.fail("map names an unknown filter.");
  args.positional.erase(args.positional.begin());
  for (const Value& item : items) {
    Args copy = args;
    out.push_back(m.spend(1 + args.size()) ? fn(m, item, copy) : Value());
    if (m.failed()) return {};
  }
  return m.iterator(std::move(out));
}

template <bool keep, bool by_attribute>
Value choose(Machine& m, const Value& subject, Args& args) {
  if (!truth(subject)) return m.iterator({});
  Values items, out;
  if (!m.collect(subject, items)) return {};
  Path path;
  if (by_attribute) {
    if (args.positional.empty()) return m.fail("selectattr and rejectattr need the name of an attribute.");
    path = Path(m, args.positional[0]);
    args.positional.erase(args.positional.begin());
  }
  FilterFn test = nullptr;
  if (!args.positional.empty()) {
    test = args.positional[0].is_string() ? find_test(args.positional[0].str()) : nullptr;
    if (test == nullptr) return m.fail("an unknown test is named.");
    args.positional.erase(args.positional.begin());
  }
  for (const Value& item : items) {
    if (!m.spend(1 + args.size())) return {};
    Value v = by_attribute ? path.get(m, item) : item;
    Args copy = args;
    if (test != nullptr && !m.failed()) v = test(m, v, copy);
    if (m.failed()) return {};
    if (truth(v) == keep) out.push_back(item);
  }
  return m.iterator(std::move(out));
}

Value attr(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "attr", {"name"}, 1);
  if (!p) return {};
  Value name = m.string(p.text(0));
  if (m.failed() || subject.is_undefined()) return m.failed() ? Value() : m.missing(subject, name);
  if (subject.is(Kind::kDict)) {  // attributes only, no elements
    MethodFn fn = find_container_method(Kind::kDict, name.str());
    return fn != nullptr ? m.method(subject, name.str(), fn) : m.missing(subject, name);
  }
  return m.attribute(subject, name);
}

}  // namespace

const FilterEntry kApplyingFilters[] = {
    {"attr", attr},
    {"map", map},
    {"reject", choose<false, false>},
    {"rejectattr", choose<false, true>},
    {"select", choose<true, false>},
    {"selectattr", choose<true, true>},
    {"", nullptr},
};

}  // namespace ibid::jinja
