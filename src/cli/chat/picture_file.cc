#include "cli/chat/picture_file.h"

#include <openssl/evp.h>

#include <cstddef>
#include <fstream>
#include <span>
#include <utility>

#include "base/quoted.h"
#include "image/decode.h"

namespace ibid::cli {
namespace {

std::string to_base64(std::span<const std::byte> bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL ends it with a zero
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(n));
  return out;
}

// By the first byte of what was decoded: PNG begins with 0x89, JPEG with 0xff, WebP with "RIFF".
const char* media_type(std::byte first) {
  if (first == std::byte{0x89}) return "image/png";
  return first == std::byte{0xff} ? "image/jpeg" : "image/webp";
}

}  // namespace

Result<Json> read_picture_part(const std::string& path) {
  const DecodeLimits limits;
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(limits.max_bytes + 1);
  if (file) file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (file.bad() || (!file && file.gcount() == 0 && !file.eof()))
    return not_found("There is no file " + in_quotes(path) + ", or it cannot be read.");
  bytes.resize(static_cast<size_t>(file.gcount()));
  if (const Result<Picture> picture = decode_picture(bytes, limits); !picture)
    return Error{picture.error().kind, in_quotes(path) + ": " + picture.error().message, path};
  std::string url = std::string("data:") + media_type(bytes.front()) + ";base64," + to_base64(bytes);
  return Json(Json::Object{{"type", Json(std::string("image_url"))},
                           {"image_url", Json(Json::Object{{"url", Json(std::move(url))}})}});
}

}  // namespace ibid::cli
