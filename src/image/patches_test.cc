#include "image/patches.h"

#include <set>

#include "base/json.h"
#include "image/golden_pictures.h"

namespace ibid {
namespace {

// What the models' configurations say of the towers of tests/golden/pictures/rules.
TowerShape tower_of(const std::string& name) {
  if (name == "gemma3") return {14, 4};
  if (name.starts_with("llava")) return {14, 1};
  return {};
}

PatchRule rule_of(const std::string& name) {
  const std::string path = golden_pictures("rules/" + name + ".json");
  Result<PatchRule> rule = read_patch_rule(file_bytes(path), path, tower_of(name));
  EXPECT_TRUE(rule.ok()) << rule.error().message;
  return rule.value();
}

TEST(Patches, HaveTheValuesOfTransformers) {
  const auto lines = golden_lines("patches.txt");
  std::set<std::string> rules;
  for (const std::vector<std::string>& line : lines) {
    const std::string name = line[0] + " " + line[1] + " x " + line[2];
    rules.insert(line[0]);
    const PatchRule rule = rule_of(line[0]);
    const PictureSize size = {std::stoi(line[1]), std::stoi(line[2])};
    const Result<Patches> patches = make_patches(rule, formula(size));
    ASSERT_TRUE(patches.ok()) << name << ": " << patches.error().message;
    EXPECT_EQ(patches->grid.grid_h, std::stoi(line[3])) << name;
    EXPECT_EQ(patches->grid.grid_w, std::stoi(line[4])) << name;
    EXPECT_EQ(patches->grid.n_tokens, std::stoi(line[5])) << name;
    EXPECT_EQ(patches->patch_values, 3 * rule.n_times * rule.patch * rule.patch) << name;
    ASSERT_EQ(patches->values.size(), static_cast<size_t>(patches->grid.n_patches() * patches->patch_values)) << name;
    EXPECT_EQ(hex_of(patches->values.data(), patches->values.size() * sizeof(float)), line[6]) << name;
  }
  EXPECT_EQ(rules.size(), 10u);
}

TEST(Patches, SizesAreThoseOfTransformers) {
  const auto lines = golden_lines("grids.txt");
  ASSERT_GE(lines.size(), 400u);
  for (const std::vector<std::string>& line : lines) {
    const Result<PatchGrid> grid = patch_grid(rule_of(line[0]), {std::stoi(line[1]), std::stoi(line[2])});
    ASSERT_TRUE(grid.ok()) << grid.error().message;
    EXPECT_EQ(grid->grid_h, std::stoi(line[3])) << line[0] << " " << line[1] << " x " << line[2];
    EXPECT_EQ(grid->grid_w, std::stoi(line[4])) << line[0] << " " << line[1] << " x " << line[2];
  }
}

TEST(Patches, OfLongPicturesAreRefused) {
  for (const char* name : {"gemma3", "qwen3_vl", "gemma4", "mistral3", "llava"}) {
    const PatchRule rule = rule_of(name);
    EXPECT_TRUE(patch_grid(rule, {200, 1}).ok()) << name;
    EXPECT_FALSE(patch_grid(rule, {201, 1}).ok()) << name;
    EXPECT_FALSE(patch_grid(rule, {1, 65'535}).ok()) << name;
  }
}

TEST(PatchRule, TheTowersShapeCountsBeforeTheFiles) {
  const std::string text = R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2})";
  EXPECT_EQ(read_patch_rule(text, "x")->patch, 14);
  EXPECT_EQ(read_patch_rule(text, "x", {16, 3})->patch, 16);
  EXPECT_EQ(read_patch_rule(text, "x", {16, 3})->merge, 3);
}

TEST(PatchRule, WhatIsNotSupportedIsRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "has no image_processor_type"},
      {"[]", "has no image_processor_type"},
      {R"({"image_processor_type": 3})", "has no image_processor_type"},
      {R"({"image_processor_type": "Idefics3ImageProcessor"})", "\"Idefics3ImageProcessor\""},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "do_resize": false})", "do_resize is false"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "do_rescale": false})", "do_rescale is false"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "do_pan_and_scan": true})", "do_pan_and_scan is true"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "resample": 1})", "resample is 1"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "resample": "bicubic"})", "resample is"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "rescale_factor": 1})", "rescale_factor is 1"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "image_mean": [0.5, 0.5]})", "image_mean is"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "image_std": 0})", "deviation"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 7, "width": 7}})", "no whole cells"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": -7, "width": 7}})", "size.height is -7"},
      {R"({"image_processor_type": "Gemma3ImageProcessor", "size": 100000})", "a width of 100000"},
      {R"({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 9000, "max_pixels": 8000})",
       "from 9000 to 8000"},
      {R"({"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 1000000000})", "1000000000 pixels"},
      {R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 0})", "patch_size is 0"},
      {R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 1000})", "patches of 1000"},
      {R"({"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 100000})", "100000 tokens"},
      {R"({"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 16384, "patch_size": 128})",
       "16384 tokens"},
      {R"({"image_processor_type": "Gemma4ImageProcessor", "patch_size": 128, "pooling_kernel_size": 64})",
       "cells of 8192"},
      {R"({"image_processor_type": "CLIPImageProcessor", "size": 4000})", "shortest side of 4000"},
      {R"({"image_processor_type": "PixtralImageProcessor", "patch_size": {"height": 16, "width": 14}})", "not square"},
      {R"({"image_processor_type": "CLIPImageProcessor", "do_center_crop": false})", "do_center_crop is false"},
      {R"({"image_processor_type": "LlavaImageProcessor", "do_pad": true})", "do_pad is true"},
      {R"({"image_processor_type": "CLIPImageProcessor", "size": {"height": 9}})", "no shortest_edge"},
      {R"({"image_processor_type": "CLIPImageProcessor", "crop_size": 400})", "larger than the picture"}};
  for (const auto& [text, sentence] : cases) {
    const Result<PatchRule> rule = read_patch_rule(text, "preprocessor_config.json");
    ASSERT_FALSE(rule.ok()) << text;
    EXPECT_NE(rule.error().message.find(sentence), std::string::npos) << text << ": " << rule.error().message;
  }
}

