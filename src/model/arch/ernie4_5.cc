// ernie-4.5, dense and with experts: pairs of neighbours turn in either container, and the choice of experts has a
// bias.
#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid::arch {
namespace {
constexpr Router kRouter = {.normalises = true, .sum_floor = 1e-12f};

Result<ModelConfig> from_folder(const ModelFile& file, const FolderDefaults& defaults) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_folder(file, Shape::kLlama, "", defaults));
  TRY(must_be(file, "hidden_act", "silu"));
  TRY(flag_must_be(file, "use_bias", false));
  ASSIGN_OR_RETURN(RopeConfig rope, rope_from_folder(file, config, "", "rope_parameters", 500000.0));
  rope.interleaved = true;
  config.ropes.push_back(std::move(rope));
  return config;
}
}  // namespace

Result<ModelConfig> ernie4_5_from_gguf(const ModelFile& file) {
  return common_from_gguf(file, Shape::kLlama, /*interleaved=*/true);
}

Result<ModelConfig> ernie4_5_from_folder(const ModelFile& file) {
  return from_folder(file, {.head_len = 128, .tied_embedding = true});
}

Result<ModelConfig> ernie4_5_moe_from_gguf(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, common_from_gguf(file, Shape::kLlama, /*interleaved=*/true, Experts::kRead));
  TRY(experts_from_gguf(file, kRouter, config));
  return config;
}

Result<ModelConfig> ernie4_5_moe_from_folder(const ModelFile& file) {
  ASSIGN_OR_RETURN(ModelConfig config, from_folder(file, {.tied_embedding = true, .experts = Experts::kRead}));
  Router router = kRouter;
  ASSIGN_OR_RETURN(const double floor, file.meta_float("moe_norm_min", double{router.sum_floor}));
  router.sum_floor = static_cast<float>(floor);
  TRY(experts_from_folder(
      file, "", {.router = router, .reads_norm = false, .has_bias = true, .shared_count = "moe_num_shared_experts"},
      config));
  return config;
}

}  // namespace ibid::arch
