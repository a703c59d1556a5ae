// What EagleHead::load reads of a file: finds and checks all, by name and shape, before anything is prepared.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spec/eagle_head.h"
#include "spec/head_matrix.h"

namespace ibid {

class EagleHead::Loader {
 public:
  Loader(const ModelFile& file, const Model& target, const Stream& stream)
      : file_(file), target_(target), stream_(stream) {}

  // Reads no matrix.
  Status find();
  // Bytes of all weights, prepared.
  int64_t weight_bytes() const;
  // Lays the rows of a pass and the taps out from `memory` on (null: none is there yet); how many bytes they take.
  size_t lay(const EagleSizes& sizes, std::byte* memory, Rows& rows) const;
  size_t workspace_bytes(const EagleSizes& sizes) const;
  KvGeometry geometry() const;
  Status load(Stream& stream, EagleHead& out) const;

 private:
  struct Place;
  static std::vector<Place> places();

  Status name_tensors();
  Status read_config();
  Status read_mtp_config();
  Status find_taps();
  Status find_feature_norms();
  std::string folder_name(const TensorInfo& t) const;
  Status find_ids();
  Status check_members(const std::vector<int64_t>& ids) const;
  Status check_shapes();
  Status check_matrix(const HeadMatrix& m, std::string_view name, int64_t n_outputs, int64_t n_inputs) const;
  Status check_vector(const TensorInfo* v, std::string_view name, bool is_there, int64_t len) const;
  Status check_biases() const;
  Result<bool> flag(const std::string& key, bool otherwise) const;
  std::string where() const { return file_.path() + ": "; }
  int64_t target_width() const { return target_.config().width; }
  int64_t n_outputs() const { return ids_.empty() ? target_.config().vocab_size : static_cast<int64_t>(ids_.size()); }
  int64_t feature_len() const { return static_cast<int64_t>(tap_layers_.size()) * target_width(); }

  const ModelFile& file_;
  const Model& target_;
  const Stream& stream_;
  ModelConfig config_;
  bool is_third_ = false, is_mtp_ = false, hidden_first_ = false, residual_is_normed_ = false, state_is_normed_ = false;
  HeadMatrix fc_, q_, k_, v_, o_, gate_, up_, down_, output_, embedding_;
  const TensorInfo* embed_norm_ = nullptr;
  const TensorInfo* q_norm_ = nullptr;
  const TensorInfo* k_norm_ = nullptr;
  const TensorInfo* input_norm_ = nullptr;
  const TensorInfo* all_features_norm_ = nullptr;               // norm_before_fc's
  std::map<std::string, const TensorInfo*> each_feature_norm_;  // fc_norm's, by name
  std::vector<const TensorInfo*> feature_norms_;                // those that are used
  const TensorInfo* hidden_norm_ = nullptr;
  const TensorInfo* ffn_norm_ = nullptr;
  const TensorInfo* norm_ = nullptr;
  const TensorInfo* d2t_ = nullptr;
  const TensorInfo* t2d_ = nullptr;
  std::vector<int32_t> tap_layers_;  // as HiddenStates counts them
  std::vector<TokenId> ids_;
};

}  // namespace ibid
