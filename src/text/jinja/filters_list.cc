// Filters over lists, dicts and whatever can be looped over. Where Python makes a generator, so do we (it gives its
// items once and is always true), but its items are computed at once.
#include <algorithm>

#include "text/jinja/filters.h"

namespace ibid::jinja {
namespace {

using Values = std::vector<Value>;

Value fold(Machine& m, const Value& v, bool case_sensitive) {
  return v.is_string() && !case_sensitive ? m.string(change_case(m, v.text(), Case::kLower)) : v;
}

bool all(Machine& m, const Value& v, Values& items) { return m.collect(v, items); }

Value length_filter(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "length", {})) return {};
  int64_t n = length(subject);
  return n >= 0 ? Value::integer(n)
                : m.fail(std::string("a value of type '") + type_name(subject) + "' has no length.");
}

Value default_filter(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "default", {"default_value", "boolean"});
  if (!p) return {};
  bool replaces = subject.is_undefined() || (p.flag(1, false) && !truth(subject));
  return !replaces ? subject : p.has(0) ? p[0] : m.string("");
}

Value join_filter(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "join", {"d", "attribute"});
  if (!p) return {};
  Text separator = p.has(0) ? m.str(p[0]) : Text();
  if (!p.has(1) || p[1].is_none()) return join(m, separator, subject, false);
  Values items;
  if (!all(m, subject, items)) return {};
  Path path(m, p[1]);
  for (Value& item : items) item = path.get(m, item);
  return m.failed() ? Value() : join(m, separator, m.list(std::move(items)), false);
}

Value list_filter(Machine& m, const Value& subject, Args& args) {
  Values items;
  if (!Params(m, args, "list", {}) || !all(m, subject, items)) return {};
  return m.list(std::move(items));
}

Value items_filter(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "items", {})) return {};
  Values items;
  if (subject.is(Kind::kDict)) {
    for (const auto& [key, value] : subject.as<DictObject>()->entries) {
      items.push_back(m.tuple({key, value}));
      if (m.failed()) return {};
    }
  } else if (!subject.is_undefined()) {
    return m.fail(std::string("items needs a dict, not '") + type_name(subject) + "'.");
  }
  return m.iterator(std::move(items));
}

Value first(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "first", {})) return {};
  if (!m.is_iterable(subject))
    return m.fail(std::string("a value of type '") + type_name(subject) + "' is not iterable.");
  Iter iter(subject);
  Value item;
  return iter.next(m, item) ? item : m.undefined("No first item, sequence was empty.");
}

bool is_reversible(const Value& v) { return length(v) >= 0; }

Value last(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "last", {})) return {};
  if (!is_reversible(subject))
    return m.fail(std::string("a value of type '") + type_name(subject) + "' cannot be reversed.");
  if (length(subject) == 0) return m.undefined("No last item, sequence was empty.");
  if (subject.is_sequence() || subject.is_string() || subject.is(Kind::kRange))
    return m.item(subject, Value::integer(-1));
  Values items;
  return all(m, subject, items) ? items.back() : Value();
}

Value reverse(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "reverse", {})) return {};
  if (subject.is_string()) return m.slice(subject, Value::none(), Value::none(), Value::integer(-1));
  Values items;
  if (!all(m, subject, items)) return {};
  std::reverse(items.begin(), items.end());
  if (subject.is(Kind::kIterator)) return m.list(std::move(items));
  return m.iterator(std::move(items), "list_reverseiterator");
}

// --- Sorting ---

struct Keyed {
  Values keys;
  size_t at;
};

// A single key is compared by `<` alone, which Python refuses for two undefined values or two nones; several keys are
// compared as lists are, by the first that is not equal.
enum class Keys { kOne, kSeveral };

bool keys_less(Machine& m, Keys keys, const Values& a, const Values& b) {
  if (keys == Keys::kOne) return m.less(a[0], b[0]);
  for (size_t i = 0; i < a.size(); ++i) {
    if (!m.equals(a[i], b[i])) return m.less(a[i], b[i]);
  }
  return false;
}

