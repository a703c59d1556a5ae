#include "cli/options/sampling_flags.h"

#include <algorithm>

#include "base/log.h"
#include "cli/options/command_line.h"

namespace ibid::cli {
namespace {

// --temp as well, by which everybody knows it.
std::string flag_of(const Parameter& p) {
  std::string name = p.name;
  std::ranges::replace(name, '_', '-');
  return name == "temperature" ? "--temp,--temperature" : "--" + name;
}

const char* unit_of(const Parameter& p) {
  switch (p.type) {
    case FieldType::kNumber:
    case FieldType::kInteger:
      return "N";
    case FieldType::kStrings:
      return "TEXT";
    default:
      return "JSON";
  }
}

// As the API's field has it. What is no JSON stays a text, so that the field's reader names valid values.
Json value_of(const Parameter& p, const std::string& text) {
  if (p.type == FieldType::kStrings) return Json(Json::Array{Json(text)});
  Result<Json> json = parse_json(text);
  return json ? *std::move(json) : Json(text);
}

Status check(const Parameter& p, const Json& value) {
  ApiRequest scratch;
  return read_parameter(p, value, ApiLimits(), scratch);
}

void add_flag(CLI::App* c, SamplingFlags& flags, const Parameter& p) {
  if (p.type == FieldType::kBoolean) {
    c->add_flag_callback(
        flag_of(p), [&flags, &p] { static_cast<void>(set_sampling(flags, p, "true")); }, p.meaning);
    return;
  }
  const auto checked = [&p](const std::string& text) {
    const Status status = check(p, value_of(p, text));
    return status ? std::string() : status.error().message;
  };
  const auto take = [&flags, &p](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) static_cast<void>(set_sampling(flags, p, text));
  };
  CLI::Option* option = c->add_option_function<std::vector<std::string>>(flag_of(p), take, p.meaning);
  option->allow_extra_args(false)->type_name(unit_of(p))->check(CLI::Validator(checked, ""));
  if (p.type != FieldType::kStrings) option->expected(1)->default_str(p.default_text);
}

}  // namespace

Status set_sampling(SamplingFlags& flags, const Parameter& p, const std::string& text) {
  Json value = value_of(p, text);
  TRY(check(p, value));
  const auto known = std::ranges::find(flags, std::string(p.name), &Json::Member::first);
  if (known == flags.end()) {
    flags.emplace_back(p.name, std::move(value));
  } else if (p.type == FieldType::kStrings) {
    known->second.array()->push_back((*value.array())[0]);
  } else {
    known->second = std::move(value);
  }
  return {};
}

SamplingDefaults sampling_defaults(const ModelFile& file, const SamplingFlags& flags) {
  SamplingDefaults defaults;
  for (const std::string& unused : take_model_defaults(file, defaults)) log_warn(unused);
  for (const auto& [name, value] : flags) {
    const Status status = set_default(defaults, *find_parameter(name), value, SamplingSource::kFlag);
    CHECK(status.ok(), name.c_str());  // set_sampling has read it
  }
  return defaults;
}

void add_sampling_options(CLI::App* command, SamplingFlags& flags, SamplingScope scope) {
  for (const Parameter& p : parameters()) {
    const bool is_stop = std::string_view(p.field) == "Request::stops";
    // Not these: a seed is a request's own, and log-probabilities are reported, not sampled by.
    const std::string_view name = p.name;
    const bool is_sampler = p.endpoints == kBoth && samples(p) && name != "seed" && name != "processed_logprobs";
    if (scope == SamplingScope::kDefaults ? is_sampler_number(p) : is_sampler || is_stop) add_flag(command, flags, p);
  }
}

}  // namespace ibid::cli
