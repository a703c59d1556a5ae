// Methods of lists and dicts, and the names that every template sees.
#include <algorithm>
#include <ctime>

#include "text/jinja/text_ops.h"

namespace ibid::jinja {
namespace {

using View = decltype(DictViewObject::what);

template <View what>
Value view(Machine& m, const Value& self, Args& args) {
  if (!Params(m, args, "the method", {})) return {};
  auto object = std::make_unique<DictViewObject>();
  weigh(*object, self);
  if (object->depth > kMaxDepth) return m.fail("dicts are nested too deeply.");
  object->dict = self;
  object->what = what;
  return m.adopt(Kind::kDictView, std::move(object));
}

Value dict_get(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "get()", {"key", "default"}, 1);
  if (!p) return {};
  if (!is_hashable(p[0])) return m.fail(std::string("a ") + type_name(p[0]) + " cannot be the key of a dict.");
  if (!m.spend(weight_of(p[0]))) return {};
  const Value* found = self.as<DictObject>()->find(p[0]);
  return found != nullptr ? *found : p.has(1) ? p[1] : Value::none();
}

Value copied(Machine& m, const Value& self, Args& args) { return Params(m, args, "copy()", {}) ? self : Value(); }

Value count_items(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "count()", {"value"}, 1);
  if (!p) return {};
  int64_t n = 0;
  for (const Value& item : self.items()) n += m.equals(item, p[0]);
  return Value::integer(n);
}

Value index_of(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "index()", {"value"}, 1);
  if (!p) return {};
  for (size_t i = 0; i < self.items().size() && !m.failed(); ++i) {
    if (m.equals(self.items()[i], p[0])) return Value::integer(static_cast<int64_t>(i));
  }
  return m.fail("the value is not in the list.");
}

Value cycler_next(Machine&, const Value& self, Args&) {
  auto* cycler = self.as<CyclerObject>();
  return cycler->items[cycler->next++ % cycler->items.size()];
}

Value cycler_reset(Machine&, const Value& self, Args&) {
  self.as<CyclerObject>()->next = 0;
  return Value::none();
}

Value make_range(Machine& m, Args& args) {
  if (args.positional.empty() || args.positional.size() > 3 || !args.named.empty()) {
    return m.fail("range() takes one to three integers.");
  }
  int64_t parts[3] = {0, 0, 1};
  Params p(m, args, "range()", {"start", "stop", "step"});
  for (size_t i = 0; i < args.positional.size(); ++i) parts[i] = p.integer(i, 0);
  if (args.positional.size() == 1) std::swap(parts[0], parts[1]);
  if (m.failed()) return {};
  if (parts[2] == 0) return m.fail("the step of a range cannot be zero.");
  return m.range(parts[0], parts[1], parts[2]);
}

Value make_dict(Machine& m, Args& args) { return m.dict_from(args, "dict()"); }

Value make_namespace(Machine& m, Args& args) {
  Value source = m.dict_from(args, "namespace()");
  Value ns = m.new_namespace();
  if (m.failed()) return {};
  for (const auto& [key, value] : source.as<DictObject>()->entries) {
    if (!key.is_string() || key.str().starts_with('_')) {
      return m.fail("a namespace stores no attribute that begins with an underscore or is no string.");
    }
    if (!m.keep(2 * sizeof(Value))) return {};
    ns.as<NamespaceObject>()->attributes.emplace_back(key, value);
  }
  return ns;
}

Value make_cycler(Machine& m, Args& args) {
  if (args.positional.empty()) return m.fail("cycler() needs at least one item.");
  auto object = std::make_unique<CyclerObject>();
  for (const Value& item : args.positional) weigh(*object, item);
  if (object->depth > kMaxDepth) return m.fail("cyclers are nested too deeply.");
  object->items = std::move(args.positional);
  const size_t n_bytes = object->items.capacity() * sizeof(Value);
  return m.adopt(Kind::kCycler, std::move(object), n_bytes);
}