Values sorted(Machine& m, const Values& items, Keys keys, std::vector<Keyed> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    if (m.failed()) return false;
    return reverse ? keys_less(m, keys, b.keys, a.keys) : keys_less(m, keys, a.keys, b.keys);
  });
  Values out;
  for (const Keyed& key : keyed) out.push_back(items[key.at]);
  return out;
}

Value sort(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "sort", {"reverse", "case_sensitive", "attribute"});
  Values items;
  if (!p || !all(m, subject, items)) return {};
  std::vector<Path> paths;
  if (p.has(2) && p[2].is_string()) {
    std::string_view s = p[2].str();
    for (size_t begin = 0; begin <= s.size() && m.spend() && m.room(paths.size() * 2 * sizeof(Path));) {
      size_t end = std::min(s.find(',', begin), s.size());
      paths.emplace_back(m, m.string(s.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else {
    paths.emplace_back(m, p.has(2) ? p[2] : Value::none());
  }
  std::vector<Keyed> keyed;
  const size_t n_bytes = 64 + paths.size() * 2 * sizeof(Value);
  for (size_t i = 0; i < items.size() && m.spend(4 + paths.size()) && m.room((i + 1) * n_bytes); ++i) {
    keyed.push_back({{}, i});
    for (const Path& path : paths) keyed.back().keys.push_back(fold(m, path.get(m, items[i]), p.flag(1, false)));
  }
  if (m.failed()) return {};
  Values out = sorted(m, items, Keys::kSeveral, std::move(keyed), p.flag(0, false));
  return m.failed() ? Value() : m.list(std::move(out));
}

Value dictsort(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!p) return {};
  if (subject.is_undefined()) return m.undefined_used(subject);
  if (!subject.is(Kind::kDict)) return m.fail(std::string("dictsort needs a dict, not '") + type_name(subject) + "'.");
  std::string by = p.has(1) ? p.text(1).bytes : "key";
  if (by != "key" && by != "value") return m.fail("dictsort sorts by 'key' or 'value'.");
  Values items;
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : subject.as<DictObject>()->entries) {
    keyed.push_back({{fold(m, by == "key" ? key : value, p.flag(0, false))}, items.size()});
    items.push_back(m.tuple({key, value}));
    if (m.failed()) return {};
  }
  Values out = sorted(m, items, Keys::kOne, std::move(keyed), p.flag(2, false));
  return m.failed() ? Value() : m.list(std::move(out));
}

Value unique(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "unique", {"case_sensitive", "attribute"});
  Values items;
  if (!p || !all(m, subject, items)) return {};
  Path path(m, p.has(1) ? p[1] : Value::none());
  DictObject seen;
  Values out;
  for (const Value& item : items) {
    Value key = fold(m, path.get(m, item), p.flag(0, false));
    if (!m.spend(2 + weight_of(key)) || ((out.size() & 255) == 0 && !m.room(out.size() * 128))) return {};
    if (!is_hashable(key)) return m.fail(std::string("unique cannot compare values of type '") + type_name(key) + "'.");
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    out.push_back(item);
  }
  return m.iterator(std::move(out));
}

template <bool largest>
Value extreme(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, largest ? "max" : "min", {"case_sensitive", "attribute"});
  Values items;
  if (!p || !all(m, subject, items)) return {};
  if (items.empty()) return m.undefined("No aggregated item, sequence was empty.");
  Path path(m, p.has(1) ? p[1] : Value::none());
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size() && !m.failed(); ++i) {
    Value key = fold(m, path.get(m, items[i]), p.flag(0, false));
    if (i == 0 || (largest ? m.less(best_key, key, ">") : m.less(key, best_key))) {
      best = i;
      best_key = key;
    }
  }
  return items[best];
}

