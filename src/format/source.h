// Resolves MODEL, as a user types it, to a path, and fetches the model where needed.
//
//   smollm2, default      an alias of format/registry.h
//   path/to/model.gguf    a file that is there
//   path/to/folder        a folder with config.json and *.safetensors
//   hf:user/repo          a safetensors repository of the Hugging Face hub (or of HF_ENDPOINT)
//   hf:user/repo:file     one file of it, a GGUF; hf:user/repo@revision[:file] pins a branch, tag or commit
//   hf:user/repo:Q4_K_M   the GGUF file of it that is so quantised, by the hub's list of its files
//
// Fetched files live in cache/models. They appear there complete or not at all: a download grows beside its place (and
// is resumed there) and is renamed after its size and checksum were checked. Any number of processes may fetch the same
// model at once: one works, the others wait on a lock file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ibid {

struct FetchProgress {
  std::string file;      // what is being fetched, for a person
  int64_t n_done = 0;    // bytes
  int64_t n_total = -1;  // -1 where unknown
  int64_t n_before = 0;  // of n_done, what was there already
  bool waiting = false;  // for another process that fetches the same
};

struct FetchOptions {
  bool checks = false;  // what is there already is read, and fetched again if broken
  std::string cache;    // empty: cache_folder()
  std::function<void(const FetchProgress&)> progress = {};  // called from the fetching thread, about ten times a second
  std::function<bool()> cancelled = {};                     // polled as often; true ends with kUnavailable
  std::string hub_endpoint = {};                            // empty: HF_ENDPOINT, else https://huggingface.co
  std::string hub_token = {};                               // empty: HF_TOKEN, else none
  int timeout_s = 60;                                       // without a byte
  int n_retries = 5;                                        // after failures that may pass
  int first_pause_ms = 500;                                 // before the first retry; doubled for each further one
};

// The path for ModelFile::open; fetches the model first if it is not there.
Result<std::string> fetch_model(std::string_view model, const FetchOptions& options);

// The same without fetching: kNotFound, with the command that fetches it, if it is not there.
Result<std::string> locate_model(std::string_view model, const std::string& cache = {});

// Removes the fetched files and partial downloads; returns the bytes. kNotFound where nothing is there. A
// path of the user's own is refused.
Result<int64_t> remove_model(std::string_view model, const std::string& cache = {});

}  // namespace ibid
