// Grammars: those of one model, compiled once for all requests that ask for the same and kept within a budget of bytes.
// Where it is exceeded, whose grammars take most gives up the one that was not asked for longest; what requests still
// use lives on until they end, and while those and what is kept take all that grammars may, no other is compiled. So
// whoever sends ever new grammars takes the room of their own alone, and time of nobody else. What was refused is kept
// beside them, as finding that out may cost as much. From any thread at once; grammars are compiled side by side.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/spell_fields.h"
#include "sample/grammar/matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid::grammar {

class Grammars {
 public:
  static constexpr size_t kDefaultBytes = 256 << 20;

  // The tokenizer outlives it. `max_bytes`: of all, those in use included, but for what the longest of answers cannot
  // do without; a quarter of it is kept for later.
  explicit Grammars(const Tokenizer& tokenizer, size_t max_bytes = kDefaultBytes)
      : tokenizer_(tokenizer), max_kept_(max_bytes / 4), together_(std::make_shared<GrammarBytes>(max_bytes)) {}
  // What the vocabulary takes as masks need it, and what compiling one grammar adds, about.
  static int64_t bytes_beside(int32_t vocab_size) { return int64_t{vocab_size} * 128 + (32 << 20); }

  // Grammars of one tenant are never another's: what is known of one tells nothing of what others ask.
  // kExhausted: all that grammars may take is taken by those that requests use.
  Result<std::shared_ptr<Compiled>> get(const Source& source, const std::string& tenant = {}) {
    return find_or_make(source, tenant,
                        [&source](const FindToken& find, Grammar& grammar) { return read(source, find, grammar); });
  }
  // One that a caller makes. `make` is a plain function: what it makes can depend on nothing but the parts and the
  // tokenizer, and all fields of the parts are in the key. So it is the same whoever asked for something else before.
  template <typename Parts>
  using Make = Status (*)(const Parts&, const Tokenizer&, const FindToken&, Grammar&);
  template <typename Parts>
  Result<std::shared_ptr<Compiled>> made(const Parts& parts, const std::string& tenant, Make<Parts> make) {
    return find_or_make(made_source(spell_fields(parts)), tenant, [&](const FindToken& find, Grammar& grammar) {
      return make(parts, tokenizer_, find, grammar);
    });
  }
  // Made when first asked for, in some 200 ms.
  std::shared_ptr<const TokenTrie> trie() const;

  size_t bytes() const;                                // of those that are kept
  size_t taken() const { return together_->taken(); }  // by all
  size_t size() const;                                 // how many those are, refusals among them
  int64_t n_compiled() const { return n_compiled_; }   // since the start; refused ones too

 private:
  struct Key {
    std::string tenant;
    Source source;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    std::shared_ptr<Compiled> compiled;
    std::optional<Error> refusal;  // in its place
    size_t bytes = 0;
    std::list<const Key*>::iterator place;
  };
  struct Tenant {
    size_t bytes = 0;
    std::list<const Key*> by_use;  // the one that was asked for last comes first
  };

  // Nothing may enter `make` that is not in the source.
  Result<std::shared_ptr<Compiled>> find_or_make(const Source& source, const std::string& tenant,
                                                 const std::function<Status(const FindToken&, Grammar&)>& make);
  static Source made_source(std::string parts);
  Result<std::shared_ptr<Compiled>> compile_new(const Source& source,
                                                const std::function<Status(const FindToken&, Grammar&)>& make) const;
  void make_room(size_t most);

  const Tokenizer& tokenizer_;
  size_t max_kept_;
  std::shared_ptr<GrammarBytes> together_;
  mutable std::once_flag trie_once_;
  mutable std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::map<std::string, Tenant> tenants_;
  size_t bytes_ = 0;
  std::atomic<int64_t> n_compiled_ = 0;
};

}  // namespace ibid::grammar