// Each number of a rule changes the digest, as does each pixel and the shape of the same pixels.
TEST(PictureDigests, CoverThePictureAndAllOfTheRule) {
  const PatchRule rule = rule_of("qwen3_vl");
  const Picture picture = formula({12, 8});
  std::set<PictureDigest> digests = {picture_digest(picture, rule)};
  size_t n = 1;
  const auto differs = [&](const Picture& p, const PatchRule& r) {
    EXPECT_TRUE(digests.insert(picture_digest(p, r)).second) << n;
    ++n;
  };
  Picture turned = picture;
  turned.size = {8, 12};
  differs(turned, rule);
  Picture other = picture;
  other.rgb.back() ^= 1;
  differs(other, rule);
  const auto with = [&](auto change) {
    PatchRule changed = rule;
    change(changed);
    EXPECT_NE(changed, rule);
    differs(picture, changed);
  };
  with([](PatchRule& r) { r.sizing = Sizing::kFixed; });
  with([](PatchRule& r) { r.filter = Filter::kBilinear; });
  with([](PatchRule& r) { r.layout = PatchLayout::kChannelsLast; });
  with([](PatchRule& r) { ++r.patch; });
  with([](PatchRule& r) { ++r.merge; });
  with([](PatchRule& r) { ++r.n_times; });
  with([](PatchRule& r) { ++r.width; });
  with([](PatchRule& r) { ++r.height; });
  with([](PatchRule& r) { ++r.min_pixels; });
  with([](PatchRule& r) { ++r.max_pixels; });
  with([](PatchRule& r) { ++r.max_tokens; });
  with([](PatchRule& r) { ++r.longest_side; });
  with([](PatchRule& r) { ++r.shortest_side; });
  with([](PatchRule& r) { r.normalise = false; });
  with([](PatchRule& r) { r.mean[1] = 0.25f; });
  with([](PatchRule& r) { r.std[2] = 0.25f; });
  EXPECT_EQ(picture_digest(picture, rule), picture_digest(formula({12, 8}), rule_of("qwen3_vl")));
}

}  // namespace
}  // namespace ibid
