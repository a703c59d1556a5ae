#include "format/quant_recipe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/quoted.h"

namespace ibid {
namespace {

constexpr JsonLimits kRecipeLimits = {.max_bytes = 4 << 20, .max_depth = 32, .max_values = 250'000};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> known) {
  return std::ranges::find(known, text) != known.end();
}

// An object with members, or a list with some.
bool has_content(const Json* json) {
  if (json == nullptr) return false;
  if (const Json::Object* object = json->object()) return !object->empty();
  return json->array() != nullptr && !json->array()->empty();
}

// Reads members of one recipe; errors name the folder.
class Reader {
 public:
  Reader(const Json& json, const std::string& folder) : json_(json), folder_(folder) {}

  Result<QuantRecipe> read() {
    ASSIGN_OR_RETURN(method_, text(json_, "quant_method", ""));
    method_ = lower(method_);
    QuantRecipe recipe;
    recipe.kv_type = kv_type();
    if (method_.empty()) return bad("has no quant_method");
    if (method_ == "auto-round") {
      ASSIGN_OR_RETURN(std::string packing, text(json_, "packing_format", ""));
      if (packing.find("gptq") != packing.npos) {
        method_ = "gptq";
      } else if (packing.find("awq") != packing.npos) {
        method_ = "awq";
      } else {
        return refuse("packing_format", packing);
      }
    }
    if (method_ == "gptq") {
      recipe.method = QuantMethod::kGptq;
      TRY(gptq(recipe));
    } else if (method_ == "awq") {
      recipe.method = QuantMethod::kAwq;
      TRY(awq(recipe));
    } else if (method_ == "compressed-tensors") {
      recipe.method = QuantMethod::kCompressed;
      TRY(compressed(recipe));
    } else if (is_one_of(method_, {"fp8", "fbgemm_fp8", "mxfp8"})) {
      recipe.method = QuantMethod::kFp8;
      ASSIGN_OR_RETURN(const std::string experts, text(json_, "expert_dtype", "fp8"));
      if (experts != "fp8") return refuse("expert_dtype", experts);
      TRY(block(json_, "weight_block_size", recipe));
    } else if (method_ == "modelopt" || method_ == "modelopt_fp4") {
      recipe.method = QuantMethod::kModelOpt;
      TRY(modelopt());
    } else if (method_ == "bitsandbytes") {
      recipe.method = QuantMethod::kBitsAndBytes;
    } else if (method_ == "mxfp4") {
      recipe.method = QuantMethod::kMxfp4;
    } else if (method_ == "mlx") {
      recipe.method = QuantMethod::kMlx;
      ASSIGN_OR_RETURN(const std::string mode, text(json_, "mode", "affine"));
      if (mode != "affine") return refuse("mode", mode);
      TRY(bits(json_, {2, 3, 4, 5, 6, 8}, recipe));
      TRY(group_len(json_, recipe));
      for (const auto& [name, own] : *json_.object()) {  // of single matrices
        TRY(bits(own, {2, 3, 4, 5, 6, 8}, recipe));
        TRY(group_len(own, recipe));
      }
    } else {
      return unsupported("the folder's weights are quantised by " + in_quotes(method_) +
                             "; ibid reads gptq, awq, compressed-tensors, fp8, fbgemm_fp8, mxfp8, modelopt, "
                             "bitsandbytes, MLX's affine ones and gpt-oss's mxfp4",
                         "quantization_config");
    }
    return recipe;
  }

 private:
  Error bad(const std::string& what) const {
    return invalid(folder_ + ": its quantization_config " + what, "quantization_config");
  }
  Error refuse(std::string_view key, const std::string& value) const {
    return unsupported("the folder's weights are quantised by " + method_ + " with " + std::string(key) + " " +
                           in_quotes(value) + ", which ibid does not read",
                       "quantization_config");
  }
  Result<std::string> text(const Json& from, std::string_view key, std::string_view missing) const {
    const Json* value = from.find(key);
    if (value == nullptr || value->is_null()) return std::string(missing);
    if (value->string() == nullptr) return bad("has " + std::string(value->kind()) + " as " + std::string(key));
    return *value->string();
  }
  Result<std::optional<bool>> flag(std::string_view key) const {
    const Json* value = json_.find(key);
    if (value == nullptr || value->is_null()) return std::optional<bool>();
    if (value->boolean() == nullptr) return bad("has " + std::string(value->kind()) + " as " + std::string(key));
    return std::optional<bool>(*value->boolean());
  }
  // Of the first key that is there; 0: none is.
  Result<int64_t> number(const Json& from, std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys) {
      const Json* value = from.find(key);
      if (value == nullptr || value->is_null()) continue;
      if (value->integer() == nullptr) return bad("has " + std::string(value->kind()) + " as " + std::string(key));
      if (*value->integer() == 0) return bad("has a " + std::string(key) + " of 0");
      return *value->integer();
    }
    return int64_t{0};
  }

