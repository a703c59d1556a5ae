#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/quoted.h"
#include "image/patches.h"

namespace ibid {
namespace {

constexpr std::array<float, 3> kClipMean = {0.48145466f, 0.4578275f, 0.40821073f};
constexpr std::array<float, 3> kClipStd = {0.26862954f, 0.26130258f, 0.27577711f};

enum class Processor { kGemma3, kQwen, kGemma4, kPixtral, kClip, kLlava };

std::optional<Processor> processor_from(std::string_view name) {
  for (const std::string_view end : {"Fast", "Pil"}) {
    if (name.ends_with(end)) name.remove_suffix(end.size());
  }
  constexpr std::pair<std::string_view, Processor> kKnown[] = {
      {"Gemma3ImageProcessor", Processor::kGemma3},   {"Qwen2VLImageProcessor", Processor::kQwen},
      {"Qwen2_5_VLImageProcessor", Processor::kQwen}, {"Qwen3VLImageProcessor", Processor::kQwen},
      {"Gemma4ImageProcessor", Processor::kGemma4},   {"PixtralImageProcessor", Processor::kPixtral},
      {"CLIPImageProcessor", Processor::kClip},       {"LlavaImageProcessor", Processor::kLlava}};
  for (const auto& [known, processor] : kKnown) {
    if (name == known) return processor;
  }
  return std::nullopt;
}

// The members of a processor's configuration, with sentences that name the file and the key.
class Settings {
 public:
  Settings(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  // Null for a key that is not there or is null.
  const Json* find(std::string_view key) const { return present(json_.find(key)); }

  Status read(std::string_view key, bool& out) const { return as_flag(key, find(key), out); }
  Status read(std::string_view key, int32_t& out) const { return as_number(key, find(key), out); }
  Status read(std::string_view key, int64_t& out) const { return as_number(key, find(key), out); }
  // A number within the object of this key, such as size.height.
  template <typename Int>
  Status read(std::string_view key, std::string_view member, Int& out) const {
    const Json* object = find(key);
    return object == nullptr
               ? Status()
               : as_number(std::string(key) + "." + std::string(member), present(object->find(member)), out);
  }
  // One number for all three channels, or three.
  Status read(std::string_view key, std::array<float, 3>& out) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (value->is_number()) {
      out.fill(static_cast<float>(value->number()));
      return {};
    }
    const Json::Array* numbers = value->array();
    if (numbers == nullptr || numbers->size() != 3) return wrong(key, *value, "three numbers");
    for (size_t c = 0; c < 3; ++c) {
      if (!(*numbers)[c].is_number()) return wrong(key, (*numbers)[c], "three numbers");
      out[c] = static_cast<float>((*numbers)[c].number());
    }
    return {};
  }

  Error unsupported_here(std::string what) const { return unsupported(where_ + ": " + std::move(what), where_); }

 private:
  static const Json* present(const Json* value) { return value == nullptr || value->is_null() ? nullptr : value; }

  Error wrong(std::string_view key, const Json& value, std::string_view expected) const {
    return invalid(
        where_ + ": " + std::string(key) + " is " + shown(value.text()) + "; expected " + std::string(expected),
        std::string(key));
  }
  Status as_flag(std::string_view key, const Json* value, bool& out) const {
    if (value == nullptr) return {};
    if (value->boolean() == nullptr) return wrong(key, *value, "true or false");
    out = *value->boolean();
    return {};
  }
  template <typename Int>
  Status as_number(std::string_view key, const Json* value, Int& out) const {
    if (value == nullptr) return {};
    const int64_t* number = value->integer();
    if (number == nullptr || *number < 1 || *number > int64_t{1} << 30) {
      return wrong(key, *value, "an integer above zero");
    }
    out = static_cast<Int>(*number);
    return {};
  }

