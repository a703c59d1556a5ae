// Making values and going through them.
#include <algorithm>

#include "text/jinja/machine.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {
namespace {

size_t held_bytes(const Text& text) { return text.bytes.capacity() + text.marks.capacity() * sizeof(TextRange); }

constexpr size_t kEntryBytes = sizeof(std::pair<Value, Value>) + 40;  // with its place in the index

}  // namespace

Value Machine::string(Text text, bool markup) {
  auto object = std::make_unique<StringObject>();
  object->n_chars = static_cast<int64_t>(utf8::count(text.bytes));
  object->weight = 1 + text.size() / 64;
  object->markup = markup;
  object->text = std::move(text);
  size_t n_bytes = held_bytes(object->text);
  spend(object->weight);
  return adopt(Kind::kString, std::move(object), n_bytes);
}

Value Machine::undefined(std::string message) {
  auto object = std::make_unique<UndefinedObject>();
  object->message = std::move(message);
  spend();
  size_t n_bytes = object->message.size();
  return adopt(Kind::kUndefined, std::move(object), n_bytes);
}

Value Machine::missing(const Value& object, const Value& name) {
  std::string type = type_name(object);
  bool named = name.is_string();
  return undefined("'" + type + (object.is_none() || named ? " object" : "") + "' has no " +
                   (named ? "attribute " : "element ") + repr(name));
}

Value Machine::list(std::vector<Value> items, Kind kind) {
  auto object = std::make_unique<ListObject>();
  object->depth = 1;
  for (const Value& item : items) weigh(*object, item);
  if (object->depth > kMaxDepth) return fail("lists are nested too deeply.");
  spend(items.size() / 4);
  size_t n_bytes = items.capacity() * sizeof(Value);
  object->items = std::move(items);
  return adopt(kind, std::move(object), n_bytes);
}

Value Machine::dict(std::unique_ptr<DictObject> dict) {
  dict->depth = std::max(dict->depth, 1u);
  if (dict->depth > kMaxDepth) return fail("dicts are nested too deeply.");
  spend(dict->entries.size() / 4);
  size_t n_bytes = dict->entries.capacity() * kEntryBytes;
  return adopt(Kind::kDict, std::move(dict), n_bytes);
}

void Machine::charge_container(const Value& made) {
  size_t n_bytes = made.is(Kind::kDict) ? sizeof(DictObject) + made.as<DictObject>()->entries.capacity() * kEntryBytes
                                        : sizeof(ListObject) + made.as<ListObject>()->items.capacity() * sizeof(Value);
  charge(*made.object(), n_bytes);
}

Value Machine::iterator(std::vector<Value> items, const char* type) {
  auto object = std::make_unique<IteratorObject>();
  object->depth = 1;
  for (const Value& item : items) weigh(*object, item);
  if (object->depth > kMaxDepth) return fail("iterators are nested too deeply.");
  spend(items.size() / 8);
  size_t n_bytes = items.capacity() * sizeof(Value);
  object->items = std::move(items);
  object->type = type;
  return adopt(Kind::kIterator, std::move(object), n_bytes);
}

Value Machine::range(__int128 start, __int128 stop, __int128 step) {
  auto object = std::make_unique<RangeObject>();
  object->start = static_cast<int64_t>(start);
  object->stop = static_cast<int64_t>(stop);
  object->step = static_cast<int64_t>(step);
  // The slice of a range may end and step beyond what its numbers reach.
  if (object->start != start || object->stop != stop || object->step != step)
    return fail("an integer leaves the range of 64 bits.");
  __int128 distance = step > 0 ? stop - start : start - stop;
  __int128 by = step > 0 ? step : -step;
  __int128 size = distance > 0 ? (distance + by - 1) / by : 0;
  if (size > 100000) return fail("a range of more than 100000 numbers is refused.");
  object->size = static_cast<int64_t>(size);
  return adopt(Kind::kRange, std::move(object));
}

Value Machine::new_namespace() {
  Value ns = adopt(Kind::kNamespace, std::make_unique<NamespaceObject>());
  namespaces_.push_back(ns);
  return ns;
}

Value Machine::method(const Value& self, std::string_view name, MethodFn fn) {
  auto object = std::make_unique<MethodObject>();
  weigh(*object, self);
  if (object->depth > kMaxDepth) return fail("methods are nested too deeply.");
  object->self = self;
  object->name = name;
  object->fn = fn;
  return adopt(Kind::kMethod, std::move(object));
}

