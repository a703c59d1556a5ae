#include "host/picture_rule.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"

namespace ibid::host {
namespace {

Result<PatchRule> from_folder(const ModelFile& file, const TowerShape& shape) {
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    const std::filesystem::path path = std::filesystem::path(file.path()) / name;
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) continue;
    ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(path.string()));
    const auto bytes = mapped.bytes();
    return read_patch_rule({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string(), shape);
  }
  return invalid(file.path() +
                 " has a vision tower and no preprocessor_config.json, which states how pictures are cut; "
                 "fetch it, or start with --mmproj none");
}

Status read_three(const ModelFile& file, const std::string& key, std::array<float, 3>& out) {
  if (!file.has_meta(key)) return {};
  ASSIGN_OR_RETURN(const std::vector<double> values, file.meta_floats(key));
  if (values.size() != out.size()) return invalid(file.path() + ": " + key + " has not three numbers", key);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(values[i]);
  return {};
}

// What a GGUF file lacks is as the family's own processor has it.
Result<PatchRule> from_gguf(const ModelFile& file, const TowerConfig& tower, const TowerShape& shape) {
  if (tower.kind == TowerKind::kGemma4) {
    ASSIGN_OR_RETURN(const PatchRule rule,
                     read_patch_rule(R"({"image_processor_type": "Gemma4ImageProcessor"})", file.path(), shape));
    std::array<float, 3> mean = rule.mean, std = rule.std;
    TRY(read_three(file, "clip.vision.image_mean", mean));
    TRY(read_three(file, "clip.vision.image_std", std));
    if (mean != rule.mean || std != rule.std) {
      return unsupported(file.path() + " normalises pictures, which gemma 4's tower does not expect",
                         "clip.vision.image_mean");
    }
    return rule;
  }
  const bool is_qwen = tower.kind == TowerKind::kQwen;
  std::string json;
  JsonWriter w(json);
  w.begin_object().field("image_processor_type", is_qwen ? "Qwen2VLImageProcessor" : "Gemma3ImageProcessor");
  if (is_qwen) {
    w.field("patch_size", tower.patch_side)
        .field("temporal_patch_size", tower.n_frames)
        .field("merge_size", tower.merge);
    // Qwen3-VL's, whose mmproj files have no keys for it.
    ASSIGN_OR_RETURN(const int64_t least, file.meta_int("clip.vision.image_min_pixels", 65536));
    ASSIGN_OR_RETURN(const int64_t most, file.meta_int("clip.vision.image_max_pixels", 16777216));
    w.key("size").begin_object().field("shortest_edge", least).field("longest_edge", most).end_object();
  } else {
    const int64_t side = tower.grid_side * tower.patch_side;
    w.key("size").begin_object().field("height", side).field("width", side).end_object();
  }
  w.end_object();
  ASSIGN_OR_RETURN(PatchRule rule, read_patch_rule(json, file.path(), shape));
  rule.mean = rule.std = {0.5f, 0.5f, 0.5f};
  TRY(read_three(file, "clip.vision.image_mean", rule.mean));
  TRY(read_three(file, "clip.vision.image_std", rule.std));
  return rule;
}

}  // namespace

Result<PatchRule> picture_rule(const ModelFile& file, const TowerConfig& tower, int64_t max_patches) {
  const TowerShape shape = {.patch = static_cast<int32_t>(tower.patch_side),
                            .merge = static_cast<int32_t>(tower.merge)};
  ASSIGN_OR_RETURN(PatchRule rule,
                   file.container() == Container::kGguf ? from_gguf(file, tower, shape) : from_folder(file, shape));
  const bool is_gemma3 = tower.kind == TowerKind::kGemma3, is_gemma4 = tower.kind == TowerKind::kGemma4;
  const Sizing sizing = is_gemma3 ? Sizing::kFixed : is_gemma4 ? Sizing::kTokenBudget : Sizing::kPixelRange;
  const bool is_of_tower = rule.patch == tower.patch_side && rule.n_times == tower.n_frames && rule.sizing == sizing &&
                           (is_gemma3 || rule.merge == tower.merge);
  if (!is_of_tower) {
    return invalid(file.path() + " cuts pictures into patches of " + std::to_string(rule.patch) +
                   " pixels in another way than its vision tower reads them; its two configurations do not agree");
  }
  if (is_gemma4) {
    const int64_t most = std::min(max_patches / (int64_t{rule.merge} * rule.merge), kMostGemma4Cells);
    rule.max_tokens = static_cast<int32_t>(std::min<int64_t>(rule.max_tokens, most));
  }
  if (sizing == Sizing::kPixelRange) {
    rule.max_pixels = std::min<int64_t>(rule.max_pixels, max_patches * rule.patch * rule.patch);
    rule.min_pixels = std::min(rule.min_pixels, rule.max_pixels);
  }
  TRY(check_patch_rule(rule));
  return rule;
}

}  // namespace ibid::host
