#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "format/quant_recipe.h"
#include "format/safetensors.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

// Configurations of real models stay far below; together the limits bound the memory of the flat map.
constexpr JsonLimits kConfigLimits = {.max_bytes = 4 << 20, .max_depth = 32, .max_values = 50'000};
constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxTextBytes = 64 << 20;  // of tokenizer.json and its like

// Scalars and arrays of scalars under dotted names; nulls and empty objects vanish, other arrays get indices.
// False where a name would be too long.
bool flatten(const Json& json, const std::string& name, std::map<std::string, MetaValue, std::less<>>& out) {
  if (name.size() > kMaxNameBytes) return false;
  auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
  if (const Json::Object* object = json.object()) {
    for (const Json::Member& member : *object) {
      if (!flatten(member.second, below(member.first), out)) return false;
    }
  } else if (const Json::Array* array = json.array()) {
    auto all = [&](auto predicate) { return std::all_of(array->begin(), array->end(), predicate); };
    auto is_int = [](const Json& v) { return v.integer() != nullptr; };
    auto is_number = [&](const Json& v) { return is_int(v) || v.real() != nullptr; };
    if (all(is_int)) {
      std::vector<int64_t> values;
      for (const Json& v : *array) values.push_back(*v.integer());
      out.insert_or_assign(name, std::move(values));
    } else if (all([](const Json& v) { return v.boolean() != nullptr; })) {
      std::vector<int64_t> values;
      for (const Json& v : *array) values.push_back(*v.boolean() ? 1 : 0);
      out.insert_or_assign(name, std::move(values));
    } else if (all(is_number)) {
      std::vector<double> values;
      for (const Json& v : *array) {
        values.push_back(is_int(v) ? static_cast<double>(*v.integer()) : *v.real());
      }
      out.insert_or_assign(name, std::move(values));
    } else if (all([](const Json& v) { return v.string() != nullptr; })) {
      std::vector<std::string> values;
      for (const Json& v : *array) values.push_back(*v.string());
      out.insert_or_assign(name, std::move(values));
    } else {
      for (size_t i = 0; i < array->size(); ++i) {
        if (!flatten((*array)[i], below(std::to_string(i)), out)) return false;
      }
    }
  } else if (const bool* b = json.boolean()) {
    out.insert_or_assign(name, *b);
  } else if (const int64_t* i = json.integer()) {
    out.insert_or_assign(name, *i);
  } else if (const uint64_t* u = json.large_integer()) {
    out.insert_or_assign(name, *u);
  } else if (const double* d = json.real()) {
    out.insert_or_assign(name, *d);
  } else if (const std::string* s = json.string()) {
    out.insert_or_assign(name, *s);
  }
  return true;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The text with Python's Infinity, -Infinity and NaN, which JSON does not know and published configurations hold, as
// strings of the same letters.
std::string with_json_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      size_t end = at + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      out += text.substr(at, end - at);
      at = end;
      continue;
    }
    std::string_view word;
    for (const std::string_view known : {"-Infinity", "Infinity", "NaN"}) {
      if (word.empty() && text.substr(at).starts_with(known)) word = known;
    }
    if (word.empty()) {
      out += text[at++];
      continue;
    }
    out += '"' + std::string(word) + '"';
    at += word.size();
  }
  return out;
}

Status flatten_file(const MappedFile& file, const std::string& prefix, ModelFile::Parts& parts) {
  const bool fits = file.text().size() <= kConfigLimits.max_bytes;  // else parse_json refuses it
  const std::string text = fits ? with_json_numbers(file.text()) : "";
  ASSIGN_OR_RETURN(Json json, parse_json(fits ? std::string_view(text) : file.text(), file.path(), kConfigLimits));
  if (json.object() == nullptr) {
    return invalid(file.path() + " is " + std::string(json.kind()) + ", not an object", file.path());
  }
  if (!flatten(json, prefix, parts.metadata)) {
    return invalid(file.path() + ": a key with its parents has more than 512 bytes", file.path());
  }
  return {};
}

