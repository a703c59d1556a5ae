#include "model/testing/tower_as_gguf.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "model/vision/tower_config.h"
#include "model/weights.h"
#include "tensor/dequantise.h"

namespace ibid::testing {
namespace {

class Writer {
 public:
  Writer(const ModelFile& folder, TowerConfig config) : folder_(folder), c_(std::move(config)) {
    parts_.path = folder.path() + "'s tower as GGUF";
  }

  ModelFile write() && {
    put_config();
    for (const WeightName& name : tower_names(c_.kind, folder_)) {
      const bool is_of_layer = name.canonical.find("{}") != std::string_view::npos;
      const bool is_deep = name.canonical.starts_with("v.deepstack.");
      const int64_t n = !is_of_layer ? 1 : is_deep ? std::ssize(c_.deep_layers) : c_.n_layers;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t in_gguf = is_deep ? c_.deep_layers[static_cast<size_t>(i)] : i;
        put_tensor(layer_name(name.canonical, in_gguf), layer_name(name.folder, i));
      }
    }
    return ModelFile(std::move(parts_));
  }

 private:
  void put_config() {
    auto& m = parts_.metadata;
    const bool is_qwen = c_.kind == TowerKind::kQwen, is_gemma3 = c_.kind == TowerKind::kGemma3;
    const std::string v = "clip.vision.";
    m["general.architecture"] = std::string("clip");
    m["clip.has_vision_encoder"] = true;
    m["clip.projector_type"] = std::string(is_qwen ? "qwen3vl_merger" : is_gemma3 ? "gemma3" : "gemma4v");
    m[v + "block_count"] = c_.n_layers;
    m[v + "embedding_length"] = c_.width;
    m[v + "feed_forward_length"] = c_.ffn_len;
    m[v + "attention.head_count"] = c_.n_heads;
    m[v + "attention.layer_norm_epsilon"] = double{c_.norm_eps};
    m[v + "patch_size"] = c_.patch_side;
    m[v + "image_size"] = c_.kind == TowerKind::kGemma4 ? int64_t{224} : c_.grid_side * c_.patch_side;
    m[v + "projection_dim"] = c_.out_width;
    m[v + (is_qwen ? "spatial_merge_size" : "projector.scale_factor")] = c_.merge;
    if (is_qwen) {
      std::vector<int64_t> is_deep(static_cast<size_t>(c_.n_layers), 0);
      for (const int64_t l : c_.deep_layers) is_deep[static_cast<size_t>(l)] = 1;
      m[v + "is_deepstack_layers"] = is_deep;
    }
  }

  void put_tensor(const std::string& name, const std::string& in_folder) {
    const TensorInfo* info = nullptr;
    for (const std::string prefix : {"", "model."}) {
      if (info == nullptr) info = folder_.find(prefix + in_folder);
    }
    if (info == nullptr) return;  // an optional one
    const auto n = static_cast<size_t>(info->view.n_elements());
    std::vector<float> values(n);
    dequantise_row(info->view.dtype, info->view.data, values.data(), static_cast<int64_t>(n));
    const int64_t area = c_.patch_side * c_.patch_side;
    const std::vector<int64_t> patches = {c_.width, 3, c_.patch_side, c_.patch_side};
    if (name == "v.patch_embd.weight" && c_.kind == TowerKind::kGemma4) {
      std::vector<float> turned(n);
      for (size_t i = 0; i < n; ++i) {
        const auto at = static_cast<int64_t>(i), of_output = at % (3 * area);
        turned[static_cast<size_t>(at - of_output + of_output % 3 * area + of_output / 3)] = values[i];
      }
      return put(name, turned, patches);
    }
    if (name == "v.patch_embd.weight" && c_.n_frames > 1) {
      for (int64_t frame = 0; frame < c_.n_frames; ++frame) {
        std::vector<float> of_frame;
        for (size_t i = 0; i < n; ++i) {
          if (static_cast<int64_t>(i) / area % c_.n_frames == frame) of_frame.push_back(values[i]);
        }
        put(frame == 0 ? name : name + "." + std::to_string(frame), of_frame, patches);
      }
      return;
    }
    if (name == "mm.soft_emb_norm.weight") {
      for (float& x : values) x += 1;
    }
    put(name, values, {info->view.dim.begin(), info->view.dim.begin() + info->view.rank});
  }

  void put(const std::string& name, const std::vector<float>& values, const std::vector<int64_t>& dims) {
    auto copy = std::make_unique<std::byte[]>(values.size() * sizeof(float));
    std::memcpy(copy.get(), values.data(), values.size() * sizeof(float));
    TensorView view(copy.get(), DType::kF32, {std::ssize(values)});
    view.rank = static_cast<int>(dims.size());
    std::ranges::copy(dims, view.dim.begin());
    view.row_stride_bytes = row_bytes(view.dtype, view.row_len());
    parts_.tensors.push_back({name, view});
    parts_.copies.push_back(std::move(copy));
  }

  const ModelFile& folder_;
  TowerConfig c_;
  ModelFile::Parts parts_;
};

}  // namespace

Result<ModelFile> tower_as_gguf(const ModelFile& folder) {
  ASSIGN_OR_RETURN(TowerConfig config, read_tower(folder));
  return Writer(folder, std::move(config)).write();
}

}  // namespace ibid::testing