  Status group_len(const Json& from, QuantRecipe& recipe) const {
    ASSIGN_OR_RETURN(const int64_t len, number(from, {"group_size", "q_group_size"}));
    if (len < -1) return bad("has a group_size of " + std::to_string(len));
    if (len > 0) recipe.group_lens.push_back(len);
    return {};
  }
  Status bits(const Json& from, std::initializer_list<int64_t> known, QuantRecipe& recipe) const {
    ASSIGN_OR_RETURN(const int64_t n, number(from, {"bits", "w_bit", "num_bits"}));
    if (n == 0) return {};
    if (std::ranges::find(known, n) == known.end()) return refuse("bits", std::to_string(n));
    recipe.bits.push_back(static_cast<int>(n));
    return {};
  }

  Status gptq(QuantRecipe& recipe) const {
    TRY(bits(json_, {2, 3, 4, 8}, recipe));
    TRY(group_len(json_, recipe));
    ASSIGN_OR_RETURN(const std::optional<bool> symmetric, flag("sym"));
    recipe.symmetric = symmetric.value_or(false);
    ASSIGN_OR_RETURN(const std::string format, text(json_, "checkpoint_format", "gptq"));
    if (!is_one_of(format, {"gptq", "gptq_v2"})) return refuse("checkpoint_format", format);
    recipe.zeros_are_less_1 = format == "gptq";
    ASSIGN_OR_RETURN(const std::optional<bool> marlin, flag("is_marlin_format"));
    if (marlin.value_or(false)) return refuse("checkpoint_format", "marlin");
    ASSIGN_OR_RETURN(const std::string words, text(json_, "pack_dtype", "int32"));
    if (words != "int32") return refuse("pack_dtype", words);
    // Rules for single matrices: which are theirs is seen by shapes, but for the zeros.
    const Json* rules = json_.find("dynamic");
    for (const auto& [pattern, rule] :
         rules != nullptr && rules->object() != nullptr ? *rules->object() : no_members()) {
      TRY(bits(rule, {2, 3, 4, 8}, recipe));
      TRY(group_len(rule, recipe));
      const Json* own = rule.find("sym");
      if (own == nullptr || own->is_null()) continue;
      if (own->boolean() == nullptr || *own->boolean() != recipe.symmetric) return refuse("dynamic rule", pattern);
    }
    return {};
  }

  Status awq(QuantRecipe& recipe) const {
    TRY(bits(json_, {4}, recipe));
    TRY(group_len(json_, recipe));
    ASSIGN_OR_RETURN(const std::string version, text(json_, "version", "gemm"));
    if (lower(version) != "gemm") return refuse("version", version);
    ASSIGN_OR_RETURN(const std::optional<bool> has_zeros, flag("zero_point"));
    recipe.symmetric = !has_zeros.value_or(true);
    return {};
  }

