#include "server/api_keys.h"

#include <openssl/crypto.h>

#include <map>

#include "base/sha256.h"

namespace ibid {
namespace {

std::string base64_decoded(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    int value = -1;
    if (c >= 'A' && c <= 'Z') value = c - 'A';
    if (c >= 'a' && c <= 'z') value = c - 'a' + 26;
    if (c >= '0' && c <= '9') value = c - '0' + 52;
    if (c == '+') value = 62;
    if (c == '/') value = 63;
    if (value < 0) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out += static_cast<char>(bits >> n_bits & 0xff);
    }
  }
  return out;
}

bool starts_with_word(std::string_view text, std::string_view word) {
  if (text.size() <= word.size() || text[word.size()] != ' ') return false;
  for (size_t i = 0; i < word.size(); ++i) {
    if ((text[i] | 0x20) != word[i]) return false;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(std::string_view text) {
  ApiKeys keys;
  std::map<Digest, std::pair<int, std::string>> known;  // line and tenant
  int n_lines = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++n_lines;
    if (line.empty() || line.front() == '#') continue;
    std::string tenant;
    if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
      tenant = trimmed(line.substr(0, colon));
      line = trimmed(line.substr(colon + 1));
    }
    bool printable = true;
    for (const char c : line) printable = printable && c > 0x20 && c < 0x7f;
    if (line.size() < 8 || !printable) {
      return invalid(
          "Line " + std::to_string(n_lines) +
          " of the API keys is no key: a key has at least 8 printable characters and no blanks, as KEY or TENANT:KEY.");
    }
    const Digest digest = sha256(line);
    if (tenant.empty()) tenant = "key:" + sha256_hex(line).substr(0, 16);  // a tenant that a line names has no colon
    const auto [earlier, is_new] = known.try_emplace(digest, n_lines, tenant);
    if (!is_new && earlier->second.second != tenant) {
      return invalid("Lines " + std::to_string(earlier->second.first) + " and " + std::to_string(n_lines) +
                     " of the API keys give one key to two tenants; a key has one.");
    }
    if (is_new) keys.entries_.push_back({digest, std::move(tenant)});
  }
  if (keys.empty()) return invalid("There is no API key in what was given; write one a line, as KEY or TENANT:KEY.");
  return keys;
}

std::optional<std::string> ApiKeys::tenant_of(std::string_view key) const {
  const Digest digest = sha256(key);
  std::optional<std::string> tenant;
  for (const Entry& entry : entries_) {  // all of them, always
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) tenant = entry.tenant;
  }
  return tenant;
}

std::string ApiKeys::key_in(const WebRequest& request) {
  const std::string_view header = request.header("authorization");
  if (starts_with_word(header, "bearer")) return std::string(trimmed(header.substr(7)));
  if (starts_with_word(header, "basic")) {
    const std::string pair = base64_decoded(trimmed(header.substr(6)));
    const size_t colon = pair.find(':');
    return colon == std::string::npos ? std::string() : pair.substr(colon + 1);
  }
  return std::string(request.header("x-api-key"));
}

}  // namespace ibid
