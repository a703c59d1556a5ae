// Grammars: those of one model, compiled once for all requests that ask for the same and kept within a budget of bytes.
// Where it is exceeded, whose grammars take most gives up the one that was not asked for longest; what requests still
// use lives on until they end. So whoever sends ever new grammars takes the room of their own alone, and time of nobody
// else. From any thread at once; grammars are compiled side by side.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sample/grammar/matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::grammar {

class Grammars {
 public:
  static constexpr size_t kDefaultBytes = 64 << 20;

  // The tokenizer outlives it.
  explicit Grammars(const Tokenizer& tokenizer, size_t max_bytes = kDefaultBytes)
      : tokenizer_(tokenizer), max_bytes_(max_bytes) {}

  // Grammars of one tenant are never another's: what is known of one tells nothing of what others ask.
  // Of Language::kMade, `make` says what it is; the source tells it from all others.
  using Make = std::function<Status(const FindToken&, Grammar&)>;
  Result<std::shared_ptr<Compiled>> get(const Source& source, const std::string& tenant = {}, const Make& make = {});
  // Made when first asked for, in some 200 ms.
  std::shared_ptr<const TokenTrie> trie() const;

  size_t bytes() const;
  size_t size() const;

 private:
  struct Key {
    std::string tenant;
    Source source;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    std::shared_ptr<Compiled> compiled;
    size_t bytes = 0;
    std::list<const Key*>::iterator place;
  };
  struct Tenant {
    size_t bytes = 0;
    std::list<const Key*> by_use;  // the one that was asked for last comes first
  };

  void make_room();

  const Tokenizer& tokenizer_;
  size_t max_bytes_;
  mutable std::once_flag trie_once_;
  mutable std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::map<std::string, Tenant> tenants_;
  size_t bytes_ = 0;
};

}  // namespace ibid::grammar
