// Downloads one file over HTTP: resumed, retried, checked, renamed into place.
//
// While it grows it is PATH.partial, with the server's ETag in PATH.partial.etag: a later call requests the rest with
// Range and If-Range, so that a file which changed meanwhile is fetched again. At the end its size must be what the
// server announced, and its SHA-256 what the server named (X-Linked-Etag, or an ETag of 64 hexadecimal digits, as the
// Hugging Face hub gives for large files). The checksum is recorded beside it (format/fetched_file.h). The caller holds
// a lock on the path.
#pragma once

#include <string>

#include "base/result.h"
#include "format/source.h"

namespace ibid {

struct Download {
  std::string url;
  std::string path;           // the destination; its folder exists
  std::string authorization;  // for the first host only
};

// kNotFound for 404, kInvalid for 401 and 403 (the sentence names HF_TOKEN), kExhausted for a full disk.
Status download(const Download& what, const FetchOptions& options);

}  // namespace ibid
