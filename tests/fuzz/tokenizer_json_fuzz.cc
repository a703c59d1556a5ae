// Any bytes as a tokenizer.json: read it, and where that works, encode with it and decode every id.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto made = ibid::Tokenizer::from_json(bytes);
  if (!made.ok()) {
    if (made.error().message.empty()) std::abort();
    return 0;
  }
  const ibid::Tokenizer& tokenizer = **made;
  for (std::string_view text : {std::string_view("ab  abc <x> a\n1\xC3\xA9\xFF"), bytes.substr(0, 200)}) {
    std::vector<ibid::TokenId> ids =
        tokenizer.encode(text, {.add_special = true, .parse_special = true, .strict_bytes = size % 2 == 1});
    for (ibid::TokenId id : ids) {
      if (raw(id) < 0 || raw(id) >= tokenizer.vocab_size()) std::abort();
    }
    tokenizer.decode(ids, true);
  }
  return 0;
}
