#include "bench/load/measure.h"

#include <algorithm>
#include <cmath>

namespace ibid::load {
namespace {

void join(std::string& list, const Json& array) {
  const std::string text = array.text();
  if (text.size() <= 2) return;
  if (!list.empty()) list += ',';
  list.append(text, 1, text.size() - 2);
}

// Chat has one list of entries, completions have several columns.
void join_logprobs(std::map<std::string, std::string>& lists, const Json& logprobs) {
  for (const auto& [name, list] : *logprobs.object()) {
    if (list.array() != nullptr) join(lists[name], list);
  }
}

int64_t count_in(const Json* object, const char* name) {
  const Json* value = object != nullptr ? object->find(name) : nullptr;
  return value != nullptr && value->integer() != nullptr ? *value->integer() : -1;
}

void read_usage(StreamContent& out, const Json& event) {
  const Json* usage = event.find("usage");
  if (usage == nullptr || usage->object() == nullptr) return;
  out.prompt_tokens = count_in(usage, "prompt_tokens");
  out.completion_tokens = count_in(usage, "completion_tokens");
  out.cached_tokens = count_in(usage->find("prompt_tokens_details"), "cached_tokens");
}

const std::string* text_of(const Json& choice) {
  const Json* delta = choice.find("delta");
  const Json* text = delta != nullptr ? delta->find("content") : choice.find("text");
  return text != nullptr ? text->string() : nullptr;
}

class Reader {
 public:
  explicit Reader(StreamContent& out) : out_(out) {}

  void read(const LoadEvent& event) {
    if (event.data == "[DONE]") {
      out_.done = true;
      return;
    }
    const Result<Json> json = parse_json(event.data);
    if (!json) {
      out_.error = "an event is no JSON: " + json.error().message;
      return;
    }
    if (const Json* error = json->find("error")) out_.error = error->text();
    read_usage(out_, *json);
    const Json* choices = json->find("choices");
    if (choices == nullptr || choices->array() == nullptr) return;
    for (const Json& choice : *choices->array()) read_choice(choice, event.at);
  }

 private:
  void read_choice(const Json& json, double at) {
    const auto index = static_cast<size_t>(std::max<int64_t>(0, count_in(&json, "index")));
    if (index >= 4096) return;
    if (index >= out_.choices.size()) out_.choices.resize(index + 1), last_.resize(index + 1);
    ChoiceContent& choice = out_.choices[index];
    if (const std::string* text = text_of(json); text != nullptr && !text->empty()) {
      choice.text += *text;
      out_.times.push_back(at);
      if (out_.first == 0) out_.first = at;
      if (last_[index] > 0) out_.gaps.push_back(at - last_[index]);
      last_[index] = at;
    }
    if (const Json* ids = json.find("token_ids"); ids != nullptr && ids->array() != nullptr)
      join(choice.token_ids, *ids);
    if (const Json* logprobs = json.find("logprobs"); logprobs != nullptr && logprobs->object() != nullptr)
      join_logprobs(choice.logprobs, *logprobs);
    if (const Json* finish = json.find("finish_reason"); finish != nullptr && finish->string() != nullptr)
      choice.finish = *finish->string();
  }

  StreamContent& out_;
  std::vector<double> last_;  // per choice
};

void write_percentiles(JsonWriter& json, const char* name, const Percentiles& p) {
  json.key(name).begin_object().field("n", static_cast<int64_t>(p.n));
  json.key("p50").number(p.p50, 6).key("p95").number(p.p95, 6).key("p99").number(p.p99, 6);
  json.key("p99.9").number(p.p999, 6).key("max").number(p.max, 6).end_object();
}

}  // namespace

StreamContent read_stream(const LoadAnswer& answer) {
  StreamContent out;
  out.error = answer.error;
  Reader reader(out);
  for (const LoadEvent& event : answer.events) reader.read(event);
  return out;
}

bool same_bytes(const StreamContent& a, const StreamContent& b) {
  return a.choices == b.choices && a.done == b.done && a.error == b.error && a.prompt_tokens == b.prompt_tokens &&
         a.completion_tokens == b.completion_tokens;
}

Percentiles percentiles_of(std::vector<double> values) {
  Percentiles p;
  if (values.empty()) return p;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  return {values.size(), at(0.5), at(0.95), at(0.99), at(0.999), values.back()};
}

LoadFigures figures_of(std::span<const LoadAnswer> answers) {
  LoadFigures out;
  std::vector<double> ttft, itl, total;
  double begin = 1e300, end = 0;
  for (const LoadAnswer& answer : answers) {
    ++out.n_requests;
    begin = std::min(begin, answer.due);
    end = std::max(end, answer.end);
    StreamContent content = read_stream(answer);
    if (answer.status != 200 || !content.done || !content.error.empty()) {
      const bool is_status = answer.status != 200 && answer.status != 0;
      ++out.errors[is_status                ? std::to_string(answer.status)
                   : !content.error.empty() ? content.error
                                            : "the stream ended early"];
      continue;
    }
    ++out.n_whole;
    if (content.first > 0) ttft.push_back(content.first - answer.due);
    total.push_back(answer.end - answer.due);
    itl.insert(itl.end(), content.gaps.begin(), content.gaps.end());
    out.prompt_tokens += std::max<int64_t>(0, content.prompt_tokens);
    out.cached_tokens += std::max<int64_t>(0, content.cached_tokens);
    const auto n_events = static_cast<int64_t>(content.times.size());
    out.completion_tokens += content.completion_tokens >= 0 ? content.completion_tokens : n_events;
  }
  out.seconds = std::max(0.0, end - begin);
  out.ttft = percentiles_of(std::move(ttft));
  out.itl = percentiles_of(std::move(itl));
  out.total = percentiles_of(std::move(total));
  return out;
}

void write_figures(JsonWriter& json, const LoadFigures& f) {
  json.begin_object().field("requests", f.n_requests).field("whole", f.n_whole);
  json.key("errors").begin_object();
  for (const auto& [what, n] : f.errors) json.field(what, n);
  json.end_object().key("seconds").number(f.seconds, 6);
  json.field("prompt_tokens", f.prompt_tokens).field("cached_tokens", f.cached_tokens);
  json.field("completion_tokens", f.completion_tokens);
  const double seconds = std::max(f.seconds, 1e-9);
  json.key("completion_tokens_per_second").number(static_cast<double>(f.completion_tokens) / seconds, 6);
  write_percentiles(json, "ttft_seconds", f.ttft);
  write_percentiles(json, "itl_seconds", f.itl);
  write_percentiles(json, "total_seconds", f.total);
  json.end_object();
}

}  // namespace ibid::load
