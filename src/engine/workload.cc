#include "engine/workload.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>

#include "base/json.h"

namespace ibid {
namespace {

constexpr int32_t kMaxTokens = 1 << 24;  // of a prompt or an answer

Error wrong(const std::string& file, size_t line, const char* what) {
  return invalid(file + ", line " + std::to_string(line) + ": " + what);
}

bool is_length(const Json* json) {
  return json != nullptr && json->integer() != nullptr && *json->integer() >= 0 && *json->integer() <= kMaxTokens;
}

Result<Workload> read_csv(const std::string& file, std::ifstream& in) {
  Workload out;
  std::string text;
  std::getline(in, text);
  double first = 0;
  for (size_t line = 2; std::getline(in, text); ++line) {
    int year, month, day, hour, minute, prompt, answer;
    double second;
    if (text.find_first_not_of(" \r") == std::string::npos) continue;
    if (std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%lf,%d,%d", &year, &month, &day, &hour, &minute, &second, &prompt,
                    &answer) != 8 ||
        prompt < 0 || prompt > kMaxTokens || answer < 0 || answer > kMaxTokens)
      return wrong(file, line, "expected a date and time, the prompt's tokens and the answer's tokens");
    const double at = ((month * 31.0 + day) * 24 + hour) * 3600 + minute * 60 + second;
    if (out.arrivals.empty()) first = at;
    out.arrivals.push_back({.at = at - first, .prompt_len = prompt, .answer_len = answer});
  }
  return out;
}

Result<Workload> read_jsonl(const std::string& file, std::ifstream& in) {
  Workload out;
  std::string text;
  for (size_t line = 1; std::getline(in, text); ++line) {
    if (text.empty()) continue;
    ASSIGN_OR_RETURN(const Json json, parse_json(text, file + ", line " + std::to_string(line)));
    const Json *at = json.find("timestamp"), *prompt = json.find("input_length"), *answer = json.find("output_length"),
               *parts = json.find("hash_ids");
    if (at == nullptr || !at->is_number() || !is_length(prompt) || !is_length(answer) || parts == nullptr ||
        parts->array() == nullptr)
      return wrong(file, line, "expected timestamp, input_length, output_length and hash_ids");
    Arrival& a = out.arrivals.emplace_back();
    a.at = at->number() / 1000;
    a.prompt_len = static_cast<int32_t>(*prompt->integer());
    a.answer_len = static_cast<int32_t>(*answer->integer());
    for (const Json& part : *parts->array()) {
      if (!is_length(&part)) return wrong(file, line, "a hash id is no small number");
      a.parts.push_back(static_cast<int32_t>(*part.integer()));
    }
    if (static_cast<int64_t>(a.parts.size()) != (a.prompt_len + out.part_len - 1) / out.part_len)
      return wrong(file, line, "expected a hash id for each 512 tokens");
  }
  return out;
}

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  return x ^ (x >> 32);
}

}  // namespace

int32_t Workload::longest() const {
  int32_t n = 0;
  for (const Arrival& a : arrivals) n = std::max(n, a.prompt_len + a.answer_len);
  return n;
}

Result<Workload> read_workload(const std::string& file) {
  std::ifstream in(file);
  if (!in) return not_found(file + " cannot be read");
  auto read = file.ends_with(".jsonl") ? read_jsonl(file, in) : read_csv(file, in);
  if (!read) return read.error();
  if (read->arrivals.empty()) return invalid(file + " has no requests");
  read->name = file.substr(file.rfind('/') + 1);
  std::ranges::stable_sort(read->arrivals, {}, &Arrival::at);
  return read;
}

Workload make_workload(uint64_t seed, int32_t n_requests) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  const auto length = [&](double median, double spread) {  // by Box and Muller, so that it is the same everywhere
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
    return std::clamp(static_cast<int32_t>(median * std::exp(spread * normal)), 4, 16384);
  };
  Workload out{.name = "made up", .part_len = 64, .arrivals = {}};
  int32_t next_part = 0;
  struct Talk {
    std::vector<int32_t> parts;
    int32_t len;
  };
  std::vector<Talk> beginnings, talks;
  const auto go_on = [&](Talk& talk, int32_t len) {
    talk.len += len;
    // A part that was not full is another one when it is.
    if (!talk.parts.empty()) talk.parts.back() = next_part++;
    while (static_cast<int32_t>(talk.parts.size()) * out.part_len < talk.len) talk.parts.push_back(next_part++);
  };
  for (int i = 0; i < 8; ++i) go_on(beginnings.emplace_back(), length(900, 0.8));
  double at = 0;
  for (int32_t i = 0; i < n_requests; ++i) {
    at += -std::log(uniform()) * 0.4;
    if (talks.size() < 40) talks.push_back(beginnings[up_to(beginnings.size())]);
    Talk& talk = talks[up_to(talks.size())];
    go_on(talk, length(150, 1.1));
    const int32_t answer_len = length(120, 0.9);
    out.arrivals.push_back({.at = at, .prompt_len = talk.len, .answer_len = answer_len, .parts = talk.parts});
    go_on(talk, answer_len);
    if (talk.len > 8000 || up_to(6) == 0) talk = beginnings[up_to(beginnings.size())];
  }
  return out;
}

std::vector<TokenId> prompt_of(const Workload& workload, size_t i, int32_t vocab_size) {
  const Arrival& a = workload.arrivals[i];
  std::vector<TokenId> out;
  out.reserve(static_cast<size_t>(a.prompt_len));
  for (int32_t t = 0; t < a.prompt_len; ++t) {
    const auto part = static_cast<size_t>(t / workload.part_len);
    const uint64_t of = a.parts.empty() ? mix(1, i) : mix(2, static_cast<uint64_t>(a.parts[part]));
    const bool is_first = !a.parts.empty() && t % workload.part_len == 0;
    const uint64_t token = is_first ? static_cast<uint64_t>(a.parts[part]) : mix(of, static_cast<uint64_t>(t));
    out.push_back(TokenId{static_cast<int32_t>(token % static_cast<uint64_t>(vocab_size))});
  }
  return out;
}

}  // namespace ibid