Value Machine::function(const char* name, FunctionFn fn) {
  auto object = std::make_unique<FunctionObject>();
  object->name = name;
  object->fn = fn;
  return adopt(Kind::kFunction, std::move(object));
}

// --- Iteration ---

bool Machine::is_iterable(const Value& v) const {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kDictView:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

bool Iter::next(Machine& machine, Value& item) {
  switch (source_.kind()) {
    case Kind::kString: {
      const Text& text = source_.text();
      if (at_ >= text.size()) return false;
      size_t begin = at_;
      next_char(text.bytes, at_);
      item = machine.string(text.slice(begin, at_), source_.is_markup());
      return !machine.failed();
    }
    case Kind::kList:
    case Kind::kTuple:
      if (at_ >= source_.items().size()) return false;
      item = source_.items()[at_++];
      return true;
    case Kind::kDict: {
      const auto& entries = source_.as<DictObject>()->entries;
      if (at_ >= entries.size()) return false;
      item = entries[at_++].first;
      return true;
    }
    case Kind::kDictView: {
      const auto* view = source_.as<DictViewObject>();
      const auto& entries = view->dict.as<DictObject>()->entries;
      if (at_ >= entries.size()) return false;
      const auto& [key, value] = entries[at_++];
      if (view->what == DictViewObject::kItems) {
        item = machine.tuple({key, value});
      } else {
        item = view->what == DictViewObject::kKeys ? key : value;
      }
      return !machine.failed();
    }
    case Kind::kRange: {
      const auto* range = source_.as<RangeObject>();
      if (static_cast<int64_t>(at_) >= range->size) return false;
      item = Value::integer(static_cast<int64_t>(range->at(static_cast<int64_t>(at_++))));
      return true;
    }
    case Kind::kIterator: {
      auto* iterator = source_.as<IteratorObject>();
      if (iterator->next >= iterator->items.size()) return false;
      item = iterator->items[iterator->next++];
      return true;
    }
    default:
      return false;
  }
}

bool Machine::collect(const Value& v, std::vector<Value>& items) {
  if (!is_iterable(v)) {
    fail(std::string("a value of type '") + type_name(v) + "' is not iterable.");
    return false;
  }
  Iter iter(v);
  Value item;
  while (iter.next(*this, item)) {
    if ((items.size() & 1023) == 0 && !room(items.size() * sizeof(Value))) return false;
    if (!spend()) return false;
    items.push_back(std::move(item));
  }
  return !failed();
}

Value Machine::loop_attribute(const Value& loop_value, std::string_view name) {
  auto& loop = *loop_value.as<LoopObject>();
  auto n_items = [&]() -> int64_t {
    if (loop.known_length >= 0) return loop.known_length;
    Value item;
    std::vector<Value> rest;
    bool had_after = std::exchange(loop.has_after, false);
    Value after = std::move(loop.after);
    while (room(rest.size() * 2 * sizeof(Value)) && fetch(loop, item)) rest.push_back(std::move(item));
    loop.after = std::move(after);
    loop.has_after = had_after;
    loop.rest = std::move(rest);
    loop.rest_at = 0;
    loop.has_rest = true;
    return loop.known_length = static_cast<int64_t>(loop.rest.size()) + loop.index0 + 1 + had_after;
  };
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!peek(loop));
  if (name == "length") return Value::integer(n_items());
  if (name == "revindex") return Value::integer(n_items() - loop.index0);
  if (name == "revindex0") return Value::integer(n_items() - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return peek(loop) ? loop.after : undefined("there is no next item");
  if (name == "cycle") {
    return method(loop_value, name, [](Machine& m, const Value& self, Args& args) -> Value {
      if (args.positional.empty()) return m.fail("loop.cycle() needs items.");
      return args.positional[static_cast<size_t>(self.as<LoopObject>()->index0) % args.positional.size()];
    });
  }
  if (name == "changed") {
    return method(loop_value, name, [](Machine& m, const Value& self, Args& args) {
      auto& state = *self.as<LoopObject>();
      bool same = state.last_changed && state.last_changed->positional.size() == args.positional.size();
      for (size_t i = 0; same && i < args.positional.size(); ++i) {
        same = m.equals(state.last_changed->positional[i], args.positional[i]);
      }
      if (!same && !state.over) state.last_changed = std::move(args);
      return Value::boolean(!same);
    });
  }
  return missing(loop_value, string(name));
}

}  // namespace ibid::jinja
