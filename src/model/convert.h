// A folder of safetensors as one GGUF file: metadata, vocabulary, and the weights in the types of a mixture.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/thread_team.h"
#include "format/model_file.h"
#include "format/requantise.h"
#include "format/type_rules.h"

namespace ibid {

struct ConvertOptions {
  // None: F16 of a folder of F16, else BF16; of a quantised folder's matrices the types of their codes, exactly.
  std::optional<TypeRules> types;
  std::string name;          // general.name; empty: none
  bool requantises = false;  // quantised matrices in other quantised types too
  bool dry_run = false;      // writes nothing
  Shards shards = {};        // `keep` has no meaning here
  const Importance* importance = nullptr;
};

struct Converted {
  Requantised weights;
  bool has_vocabulary = true;  // false: the folder has no tokenizer.json
  // Parameters of the folder that the file leaves out, as towers of images and draft layers; of a quantised folder
  // those in floats.
  int64_t n_left_out = 0;
  int64_t n_kept = 0;  // matrices of a quantised folder whose values are exactly the folder's
};

// Writes `to`, which appears only once it is complete, with GGUF's keys and names (model/gguf_form.h): what ibid reads
// from it is the folder's model. Norms, biases, routers, position embeddings and taps are F32, as llama.cpp's
// convert_hf_to_gguf.py has them; all else has the mixture's type, rounded from floats of the folder's values. A
// quantised matrix (format/quantised_matrix.h) keeps its codes where it gets the type that it is read as. Holds
// the floats of one tensor (of a layer's experts: of one of their three), the metadata and some 16 MiB. The file
// depends on folder and options alone, not on threads. Errors are sentences: not a folder, an architecture that GGUF
// has no form for or whose form loses a key, a tokenizer that GGUF cannot express, missing tensors, a quantised matrix
// that would be quantised again, a number that is not finite, the disk. progress(done, all) in parameters, on the
// caller's thread.
Result<Converted> convert(const ModelFile& folder, const std::string& to, const ConvertOptions& options,
                          ThreadTeam& team, const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace ibid
