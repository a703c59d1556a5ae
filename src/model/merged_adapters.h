// MergedAdapters: adapters of low rank as terms of a GGUF file's own weights, W + s B A (Hu et al. 2021, section 4.1),
// so that the file that is written needs no adapter. Of each element the sum over the rank, ascending, is in double,
// times s, plus the weight, and is rounded to float once; the type of the file is applied to that. Several adapters add
// one after the other.
//
// An adapter names what it changes exactly as one that is served (model/adapter_file.h); one that would change a tensor
// that the file has not (the output of a tied embedding) is refused.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "format/row_terms.h"
#include "model/adapters.h"

namespace ibid {

struct AdapterToMerge {
  std::string path;  // a folder of PEFT, or a GGUF file
  double scale = 1;  // times its own factor
};

class MergedAdapters final : public RowTerms {
 public:
  // `base`: a GGUF file; its tensors' shapes are read, and no matrix. `s` runs nothing else meanwhile.
  static Result<MergedAdapters> read(std::span<const AdapterToMerge> adapters, std::shared_ptr<const ModelFile> base,
                                     Stream& s);

  bool has(std::string_view tensor) const override { return terms_.contains(tensor); }
  void add(std::string_view tensor, int64_t row, std::span<float> values) const override;
  size_t n_tensors() const { return terms_.size(); }

 private:
  struct Term {
    int64_t first_row = 0, n_rows = 0;  // of the tensor's rows; of experts those of all of them
    int64_t n_outputs = 0;              // of one matrix
    int64_t rank = 0;
    std::vector<float> a, b;  // [E, r, K], [E, N, r]
    double factor = 1;
  };
  std::map<std::string, std::vector<Term>, std::less<>> terms_;
};

}  // namespace ibid
