// Redaction: a record without what users wrote. Each token becomes a number that is keyed by all tokens before it, its
// tenant and its salt, so that prompts keep their lengths and share exactly the beginnings that they shared: the same
// beginning, the same keys; the first difference stays one. After the same beginning, numbers stand in the order of
// the tokens, because the cache's ties do (PrefixTree::nearest); how often a token occurs cannot be seen. The key is
// drawn at random and forgotten with the process. Tenants and salts become names that are equal where theirs were. What
// else a request contains about its text (stops, biases, masks, the sampler's settings and seed) is left out: a
// redacted record replays scheduling alone. docs/users/replay.md lists what one still reveals.
//
// The numbers are an order-preserving encryption: the range is cut in two again and again, where the tokens are, each
// time at a place that the key draws (after Boldyreva, Chenette, Lee and O'Neill, "Order-Preserving Symmetric
// Encryption", EUROCRYPT 2009; cut evenly, and under a key of its own at each place of a text). What draws, and what
// chains the keys, is AES-128 of OpenSSL. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/record/event.h"

namespace ibid::record {

class Redaction {
 public:
  static constexpr uint32_t kNumbers = 1 << 24;  // what stands for tokens is below, or below the vocabulary's size
  Redaction();                                   // with a key of its own
  ~Redaction();
  // Events must come in the order of the record, the head first.
  void redact(Event& event);

 private:
  using Block = std::array<unsigned char, 16>;
  struct Live {  // a request under way: where each of its choices' chains stands, a search's by the seats of its beams
    std::vector<Block> chains;
    std::vector<int32_t> running;  // of a search: the seats of the beams that run
    int32_t n_left = 0;
  };
  Block encrypt(Block block) const;
  Block chain_of(const std::string& scope) const;
  TokenId replace(Block& chain, TokenId token) const;  // and goes on after it
  uint32_t drawn(const Block& chain, uint32_t from, uint32_t to, uint32_t n) const;
  void redact(Request& request, Live& live);
  void redact(Step& step);
  void redact(SearchTurn& turn, Live& live) const;
  std::shared_ptr<const PromptPictures> redacted(const PromptPictures& pictures);
  std::string name_for(std::map<std::string, std::string>& names, const std::string& name, const char* kind);

  struct Cipher;
  std::unique_ptr<Cipher> cipher_;
  uint32_t vocab_size_ = 1;
  std::map<std::string, std::string> tenants_, salts_, pictures_;
  int64_t n_names_ = 0;
  std::map<RequestId, Live> live_;
};

}  // namespace ibid::record
