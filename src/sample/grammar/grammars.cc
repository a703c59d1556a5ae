#include "sample/grammar/grammars.h"

#include <algorithm>
#include <map>

#include "sample/grammar/rules_bytes.h"

namespace ibid::grammar {
namespace {

std::shared_ptr<const TokenTrie> make_trie(const Tokenizer& tokenizer) {
  std::vector<std::string_view> bytes;
  bytes.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (int t = 0; t < tokenizer.vocab_size(); ++t) bytes.push_back(tokenizer.token_bytes(TokenId{t}));
  // What ends an answer is no part of its text.
  for (TokenId id : tokenizer.vocabulary().end_of_generation)
    if (raw(id) >= 0 && raw(id) < tokenizer.vocab_size()) bytes[static_cast<size_t>(raw(id))] = {};
  return std::make_shared<const TokenTrie>(bytes);
}

}  // namespace

std::shared_ptr<const TokenTrie> Grammars::trie() const {
  std::call_once(trie_once_, [this] { trie_ = make_trie(tokenizer_); });
  return trie_;
}

// A record's rules, which are kMade too, have no choices.
Source Grammars::made_source(std::string parts) {
  return {.language = Language::kMade, .text = std::move(parts), .choices = {"of parts"}};
}

Result<std::shared_ptr<Compiled>> Grammars::compile_new(
    const Source& source, const std::function<Status(const FindToken&, Grammar&)>& make) const {
  Fuel fuel;
  Grammar grammar(fuel);
  std::map<std::string, TokenId, std::less<>> found;  // each name is looked for once
  const auto find = [&](std::string_view spelled) {
    if (const auto known = found.find(spelled); known != found.end()) return known->second;
    const std::vector<std::string>& tokens = tokenizer_.vocabulary().tokens;
    if (!fuel.burn(static_cast<int64_t>(tokens.size()) / 16)) return TokenId::kNone;
    const auto at = std::find(tokens.begin(), tokens.end(), spelled);
    const TokenId id = at == tokens.end() ? TokenId::kNone : TokenId{static_cast<int32_t>(at - tokens.begin())};
    return found.emplace(spelled, id).first->second;
  };
  const Status is_read = make(find, grammar);
  if (fuel.is_empty()) return out_of_fuel();
  TRY(is_read);
  ASSIGN_OR_RETURN(std::shared_ptr<const Automaton> automaton, compile(grammar, *trie()));
  auto compiled =
      std::make_shared<Compiled>(source, std::move(automaton), trie(), TokenMasks::kDefaultBytes, together_);
  compiled->set_notes(grammar.notes());
  if (source.language == Language::kMade) compiled->set_rules(write_rules(grammar));
  return compiled;
}

Result<std::shared_ptr<Compiled>> Grammars::find_or_make(
    const Source& source, const std::string& tenant, const std::function<Status(const FindToken&, Grammar&)>& make) {
  const Key key{tenant, source};
  {
    std::lock_guard lock(mutex_);
    auto known = entries_.find(key);
    if (known != entries_.end()) {
      std::list<const Key*>& by_use = tenants_[tenant].by_use;
      by_use.splice(by_use.begin(), by_use, known->second.place);
      if (known->second.refusal) return *known->second.refusal;
      return known->second.compiled;
    }
    if (together_->are_too_many()) make_room(0);
  }
  if (together_->are_too_many())
    return exhausted("The grammars of requests under way take all the memory that there is for them; try again later.");
  ++n_compiled_;
  Result<std::shared_ptr<Compiled>> made = compile_new(source, make);
  // The same source always leads to these errors; any other depends on the machine's state.
  const bool is_final =
      made || made.error().kind == ErrorKind::kInvalid || made.error().kind == ErrorKind::kUnsupported;
  if (!is_final) return made;
  std::lock_guard lock(mutex_);
  auto [at, is_new] = entries_.try_emplace(key);
  Entry& entry = at->second;
  if (!is_new && !entry.refusal) return entry.compiled;  // another was faster
  if (!is_new) return *entry.refusal;
  made ? static_cast<void>(entry.compiled = *made) : static_cast<void>(entry.refusal = made.error());
  Tenant& owner = tenants_[tenant];
  owner.by_use.push_front(&at->first);
  entry.place = owner.by_use.begin();
  // The key has the source once more.
  size_t bytes = source.text.size() + sizeof(Key) + sizeof(Entry) + 128;
  for (const std::string& choice : source.choices) bytes += choice.size() + sizeof(std::string);
  entry.bytes = bytes + (made ? (*made)->idle_bytes() : made.error().message.size());
  owner.bytes += entry.bytes, bytes_ += entry.bytes;
  make_room(max_kept_);
  return made;
}

void Grammars::make_room(size_t most) {
  while (bytes_ > most) {
    auto largest = std::max_element(tenants_.begin(), tenants_.end(),
                                    [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    auto last = entries_.find(*largest->second.by_use.back());
    largest->second.bytes -= last->second.bytes, bytes_ -= last->second.bytes;
    largest->second.by_use.pop_back();
    entries_.erase(last);
    if (largest->second.by_use.empty()) tenants_.erase(largest);
  }
}

size_t Grammars::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

size_t Grammars::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace ibid::grammar
