// ModelFile: the result of every loader, for every container: named tensors that point into read-only mappings, and
// metadata by key.
//
// Tensor names and keys are those of the container: GGUF ("blk.0.attn_q.weight", "llama.block_count") or a Hugging
// Face folder ("model.layers.0.self_attn.q_proj.weight"; config.json flattened with dots: "num_hidden_layers",
// "rope_scaling.factor", "text_config.hidden_size"; generation_config.json under "generation_config."). JSON nulls and
// empty objects are left out; an array of objects is flattened with indices ("a.0.b").
//
// Everything here was checked against the file's size: a view never reaches outside its mapping, rows are whole blocks,
// no dimension is zero, names are unique, and data is aligned to its element (8 bytes in GGUF). What the numbers *mean*
// (missing tensors, shapes that disagree with the metadata) is checked by model/.
//
// Threads: immutable; const members from any thread. Views live as long as the ModelFile (moves keep them valid).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/quoted.h"
#include "base/result.h"
#include "tensor/float8.h"
#include "tensor/tensor.h"

namespace ibid {

struct TensorInfo {
  std::string name;
  TensorView view;  // outermost dimension first; contiguous; read-only memory although the pointer is not const
  EightBits eight_bits = EightBits::kInteger;  // what an I8's elements are: also those that a folder calls F8 or U8
  size_t bytes() const { return static_cast<size_t>(view.n_rows() * view.row_stride_bytes); }
};

// Integers of any width are int64_t where they fit and uint64_t otherwise; arrays of booleans are arrays of 0 and 1.
using MetaValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;
// "an integer", "an array of strings" ...: for sentences.
std::string_view meta_kind(const MetaValue& value);

enum class Container { kGguf, kSafetensors };

class ModelFile {
 public:
  // What a loader gathers; ModelFile takes it over. Names are unique and views are valid: the loader has checked.
  struct Parts {
    Container container = Container::kGguf;
    std::string path;                                  // the file or the folder
    std::vector<MappedFile> files;                     // every file that was read, weights first
    std::vector<std::unique_ptr<std::byte[]>> copies;  // data that could not be used where it lay
    std::vector<TensorInfo> tensors;                   // in the order of the file
    std::map<std::string, MetaValue, std::less<>> metadata;
    std::string tokenizer_json;         // safetensors folders: the bytes of tokenizer.json, empty where there is none
    std::string tokenizer_config_json;  // and of tokenizer_config.json
    std::string chat_template;          // and of chat_template.jinja
    std::string quant_recipe_json;      // how its matrices were quantised (format/quant_recipe.h); empty: they were not
  };
  explicit ModelFile(Parts parts);

  // Opens `path`: a .gguf file, or a folder with config.json and *.safetensors.
  static Result<ModelFile> open(const std::string& path);

  Container container() const { return parts_.container; }
  const std::string& path() const { return parts_.path; }
  const std::vector<MappedFile>& files() const { return parts_.files; }
  const std::string& tokenizer_json() const { return parts_.tokenizer_json; }
  const std::string& tokenizer_config_json() const { return parts_.tokenizer_config_json; }
  const std::string& chat_template() const { return parts_.chat_template; }
  const std::string& quant_recipe_json() const { return parts_.quant_recipe_json; }

  const std::vector<TensorInfo>& tensors() const { return parts_.tensors; }
  const TensorInfo* find(std::string_view name) const;     // null where there is none
  Result<TensorView> tensor(std::string_view name) const;  // or a sentence that names it
  size_t file_bytes() const;                               // of all files
  size_t tensor_bytes() const;
  // Gives back the memory of a tensor's mapped bytes; a later read reads the file again.
  void forget(const TensorView& tensor) const;
  // The same for all mapped files, with the neighbouring pages that the system mapped along.
  void forget_all() const;

  const std::map<std::string, MetaValue, std::less<>>& metadata() const { return parts_.metadata; }
  const MetaValue* meta(std::string_view key) const;  // null where there is none
  bool has_meta(std::string_view key) const { return meta(key) != nullptr; }

  // The value of a key as a type: a missing key, another type and an integer that does not fit are errors whose
  // sentence names key and file. meta_float takes integers; the array forms take a single value as an array of one.
  Result<bool> meta_bool(std::string_view key) const;
  Result<int64_t> meta_int(std::string_view key) const;
  Result<double> meta_float(std::string_view key) const;
  Result<std::string> meta_string(std::string_view key) const;
  Result<std::vector<int64_t>> meta_ints(std::string_view key) const;
  Result<std::vector<double>> meta_floats(std::string_view key) const;
  Result<std::vector<std::string>> meta_strings(std::string_view key) const;
  // The same with a value for the missing key; another type is still an error.
  Result<bool> meta_bool(std::string_view key, bool missing) const;
  Result<int64_t> meta_int(std::string_view key, int64_t missing) const;
  Result<double> meta_float(std::string_view key, double missing) const;
  Result<std::string> meta_string(std::string_view key, std::string missing) const;

 private:
  Error no_such_key(std::string_view key) const;
  Error wrong_type(std::string_view key, std::string_view wanted, const MetaValue& found) const;

  Parts parts_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys point into parts_.tensors
};

}  // namespace ibid
