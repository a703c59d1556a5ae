// API keys: who may ask, and which tenant asks. Keys are kept and compared as SHA-256 digests, in a time that depends
// on neither the key given nor the keys known.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/wire/web_message.h"

namespace ibid {

// What a tenant has of the machine, and what it may not pass.
struct TenantTerms {
  double weight = 1;              // its part beside others' (docs/users/fairness.md)
  int64_t sequences = 0;          // at once, running or waiting; 0: as many as there is room for
  int64_t tokens_per_minute = 0;  // of prompts and answers; 0: any
  double queue_share = 1;         // of all that may run and wait, the most that it may have
  double max_wait = 0;            // seconds for its requests' first steps; 0: any
  bool is_admin = false;          // may unload models that others use (docs/users/serving.md)
  bool operator==(const TenantTerms&) const = default;
};

class ApiKeys {
 public:
  // One key a line, `KEY` or `TENANT:KEY`; blank lines and those that begin with # are skipped. A key has at least
  // `min_len` printable characters and no blanks, and one tenant. After it may stand the tenant's terms, on one of its
  // lines: weight=3 sequences=16 tokens-per-minute=60000 queue-share=0.5 max-wait=30
  // admin=yes
  static constexpr size_t kMinLen = 8;  // where other machines can try keys
  static constexpr char kWanted[] = "This server needs an API key, as \"Authorization: Bearer KEY\".";
  // Whether there is a line that is neither blank nor skipped.
  static bool has_lines(std::string_view text);
  static Result<ApiKeys> parse(std::string_view text, size_t min_len = kMinLen);

  bool empty() const { return entries_.empty(); }
  // The tenant whose key this is. A key that names none is one of its own, "key:" and the beginning of its digest: no
  // other key shares what it has cached, and no log that has it gives the key away.
  std::optional<std::string> tenant_of(std::string_view key) const;
  // Of each tenant that has a key.
  const std::map<std::string, TenantTerms>& terms() const { return terms_; }
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
  std::map<std::string, TenantTerms> terms_;
};

}  // namespace ibid
