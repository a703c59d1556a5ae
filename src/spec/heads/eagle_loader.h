// Loader of EagleHead: finds and checks all tensors, by name and shape, before anything is prepared.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spec/heads/eagle_head.h"
#include "spec/heads/head_matrix.h"

namespace ibid {

class EagleHead::Loader {
 public:
  Loader(const ModelFile& file, const Model& target, Stream& stream) : file_(file), target_(target), stream_(stream) {}

  // Finds and checks all tensors. Reads no matrix.
  Status find(const EagleSizes& sizes);
  // Bytes of all prepared weights.
  int64_t weight_bytes() const;
  // Lays out a pass's buffers and the taps.
  void lay_out(ScratchLayout& layout, const EagleSizes& sizes, Scratch& scratch, Rows& rows) const;
  size_t workspace_bytes(const EagleSizes& sizes) const;
  std::vector<KvLayout> kv_layouts(const EagleSizes& sizes) const;
  const EagleForm& form() const { return form_; }
  Weights load() const;
  // The layer of an MTP head, which ends as `ends`; null: of another kind.
  Result<std::unique_ptr<Model>> load_layer(const VocabularyWeights& ends, const EagleSizes& sizes,
                                            bool sized_only) const;

 private:
  Status name_tensors();
  Status read_config(const EagleSizes& sizes);
  Status read_mtp_config(const EagleSizes& sizes);
  Status find_taps();
  Status find_feature_norms();
  std::string name_of(const TensorInfo& t) const;
  Status find_ids();
  Status check_members(const std::vector<int64_t>& ids) const;
  Status check_shapes();
  Status check_layer() const;
  void use_vocabulary();
  // The file's matrix of this name; for a vector, the weight.
  const HeadMatrix& at(std::string_view name) const;
  bool has(std::string_view name) const { return at(name).weight != nullptr; }
  Status check_matrix(std::string_view name, int64_t n_outputs, int64_t n_inputs) const;
  Status check_vector(std::string_view name, bool is_there, int64_t len) const;
  Status check_biases() const;
  Result<bool> flag(const std::string& key, bool otherwise) const;
  KvGeometry geometry() const;
  std::string where() const { return file_.path() + ": "; }
  bool is_third() const { return form_.kind == EagleForm::Kind::kThird; }
  bool is_mtp() const { return form_.kind == EagleForm::Kind::kMtp; }
  int64_t target_width() const { return target_.config().width; }
  int64_t n_outputs() const {
    return form_.ids.empty() ? target_.config().vocab_size : static_cast<int64_t>(form_.ids.size());
  }
  int64_t feature_len() const { return static_cast<int64_t>(form_.tap_layers.size()) * target_width(); }

  const ModelFile& file_;
  const Model& target_;
  Stream& stream_;
  EagleForm form_;
  std::map<std::string, HeadMatrix, std::less<>> tensors_;
  std::vector<std::string> feature_norms_;  // names of the norms in use
  std::unique_ptr<Model> sized_layer_;      // of an MTP layer, without weights
};

}  // namespace ibid