// The weight files of the folder, by full path.
Result<std::vector<std::string>> weight_files(const std::string& folder) {
  std::string index = folder + "/model.safetensors.index.json";
  std::vector<std::string> names;
  if (exists(index)) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(index));
    ASSIGN_OR_RETURN(names, shards_of_index(file.text(), index));
    for (const std::string& name : names) {
      if (!exists(folder + "/" + name)) {
        return not_found(folder + " lacks " + in_quotes(name) + ", which its index names; fetch it again", index);
      }
    }
  } else {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".safetensors") names.push_back(it->path().filename());
    }
    if (error) return unavailable("cannot list " + folder + ": " + error.message(), folder);
    std::sort(names.begin(), names.end());
  }
  if (names.empty() && exists(folder + "/pytorch_model.bin")) {
    return unsupported(folder +
                           " has its weights in pytorch_model.bin, and reading that runs code of the file; "
                           "tools/to_safetensors.py converts it to model.safetensors without running it",
                       folder);
  }
  if (names.empty()) {
    return not_found(folder + " has no .safetensors file; a model folder has config.json, tokenizer.json and weights",
                     folder);
  }
  for (std::string& name : names) name = folder + "/" + name;
  return names;
}

}  // namespace

Result<std::vector<std::string>> shards_of_index(std::string_view index_json, std::string_view where) {
  ASSIGN_OR_RETURN(Json json, parse_json(index_json, where));
  const Json* map = json.find("weight_map");
  if (map == nullptr || map->object() == nullptr || map->object()->empty()) {
    return invalid(std::string(where) + " has no weight_map, or an empty one", std::string(where));
  }
  std::set<std::string> names;
  for (const Json::Member& member : *map->object()) {
    const std::string* name = member.second.string();
    if (name == nullptr || name->empty() || *name == "." || *name == ".." ||
        name->find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return invalid(
          std::string(where) + ": tensor " + in_quotes(member.first) + " does not lie in a file of this folder",
          std::string(where));
    }
    names.insert(*name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<ModelFile> open_safetensors_folder(const std::string& folder) {
  ModelFile::Parts parts;
  parts.container = Container::kSafetensors;
  parts.path = folder;
  if (!exists(folder + "/config.json")) {
    return not_found(folder + " has no config.json; a model folder has config.json, tokenizer.json and *.safetensors",
                     folder);
  }
  ASSIGN_OR_RETURN(MappedFile config, MappedFile::open(folder + "/config.json"));
  TRY(flatten_file(config, "", parts));
  const std::string config_text = with_json_numbers(config.text());  // of a size that flatten_file reads
  RecipeTexts recipe = {.config = config_text};
  std::vector<MappedFile> small;
  small.push_back(std::move(config));
  for (auto [name, text] : {std::pair("/quantize_config.json", &recipe.quantize_config),
                            std::pair("/quant_config.json", &recipe.quant_config),
                            std::pair("/hf_quant_config.json", &recipe.hf_quant_config)}) {
    if (!exists(folder + name)) continue;
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(folder + name));
    *text = file.text();
    small.push_back(std::move(file));
  }
  ASSIGN_OR_RETURN(parts.quant_recipe_json, recipe_json(recipe, folder));
  if (std::string path = folder + "/generation_config.json"; exists(path)) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    TRY(flatten_file(file, "generation_config", parts));
    small.push_back(std::move(file));
  }
  for (auto [name, text] : {std::pair("/tokenizer.json", &parts.tokenizer_json),
                            std::pair("/tokenizer_config.json", &parts.tokenizer_config_json),
                            std::pair("/chat_template.jinja", &parts.chat_template)}) {
    if (!exists(folder + name)) continue;
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(folder + name));
    if (file.text().size() > kMaxTextBytes) {
      return invalid(file.path() + " has " + std::to_string(file.text().size()) + " bytes; 67,108,864 are the most",
                     file.path());
    }
    *text = file.text();
  }

  ASSIGN_OR_RETURN(std::vector<std::string> paths, weight_files(folder));
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    TRY(read_safetensors(file, parts.tensors, parts.copies));
    parts.files.push_back(std::move(file));
  }
  std::move(small.begin(), small.end(), std::back_inserter(parts.files));
  std::unordered_set<std::string_view> names;
  for (const TensorInfo& info : parts.tensors) {
    if (names.insert(info.name).second) continue;
    return invalid(folder + ": tensor " + in_quotes(info.name) + " occurs in two files", folder);
  }
  return ModelFile(std::move(parts));
}

}  // namespace ibid
