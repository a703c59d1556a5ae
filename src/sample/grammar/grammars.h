// Grammars: the compiled grammars of one model, shared by all requests with the same source and kept within a budget of
// bytes. Above it, the tenant whose grammars take most loses its least recently used one; a grammar in use lives until
// its requests end, and while those and the kept ones fill the budget, no other is compiled. So a tenant that keeps
// sending new grammars evicts only its own, and delays no other tenant. Refusals are kept too, because finding them may
// cost as much. From any thread; grammars are compiled concurrently.
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

  // The tokenizer outlives it. `max_bytes`: of all, including those in use, except what the longest answers need at
  // least; a quarter of it is for unused ones.
  explicit Grammars(const Tokenizer& tokenizer, size_t max_bytes = kDefaultBytes)
      : tokenizer_(tokenizer), max_kept_(max_bytes / 4), together_(std::make_shared<GrammarBytes>(max_bytes)) {}
  // The memory of the vocabulary's tries, and of compiling one grammar, approximately.
  static int64_t bytes_beside(int32_t vocab_size) { return int64_t{vocab_size} * 128 + (32 << 20); }

  // Tenants share no grammars, so that a tenant cannot detect the grammars of another. kExhausted: grammars in use take
  // the whole budget.
  Result<std::shared_ptr<Compiled>> get(const Source& source, const std::string& tenant = {}) {
    return find_or_make(source, tenant,
                        [&source](const FindToken& find, Grammar& grammar) { return read(source, find, grammar); });
  }
  // A grammar that a caller makes. `make` is a plain function: its result can depend only on the parts and the
  // tokenizer, and all fields of the parts are in the key. So it does not depend on earlier requests.
  template <typename Parts>
  using Make = Status (*)(const Parts&, const Tokenizer&, const FindToken&, Grammar&);
  template <typename Parts>
  Result<std::shared_ptr<Compiled>> made(const Parts& parts, const std::string& tenant, Make<Parts> make) {
    return find_or_make(made_source(spell_fields(parts)), tenant, [&](const FindToken& find, Grammar& grammar) {
      return make(parts, tokenizer_, find, grammar);
    });
  }
  // Made at the first use, in some 200 ms.
  std::shared_ptr<const TokenTrie> trie() const;

  size_t bytes() const;                                // of those that are kept
  size_t taken() const { return together_->taken(); }  // by all
  size_t size() const;                                 // their number, with refusals
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
    std::list<const Key*> by_use;  // the most recently used first
  };

  // `make` may depend only on the source.
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
