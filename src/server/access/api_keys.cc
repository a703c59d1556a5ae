#include "server/access/api_keys.h"

#include <openssl/crypto.h>

#include <charconv>
#include <cmath>
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

bool read_number(std::string_view text, double least, double most, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
}

// One term, "weight=3". False: there is no such term, or its value is out of range.
bool read_term(std::string_view text, TenantTerms& terms) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = text.substr(0, equals), given = text.substr(equals + 1);
  double number = 0;
  if (name == "weight") return read_number(given, 0.001, 1000, terms.weight);
  if (name == "queue-share") return read_number(given, 0.001, 1, terms.queue_share);
  if (name == "max-wait") return read_number(given, 0.001, 86400, terms.max_wait);
  if (name == "admin" && (given == "yes" || given == "no")) return terms.is_admin = given == "yes", true;
  if (name != "sequences" && name != "tokens-per-minute") return false;
  if (!read_number(given, 1, 1e12, number) || number != std::floor(number)) return false;
  (name == "sequences" ? terms.sequences : terms.tokens_per_minute) = static_cast<int64_t>(number);
  return true;
}

constexpr std::string_view kTerms =
    "weight (0.001 to 1000), sequences and tokens-per-minute (whole, from 1), queue-share (0.001 to 1), max-wait "
    "(seconds, 0.001 to 86400) and admin (yes or no)";

}  // namespace

bool ApiKeys::has_lines(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.front() != '#') return true;
  }
  return false;
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, size_t min_len) {
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
    // Its terms, from the end: a key has no blanks.
    TenantTerms terms;
    bool has_terms = false;
    for (size_t blank = line.find_last_of(" \t"); blank != std::string_view::npos; blank = line.find_last_of(" \t")) {
      const std::string_view term = line.substr(blank + 1);
      if (term.find('=') == std::string_view::npos) break;
      if (!read_term(term, terms)) {
        return invalid("Line " + std::to_string(n_lines) +
                       " of the API keys has terms that are none: those that there are " + "are " +
                       std::string(kTerms) + ", as weight=3.");
      }
      has_terms = true;
      line = trimmed(line.substr(0, blank));
    }
    bool printable = true;
    for (const char c : line) printable = printable && c > 0x20 && c < 0x7f;
    if (line.size() < std::max<size_t>(min_len, 1) || !printable) {
      return invalid("Line " + std::to_string(n_lines) + " of the API keys is no key: a key has at least " +
                     std::to_string(std::max<size_t>(min_len, 1)) +
                     " printable characters and no blanks, as KEY or TENANT:KEY.");
    }
    const Digest digest = sha256(line);
    if (tenant.empty()) tenant = "key:" + sha256_hex(line).substr(0, 16);  // a tenant that a line names has no colon
    const auto [earlier, is_new] = known.try_emplace(digest, n_lines, tenant);
    if (!is_new && earlier->second.second != tenant) {
      return invalid("Lines " + std::to_string(earlier->second.first) + " and " + std::to_string(n_lines) +
                     " of the API keys give one key to two tenants; a key has one.");
    }
    TenantTerms& known_terms = keys.terms_[tenant];
    if (has_terms && known_terms != TenantTerms() && known_terms != terms) {
      return invalid("Line " + std::to_string(n_lines) +
                     " of the API keys gives its tenant other terms than an earlier line does.");
    }
    if (has_terms) known_terms = terms;
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
