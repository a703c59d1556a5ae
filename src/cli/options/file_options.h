// Options of the commands that write model files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options/options.h"

namespace ibid::cli {

struct ConvertOptions {
  std::string in, out;
  std::string type = "auto";    // or a name of format/quant_mix.h
  int64_t split_max_bytes = 0;  // of tensors in a file; 0: one file
  int threads = 0;              // 0: the cores that affinity and cgroup leave
  bool dry_run = false;         // shows types and sizes, writes nothing
  bool force = false;           // write over what is there
};

struct QuantizeOptions {
  std::string in, out;
  std::string type = "q4_k_m";            // a name of format/quant_mix.h
  std::vector<std::string> tensor_types;  // REGEX=TYPE, as format/type_rules.h reads them
  std::string output_type, embedding_type;
  bool is_pure = false, leaves_output = false, requantises = false;
  bool keep_split = false;
  int64_t split_max_bytes = 0;
  int64_t kv_heads = 0;  // 0: as many as there are
  int threads = 0;
  bool dry_run = false;
  bool force = false;
  std::string imatrix;                                 // a file of `ibid imatrix`; empty: none
  std::vector<std::string> adapters, scaled_adapters;  // PATH, and PATH:SCALE
  // Of folders, types w4a16, w8a16 and w8a8 (model/quantise_folder.h).
  int64_t group_len = 128;
  std::string search = "none";  // or gptq, awq, smoothquant
  std::string file;             // the text of a search; "-": standard input
  int64_t chunk_len = 512;
  int64_t n_chunks = 64;  // the first so many; 0: all
  double damp = 0.01;
  bool act_order = false;
  double smoothing = 0.5;
};
// "w4a16": 4, "w8a16" and "w8a8": 8; other types: 0.
int folder_bits(std::string_view type);

struct ImatrixOptions {
  ModelArgs model;
  std::string file;  // text; "-": standard input
  std::string out;
  std::vector<std::string> in_files;  // whose sums are added
  int64_t chunk_len = 512;
  int64_t n_chunks = 0;  // the first so many; 0: all
  bool with_output = false;
  bool force = false;
};

int convert(const ConvertOptions& options);
int quantize(const QuantizeOptions& options);
int quantise_folder(const QuantizeOptions& options);  // those whose type has folder_bits()
int imatrix(const ImatrixOptions& options);

}  // namespace ibid::cli
