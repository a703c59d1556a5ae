#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "base/check.h"

namespace ibid {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(const void* data, size_t n_bytes) { CHECK(EVP_DigestUpdate(state_->context, data, n_bytes) == 1); }

Sha256Digest Sha256::digest() {
  Sha256Digest out = {};
  CHECK(EVP_DigestFinal_ex(state_->context, out.data(), nullptr) == 1);
  return out;
}

std::string Sha256::hex() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (uint8_t byte : digest()) {
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

Sha256Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.digest();
}

// The functions that are deprecated are those that need no memory; what replaces them looks an algorithm up by its
// name.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
Sha256Digest sha256(std::initializer_list<std::span<const std::byte>> parts) {
  SHA256_CTX context;
  Sha256Digest out = {};
  SHA256_Init(&context);
  for (const std::span<const std::byte> part : parts) SHA256_Update(&context, part.data(), part.size());
  SHA256_Final(out.data(), &context);
  return out;
}
#pragma GCC diagnostic pop

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

}  // namespace ibid