  const Json& json_;
  std::string where_;
};

PatchRule default_rule(Processor processor) {
  PatchRule rule;
  switch (processor) {
    case Processor::kGemma3:
      rule.filter = Filter::kBilinear;
      rule.width = rule.height = 224;
      break;
    case Processor::kQwen:
      rule.sizing = Sizing::kPixelRange;
      rule.layout = PatchLayout::kMergedCells;
      rule.patch = 14;
      rule.merge = 2;
      rule.n_times = 2;
      rule.min_pixels = 56 * 56;
      rule.max_pixels = 28 * 28 * 1280;
      break;
    case Processor::kGemma4:
      rule.sizing = Sizing::kTokenBudget;
      rule.layout = PatchLayout::kChannelsLast;
      rule.merge = 3;
      rule.max_tokens = 280;
      rule.normalise = false;
      rule.mean = {0, 0, 0};
      rule.std = {1, 1, 1};
      break;
    case Processor::kPixtral:
      rule.sizing = Sizing::kLongestSide;
      rule.longest_side = 1024;
      break;
    case Processor::kClip:
    case Processor::kLlava:
      rule.sizing = Sizing::kShortestSide;
      rule.shortest_side = rule.width = rule.height = 224;
      rule.patch = 14;
      break;
  }
  if (processor != Processor::kGemma3 && processor != Processor::kGemma4) {
    rule.mean = kClipMean;
    rule.std = kClipStd;
  }
  return rule;
}

Status read_filter(const Settings& settings, PatchRule& rule) {
  const Json* value = settings.find("resample");
  if (value == nullptr) return {};
  if (value->integer() != nullptr && *value->integer() == 2) {
    rule.filter = Filter::kBilinear;
  } else if (value->integer() != nullptr && *value->integer() == 3) {
    rule.filter = Filter::kBicubic;
  } else {
    return settings.unsupported_here("resample is " + shown(value->text()) +
                                     "; 2 (bilinear) and 3 (bicubic) are supported");
  }
  return {};
}

// Steps that are there for all pictures or for none.
Status check_steps(const Settings& settings) {
  for (const char* step : {"do_resize", "do_rescale"}) {
    bool on = true;
    TRY(settings.read(step, on));
    if (!on) return settings.unsupported_here(std::string(step) + " is false, which is not supported");
  }
  bool pan = false;
  TRY(settings.read("do_pan_and_scan", pan));
  if (pan) return settings.unsupported_here("do_pan_and_scan is true, which is not supported");
  const Json* factor = settings.find("rescale_factor");
  if (factor != nullptr && (!factor->is_number() || std::fabs(factor->number() * 255 - 1) > 1e-6)) {
    return settings.unsupported_here("rescale_factor is " + shown(factor->text()) + "; 1/255 is supported");
  }
  return {};
}

// patch_size as a number, or as {height, width} of the same.
Status read_patch(const Settings& settings, int32_t& patch) {
  const Json* value = settings.find("patch_size");
  if (value == nullptr || value->object() == nullptr) return settings.read("patch_size", patch);
  int32_t width = 0;
  TRY(settings.read("patch_size", "height", patch));
  TRY(settings.read("patch_size", "width", width));
  if (width != patch) return settings.unsupported_here("patch_size is not square, which is not supported");
  return {};
}

// crop_size and size of CLIP: a number, or an object.
Status read_cut(const Settings& settings, bool pads, PatchRule& rule) {
  bool cuts = true, pad = false;
  TRY(settings.read("do_center_crop", cuts));
  if (pads) TRY(settings.read("do_pad", pad));
  if (!cuts || pad) {
    return settings.unsupported_here(std::string(pad ? "do_pad is true" : "do_center_crop is false") +
                                     ", which is not supported");
  }
  if (const Json* size = settings.find("size"); size != nullptr && size->object() == nullptr) {
    TRY(settings.read("size", rule.shortest_side));
  } else if (size != nullptr && size->find("shortest_edge") == nullptr) {
    return settings.unsupported_here("size has no shortest_edge, without which it is not supported");
  }
  TRY(settings.read("size", "shortest_edge", rule.shortest_side));
  if (const Json* cut = settings.find("crop_size"); cut != nullptr && cut->object() == nullptr) {
    TRY(settings.read("crop_size", rule.width));
    rule.height = rule.width;
  }
  TRY(settings.read("crop_size", "width", rule.width));
  return settings.read("crop_size", "height", rule.height);
}

Status read_sizes(const Settings& settings, Processor processor, PatchRule& rule) {
  switch (processor) {
    case Processor::kGemma3:
      if (const Json* size = settings.find("size"); size != nullptr && size->object() == nullptr) {
        TRY(settings.read("size", rule.width));
        rule.height = rule.width;
      }
      TRY(settings.read("size", "width", rule.width));
      return settings.read("size", "height", rule.height);
    case Processor::kQwen:
      TRY(settings.read("size", "shortest_edge", rule.min_pixels));
      TRY(settings.read("size", "longest_edge", rule.max_pixels));
      // The older keys count before `size`.
      TRY(settings.read("min_pixels", rule.min_pixels));
      TRY(settings.read("max_pixels", rule.max_pixels));
      TRY(settings.read("merge_size", rule.merge));
      return settings.read("temporal_patch_size", rule.n_times);
    case Processor::kGemma4:
      TRY(settings.read("pooling_kernel_size", rule.merge));
      return settings.read("max_soft_tokens", rule.max_tokens);
    case Processor::kPixtral:
      return settings.read("size", "longest_edge", rule.longest_side);
    case Processor::kClip:
    case Processor::kLlava:
      return read_cut(settings, processor == Processor::kLlava, rule);
  }
  return {};
}

}  // namespace

Result<PatchRule> read_patch_rule(std::string_view text, std::string_view where, const TowerShape& tower) {
  ASSIGN_OR_RETURN(const Json whole, parse_json(text, where));
  const Json* inner = whole.find("image_processor");
  const bool nested = inner != nullptr && inner->object() != nullptr;
  const Settings settings(nested ? *inner : whole, std::string(where));
  const Json* type = settings.find("image_processor_type");
  if (type == nullptr || type->string() == nullptr) {
    return invalid(std::string(where) + ": has no image_processor_type", "image_processor_type");
  }
  const std::optional<Processor> processor = processor_from(*type->string());
  if (!processor) {
    return unsupported(std::string(where) + ": image_processor_type is " + in_quotes(*type->string()) +
                           "; those of gemma 3 and 4, Qwen2-VL to Qwen3.5, Pixtral, CLIP and Llava are supported",
                       "image_processor_type");
  }
  PatchRule rule = default_rule(*processor);
  TRY(check_steps(settings));
  TRY(read_filter(settings, rule));
  TRY(read_patch(settings, rule.patch));
  TRY(read_sizes(settings, *processor, rule));
  TRY(settings.read("do_normalize", rule.normalise));
  TRY(settings.read("image_mean", rule.mean));
  TRY(settings.read("image_std", rule.std));
  if (*processor == Processor::kPixtral && nested) {  // which the processor around it multiplies into the patches
    const Settings outer(whole, std::string(where));
    TRY(outer.read("patch_size", rule.patch));
    TRY(outer.read("spatial_merge_size", rule.merge));
  }
  // The tower's own shape is the one that its weights have.
  if (tower.patch > 0) rule.patch = tower.patch;
  if (tower.merge > 0) rule.merge = tower.merge;
  TRY(check_patch_rule(rule));
  return rule;
}

}  // namespace ibid