Value make_joiner(Machine& m, Args& args) {
  Params p(m, args, "joiner()", {"sep"});
  if (!p) return {};
  auto object = std::make_unique<JoinerObject>();
  object->separator = p.has(0) ? p[0] : m.string(", ");
  weigh(*object, object->separator);
  if (object->depth > kMaxDepth) return m.fail("joiners are nested too deeply.");
  return m.adopt(Kind::kJoiner, std::move(object));
}

Value raise_exception(Machine& m, Args& args) {
  Params p(m, args, "raise_exception()", {"message"}, 1);
  if (!p) return {};
  Text message = m.str(p[0]);
  return m.failed() ? Value() : m.refuse(message.slice(0, byte_of_char(message.bytes, 2000)).bytes);
}

Value strftime_now(Machine& m, Args& args) {
  Params p(m, args, "strftime_now()", {"format"}, 1);
  if (!p) return {};
  const Text& format = p.text(0);
  if (m.failed()) return {};
  std::string time = m.format_time(format.bytes);
  return m.string(format.has_marks() ? Text::marked(std::move(time)) : Text(std::move(time)));
}

}  // namespace

MethodFn find_container_method(Kind kind, std::string_view name) {
  if (kind == Kind::kDict) {
    if (name == "items") return view<DictViewObject::kItems>;
    if (name == "keys") return view<DictViewObject::kKeys>;
    if (name == "values") return view<DictViewObject::kValues>;
    if (name == "get") return dict_get;
    if (name == "copy") return copied;
  }
  if (kind == Kind::kList || kind == Kind::kTuple) {
    if (name == "count") return count_items;
    if (name == "index") return index_of;
    if (name == "copy" && kind == Kind::kList) return copied;
  }
  if (kind == Kind::kCycler) {
    if (name == "next") return cycler_next;
    if (name == "reset") return cycler_reset;
  }
  return nullptr;
}

bool is_refused_method(Kind kind, std::string_view name) {
  auto one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (kind == Kind::kDict) return one_of({"clear", "pop", "popitem", "setdefault", "update"});
  if (kind == Kind::kList) {
    return one_of({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  }
  return false;
}

Value Machine::dict_from(Args& args, std::string_view what) {
  if (args.positional.size() > 1) return fail(std::string(what) + " takes at most one unnamed argument.");
  auto object = std::make_unique<DictObject>();
  auto put = [&](const Value& key, const Value& value) {
    if (!is_hashable(key)) {
      fail(std::string("a ") + type_name(key) + " cannot be the key of a dict.");
      return;
    }
    if ((object->entries.size() & 255) == 0) room(object->entries.size() * 100);
    if (spend(2 + weight_of(key))) object->set(key, value);
  };
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.as<DictObject>()->entries) put(key, value);
    } else if (source.is(Kind::kNamespace)) {
      return fail(std::string(what) + " takes no namespace.");
    } else {
      std::vector<Value> pairs;
      if (!collect(source, pairs)) return {};
      for (const Value& pair : pairs) {
        std::vector<Value> parts;
        if (!collect(pair, parts)) return {};
        if (parts.size() != 2) return fail(std::string(what) + " needs pairs of key and value.");
        put(parts[0], parts[1]);
        if (failed()) return {};
      }
    }
  }
  for (const auto& [name, value] : args.named) put(name, value);
  return failed() ? Value() : dict(std::move(object));
}

std::string Machine::format_time(const std::string& format) {
  auto now = std::chrono::system_clock::to_time_t(now_.value_or(std::chrono::system_clock::now()));
  std::tm local{};
  localtime_r(&now, &local);
  if (format.empty()) return "";
  if (format.size() > 1000) {
    fail("the format of strftime_now() is too long.");
    return "";
  }
  std::string out(8192, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &local));
  return out;
}

void define_globals(Machine& machine) {
  machine.define("range", machine.function("range", make_range));
  machine.define("dict", machine.function("dict", make_dict));
  machine.define("namespace", machine.function("namespace", make_namespace));
  machine.define("cycler", machine.function("cycler", make_cycler));
  machine.define("joiner", machine.function("joiner", make_joiner));
  machine.define("raise_exception", machine.function("raise_exception", raise_exception));
  machine.define("strftime_now", machine.function("strftime_now", strftime_now));
}

}  // namespace ibid::jinja