  // compressed-tensors and its groups, of which each may have a format.
  Status compressed(QuantRecipe& recipe) const {
    if (has_content(json_.find("transform_config"))) {
      return unsupported("the folder's weights are rotated (transform_config), which ibid does not run",
                         "quantization_config.transform_config");
    }
    if (const Json* sparse = json_.find("sparsity_config"); has_content(sparse)) {
      ASSIGN_OR_RETURN(const std::string format, text(*sparse, "format", "dense"));
      if (format != "dense") return refuse("sparsity_config", format);
    }
    TRY(known_format(json_));
    const Json* groups = json_.find("config_groups");
    for (const auto& [name, group] :
         groups != nullptr && groups->object() != nullptr ? *groups->object() : no_members()) {
      TRY(known_format(group));
      const Json* weights = group.find("weights");
      if (weights == nullptr) continue;
      TRY(block(*weights, "block_structure", recipe));
      TRY(group_len(*weights, recipe));
      TRY(bits(*weights, {2, 3, 4, 5, 6, 7, 8}, recipe));
    }
    return {};
  }
  Status known_format(const Json& from) const {
    ASSIGN_OR_RETURN(const std::string format, text(from, "format", "dense"));
    if (is_one_of(format, {"dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                           "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision"})) {
      return {};
    }
    return refuse("format", format);
  }

  // ModelOpt's kv_cache_quant_algo, or compressed-tensors' kv_cache_scheme, which other writers spell in one word. Who
  // does not ask for it is not refused a folder for it: what is not understood is a type that nothing knows.
  std::string kv_type() const {
    for (const std::string_view key : {"kv_cache_quant_algo", "kv_cache_scheme"}) {
      const Json* scheme = json_.find(key);
      if (scheme == nullptr || scheme->is_null()) continue;
      if (scheme->string() != nullptr) return upper(scheme->string()->substr(0, 100));
      const Json *type = scheme->find("type"), *bits = scheme->find("num_bits");
      if (type == nullptr || type->string() == nullptr || bits == nullptr || bits->integer() == nullptr)
        return upper(scheme->text().substr(0, 100));
      return (*type->string() == "float" ? "FP" : upper(*type->string())) + std::to_string(*bits->integer());
    }
    return {};
  }

  // [rows, columns], or "128x128".
  Status block(const Json& from, std::string_view key, QuantRecipe& recipe) const {
    const Json* sizes = from.find(key);
    if (sizes == nullptr || sizes->is_null()) return {};
    if (sizes->string() != nullptr && *sizes->string() == "128x128") return {};
    const Json::Array* both = sizes->array();
    if (both == nullptr || both->size() != 2 || (*both)[0].integer() == nullptr || (*both)[1].integer() == nullptr ||
        *(*both)[0].integer() < 1 || *(*both)[1].integer() < 1) {
      return bad("has no two sizes from 1 on as " + std::string(key));
    }
    recipe.block_rows = *(*both)[0].integer();
    recipe.block_columns = *(*both)[1].integer();
    return {};
  }

  Status modelopt() const {
    ASSIGN_OR_RETURN(std::string algorithm, text(json_, "quant_algo", ""));
    if (is_one_of(algorithm, {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_BLOCK_SCALES", "MXFP8", "NVFP4",
                              "W4A16_NVFP4", "MIXED_PRECISION"})) {
      return {};
    }
    return refuse("quant_algo", algorithm);
  }

  static const Json::Object& no_members() {
    static const Json::Object none;
    return none;
  }

  const Json& json_;
  const std::string& folder_;
  std::string method_;
};

// `recipe` as an object that has a quant_method.
std::string with_method(const Json& recipe, std::string_view method) {
  Json::Object members = {{"quant_method", Json(std::string(method))}};
  for (const Json::Member& member : *recipe.object()) {
    if (member.first != "quant_method") members.push_back(member);
  }
  return Json(std::move(members)).text();
}

}  // namespace

Result<std::string> recipe_json(const RecipeTexts& texts, const std::string& folder) {
  ASSIGN_OR_RETURN(const Json config, parse_json(texts.config, folder + "/config.json", kRecipeLimits));
  const Json* recipe = config.find("quantization_config");
  const auto is_absent = [&recipe] {
    return recipe == nullptr || recipe->is_null() || (recipe->object() != nullptr && recipe->object()->empty());
  };
  if (is_absent()) recipe = config.find("compression_config");  // compressed-tensors before 0.5
  const Json* inner = config.find("text_config");
  if (is_absent() && inner != nullptr) recipe = inner->find("quantization_config");
  const bool is_object = recipe != nullptr && recipe->object() != nullptr;
  const Json* method = is_object ? recipe->find("quant_method") : nullptr;
  if (recipe != nullptr && !recipe->is_null() && !is_object) {
    return invalid(folder + ": quantization_config is " + recipe->kind() + ", not an object", "quantization_config");
  }
  const bool is_complete =
      method != nullptr && (method->string() == nullptr || !lower(*method->string()).starts_with("modelopt") ||
                            recipe->find("quant_algo") != nullptr);
  if (is_complete) return recipe->text();
  if (!texts.hf_quant_config.empty()) {
    ASSIGN_OR_RETURN(const Json file,
                     parse_json(texts.hf_quant_config, folder + "/hf_quant_config.json", kRecipeLimits));
    const Json* own = file.find("quantization");
    if (own != nullptr && own->object() != nullptr) return with_method(*own, "modelopt");
  }
  const Json* mlx = config.find("quantization");
  if (method == nullptr && mlx != nullptr && mlx->object() != nullptr) return with_method(*mlx, "mlx");
  if (is_object && !recipe->object()->empty()) return recipe->text();
  for (const auto& [text, name, otherwise] : {std::tuple(texts.quantize_config, "/quantize_config.json", "gptq"),
                                              std::tuple(texts.quant_config, "/quant_config.json", "awq")}) {
    if (text.empty()) continue;
    ASSIGN_OR_RETURN(const Json file, parse_json(text, folder + name, kRecipeLimits));
    if (file.object() == nullptr) return invalid(folder + name + " is " + file.kind() + ", not an object", folder);
    const Json* own = file.find("quant_method");
    return with_method(file, own != nullptr && own->string() != nullptr ? *own->string() : otherwise);
  }
  return std::string();
}

Result<QuantRecipe> read_quant_recipe(const ModelFile& file) {
  if (file.quant_recipe_json().empty()) return QuantRecipe();
  ASSIGN_OR_RETURN(const Json json,
                   parse_json(file.quant_recipe_json(), file.path() + ": quantization_config", kRecipeLimits));
  return Reader(json, file.path()).read();
}

}  // namespace ibid