Value groupby(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  Values items;
  if (!p || !all(m, subject, items)) return {};
  Path path(m, p[0]);
  const Value* otherwise = p.has(1) ? &p[1] : nullptr;
  bool case_sensitive = p.flag(2, false);
  std::vector<Keyed> keyed;
  for (size_t i = 0; i < items.size() && m.spend(4) && m.room(keyed.size() * 64); ++i) {
    keyed.push_back({{fold(m, path.get(m, items[i], otherwise), case_sensitive)}, i});
  }
  if (m.failed()) return {};
  Values order = sorted(m, items, Keys::kOne, std::move(keyed), false);
  Values groups;
  for (size_t i = 0; i < order.size() && !m.failed();) {
    Value key = path.get(m, order[i], otherwise);
    Value folded = fold(m, key, case_sensitive);
    Values members;
    for (; i < order.size() && !m.failed(); ++i) {
      if (!m.equals(fold(m, path.get(m, order[i], otherwise), case_sensitive), folded)) break;
      members.push_back(order[i]);
    }
    if (members.empty()) break;  // a NaN equals nothing, not even itself
    Value group = m.tuple({case_sensitive ? folded : key, m.list(std::move(members))});
    if (m.failed()) return {};
    group.as<ListObject>()->is_group = true;
    groups.push_back(std::move(group));
  }
  return m.failed() ? Value() : m.list(std::move(groups));
}

Value sum(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "sum", {"attribute", "start"});
  Values items;
  if (!p || !all(m, subject, items)) return {};
  Path path(m, p.has(0) ? p[0] : Value::none());
  Value total = p.has(1) ? p[1] : Value::integer(0);
  if (total.is_string()) return m.fail("sum adds no strings; use join.");
  for (const Value& item : items) {
    total = m.add(total, path.get(m, item));
    if (m.failed()) return {};
  }
  return total;
}

// --- Cutting ---

Value batch(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "batch", {"linecount", "fill_with"}, 1);
  Values items;
  if (!p || !all(m, subject, items)) return {};
  int64_t size = p.integer(0, 1);
  if (m.failed()) return {};
  Values lines, line;
  for (const Value& item : items) {
    if (static_cast<int64_t>(line.size()) == size) {
      lines.push_back(m.list(std::exchange(line, {})));
      if (m.failed()) return {};
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    int64_t missing = size - static_cast<int64_t>(line.size());
    if (p.has(1) && !p[1].is_none() && missing > 0) {
      if (!m.room(static_cast<uint64_t>(missing) * sizeof(Value)) || !m.spend(static_cast<uint64_t>(missing) / 8))
        return {};
      line.insert(line.end(), static_cast<size_t>(missing), p[1]);
    }
    lines.push_back(m.list(std::move(line)));
  }
  return m.iterator(std::move(lines));
}

Value slice(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "slice", {"slices", "fill_with"}, 1);
  Values items;
  if (!p || !all(m, subject, items)) return {};
  int64_t n = p.integer(0, 1);
  if (m.failed()) return {};
  if (n == 0) return m.fail("slice cuts into at least one piece.");
  Values pieces;
  auto size = static_cast<int64_t>(items.size());
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!m.spend(2) || ((i & 255) == 0 && !m.room(static_cast<uint64_t>(i) * 128))) return {};
    bool extra = i < size % n;
    int64_t end = at + size / n + extra;
    Values piece(items.begin() + at, items.begin() + end);
    if (p.has(1) && !p[1].is_none() && !extra) piece.push_back(p[1]);
    pieces.push_back(m.list(std::move(piece)));
    at = end;
  }
  return m.iterator(std::move(pieces));
}

}  // namespace

const FilterEntry kListFilters[] = {

    {"batch", batch},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last},
    {"length", length_filter},
    {"list", list_filter},

    {"max", extreme<true>},
    {"min", extreme<false>},

    {"reverse", reverse},

    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
    {"", nullptr},
};

FilterFn find_filter(std::string_view name) {
  for (const FilterEntry* table : {kTextFilters, kListFilters, kApplyingFilters, kJsonFilters}) {
    for (const FilterEntry* entry = table; !entry->name.empty(); ++entry) {
      if (entry->name == name) return entry->fn;
    }
  }
  return nullptr;
}

}  // namespace ibid::jinja
