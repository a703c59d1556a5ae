#include "server/answer/trace_json.h"

#include <concepts>
#include <map>

#include "kernels/arithmetic_version.h"
#include "sample/sampling_digest.h"
#include "server/answer/logprobs_json.h"

namespace ibid {
namespace {

template <typename T>
concept Number = std::same_as<T, float> || std::same_as<T, int32_t> || std::same_as<T, bool>;

void write(JsonWriter& json, float value) { json.single(value); }
void write(JsonWriter& json, int32_t value) { json.integer(value); }
void write(JsonWriter& json, bool value) { json.boolean(value); }
void write(JsonWriter& json, TokenId id) { json.integer(raw(id)); }
void write(JsonWriter& json, const std::string& text) { json.string(text); }
void write(JsonWriter& json, const std::pair<TokenId, float>& bias) {
  json.begin_array().integer(raw(bias.first)).single(bias.second).end_array();
}
template <typename Item>
void write(JsonWriter& json, const std::vector<Item>& items) {
  json.begin_array();
  for (const Item& item : items) write(json, item);
  json.end_array();
}

// Calls visit(name, value) for all numbers, and for the lists that have something.
template <typename Visit>
void for_each_given(const SamplingParams& sampling, const Visit& visit) {
  for_each_parameter(sampling, [&]<typename T>(std::string_view name, const T& value) {
    if constexpr (!Number<T>) {
      if (value.empty()) return;
    }
    visit(name, value);
  });
}

std::string all_parameters(const SamplingParams& sampling) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  for_each_given(sampling, [&](std::string_view name, const auto& value) {
    json.key(name);
    write(json, value);
  });
  json.end_object();
  return out;
}

// Whose value each of all_parameters is. Of lists only the breakers have a default.
std::string all_sources(const SamplingParams& sampling, const SamplingSources& sources) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  for_each_given(sampling, [&]<typename T>(std::string_view name, const T&) {
    const bool has_default = Number<T> || name == "dry_sequence_breakers";
    json.field(name, source_name(has_default ? sources.of(name) : SamplingSource::kRequest));
  });
  json.end_object();
  return out;
}

std::string acting_parameters(const SamplingParams& sampling) {
  std::map<std::string_view, std::string> off;
  const auto spelled = [](const auto& value) {
    std::string text;
    JsonWriter json(text);
    write(json, value);
    return text;
  };
  for_each_parameter(SamplingParams(), [&](std::string_view name, const auto& value) { off[name] = spelled(value); });
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  for_each_parameter(sampling, [&]<typename T>(std::string_view name, const T& value) {
    if constexpr (Number<T>) {
      const bool always = name == "temperature" || name == "top_k" || name == "top_p";
      if (!always && spelled(value) == off[name]) return;
      json.key(name);
      write(json, value);
    }
  });
  json.end_object();
  return out;
}

}  // namespace

std::shared_ptr<const TraceFacts> trace_facts(const SamplingParams& sampling, const SamplingSources& sources,
                                              const ModelInfo& model, const grammar::Matcher* grammar,
                                              const std::string& adapter, const KvEviction& eviction) {
  auto facts = std::make_shared<TraceFacts>();
  facts->parameters = acting_parameters(sampling);
  facts->model_digest = model.digest;
  facts->sampling_digest = sampling_digest(spell_sampling(sampling));
  JsonWriter json(facts->header);
  json.begin_object().field("engine", "ibid").field("version", IBID_VERSION);
  json.field("arithmetic", kArithmeticName).field("arithmetic_version", int64_t{kArithmeticVersion});
  json.field("model", model.name).field("model_digest", model.digest).key("adapter");
  adapter.empty() ? json.null() : json.string(adapter);
  if (eviction) {
    json.key("kv_eviction").begin_object().field("method", name_of(eviction.method)).field("keep", eviction.keep);
    json.key("keep_share").number(static_cast<double>(eviction.keep_share));
    json.field("window", eviction.window).field("sinks", eviction.sinks).end_object();
  }
  json.field("generator", "philox4x32-10").key("stages").begin_array();
  for (const StageId id : stage_order()) json.string(stage_name(id));
  json.end_array().field("order_digest", sampling_digest(spell_stages()));
  json.key("parameters").raw(all_parameters(sampling));
  json.key("sources").raw(all_sources(sampling, sources));
  json.field("sampling_digest", facts->sampling_digest);
  if (grammar != nullptr)
    json.field("grammar_digest", sampling_digest(grammar::spell(grammar->source(), grammar->closes_in_time())));
  json.end_object();
  return facts;
}

void write_trace(JsonWriter& json, std::span<const TokenRecord> records, uint64_t seed, const TraceFacts& facts) {
  json.begin_array();
  for (const TokenRecord& record : records) {
    json.begin_object().field("token", int64_t{raw(record.chosen.token)});
    json.key("logprob");
    write_logprob(json, record.chosen.raw);
    json.key("processed_logprob");
    write_logprob(json, record.chosen.processed);
    json.field("support", int64_t{record.support}).key("seed").large_integer(seed);
    json.field("position", int64_t{record.position}).field("purpose", "draw");
    json.key("parameters").raw(facts.parameters);
    json.field("model_digest", facts.model_digest).field("sampling_digest", facts.sampling_digest).end_object();
  }
  json.end_array();
}

}  // namespace ibid
