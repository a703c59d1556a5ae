// API keys: who may ask, and which tenant asks. Keys are kept and compared as SHA-256 digests, in a time that depends
// on neither the key given nor the keys known.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/web_message.h"

namespace ibid {

class ApiKeys {
 public:
  // One key a line, `KEY` or `TENANT:KEY`; blank lines and those that begin with # are skipped. A key has at least 8
  // printable characters and no blanks, and one tenant.
  static Result<ApiKeys> parse(std::string_view text);

  bool empty() const { return entries_.empty(); }
  // The tenant whose key this is. A key that names none is one of its own, "key:" and the beginning of its digest: no
  // other key shares what it has cached, and no log that has it gives the key away.
  std::optional<std::string> tenant_of(std::string_view key) const;
  // The key in a request: Authorization: Bearer KEY, X-Api-Key: KEY, or Basic with the key as password (a browser's
  // way).
  static std::string key_in(const WebRequest& request);

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    std::string tenant;
  };
  std::vector<Entry> entries_;
};

}  // namespace ibid
