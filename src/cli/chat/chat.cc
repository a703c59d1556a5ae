#include "cli/chat/chat.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "server/request/build_requests.h"

namespace ibid::cli {
namespace {

constexpr size_t kMaxFile = 16 << 20;
constexpr size_t kMaxConversation = 256 << 20;         // with its pictures
constexpr auto kLook = std::chrono::milliseconds(20);  // how soon Ctrl-C is seen
constexpr int kLongWait = 15;                          // looks, after which a prompt takes long

Json text_message(const char* role, const std::string& content) {
  return Json(Json::Object{{"role", Json(std::string(role))}, {"content", Json(content)}});
}

bool has_role(const Json& message, std::string_view role) {
  const Json* found = message.find("role");
  return found != nullptr && found->string() != nullptr && *found->string() == role;
}

bool is_picture(const Json& part) { return part.find("image_url") != nullptr; }

// Its text: of parts, what they have of it.
std::string content_of(const Json& message) {
  const Json* content = message.find("content");
  if (content == nullptr) return "";
  if (content->string() != nullptr) return *content->string();
  std::string out;
  for (const Json& part : content->array() != nullptr ? *content->array() : Json::Array()) {
    if (const Json* text = part.find("text"); text != nullptr && text->string() != nullptr) out += *text->string();
  }
  return out;
}

// Calls without an id of the model's own get one by their place.
std::string id_of(const AnswerCall& call, size_t n_messages) {
  return call.id.empty() ? "call_" + std::to_string(n_messages) + "_" + std::to_string(call.number) : call.id;
}

Json message_of(const AnswerChoice& choice, size_t n_messages) {
  Json message = text_message("assistant", choice.text_of(PartKind::kText));
  if (choice.has(PartKind::kReasoning))
    message.object()->emplace_back("reasoning_content", Json(choice.text_of(PartKind::kReasoning)));
  Json::Array calls;
  for (const AnswerCall& call : calls_of(choice)) {
    Json::Object function{{"name", Json(call.name)}, {"arguments", Json(call.arguments)}};
    calls.emplace_back(Json::Object{{"id", Json(id_of(call, n_messages))},
                                    {"type", Json(std::string("function"))},
                                    {"function", Json(std::move(function))}});
  }
  if (!calls.empty() && choice.asks_for_tools()) message.object()->emplace_back("tool_calls", Json(std::move(calls)));
  return message;
}

Result<std::string> read_text(const std::string& path, size_t max_bytes = kMaxFile) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("There is no file " + in_quotes(path) + ", or it cannot be read.");
  std::string text, piece(size_t{64} << 10, '\0');
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece, 0, static_cast<size_t>(file.gcount()));
  } while (file && text.size() <= max_bytes);
  if (text.size() > max_bytes)
    return invalid("The file " + in_quotes(path) + " has more than " + std::to_string(max_bytes >> 20) + " MiB.");
  return text;
}

// A field of a chat by any of its names; null where there is none.
const Parameter* chat_field(std::string_view name) {
  const auto found = std::ranges::find_if(parameters(), [&](const Parameter& p) {
    return p.name == name && (p.endpoints == kBoth || p.endpoints == kChatOnly);
  });
  return found != parameters().end() ? &*found : nullptr;
}

}  // namespace

bool is_settable(const Parameter& p) {
  constexpr std::string_view kMore[] = {
      "max_tokens",          "stop",       "tool_choice",         "reasoning_effort",
      "response_format",     "prediction", "parallel_tool_calls", "thinking_token_budget",
      "chat_template_kwargs"};
  const std::string_view name = p.name;
  const bool is_logprob = name.find("logprobs") != std::string_view::npos || name == "n_probs";
  return (samples(p) && !is_logprob && name != "seed") || std::ranges::find(kMore, name) != std::end(kMore);
}

// Where the engine's thread leaves what it made.
struct Chat::Mailbox {
  std::mutex mutex;
  std::condition_variable came;
  std::vector<Output> outputs;
};

Chat::Chat(Backend& backend, Json::Object fields, std::string system, uint64_t seed)
    : backend_(backend),
      fields_(std::move(fields)),
      system_(std::move(system)),
      seed_(seed),
      mailbox_(std::make_shared<Mailbox>()) {
  backend_.start([mailbox = mailbox_](std::span<Output> outputs, const EngineStats&) {
    const std::lock_guard lock(mailbox->mutex);
    for (Output& output : outputs) mailbox->outputs.push_back(std::move(output));
    mailbox->came.notify_one();
  });
}

Chat::~Chat() { backend_.stop(); }

Json Chat::body() const {
  Json::Object body = fields_;
  Json::Array messages;
  if (!system_.empty()) messages.push_back(text_message("system", system_));
  messages.insert(messages.end(), messages_.begin(), messages_.end());
  if (messages.empty()) messages.push_back(text_message("user", "x"));  // of check()
  body.emplace_back("messages", Json(std::move(messages)));
  return Json(std::move(body));
}

Status Chat::check() const {
  ASSIGN_OR_RETURN(const ApiRequest api,
                   parse_api_request(Endpoint::kChat, body(), ApiLimits(), backend_.model().sampling));
  const Result<Request> request = build_common(api, backend_.tokenizer());
  return request ? Status{} : Status{request.error()};
}

Status Chat::set(const std::string& typed, const std::string& value) {
  std::string name = typed;
  std::ranges::replace(name, '-', '_');
  if (name == "temp") name = "temperature";
  if (name == "system") return set_system(value), Status{};
  if (name == "seed") {
    char* end = nullptr;
    seed_ = std::strtoull(value.c_str(), &end, 10);
    return value.empty() || *end != '\0' ? invalid("The seed is a whole number, not " + in_quotes(value) + ".")
                                         : Status{};
  }
  const Parameter* p = chat_field(name);
  if (p == nullptr || !is_settable(*p))
    return invalid(in_quotes(typed) + " is unknown to /set; Tab after it lists the names.");
  Json::Object before = fields_;
  std::erase_if(fields_, [&](const Json::Member& member) {
    const Parameter* other = chat_field(member.first);
    return other != nullptr && own_name(*other) == own_name(*p);
  });
  Result<Json> json = parse_json(value);
  if (!json || !json->is_null()) fields_.emplace_back(name, json ? *std::move(json) : Json(value));
  if (const Status wrong = check(); !wrong) {
    fields_ = std::move(before);
    return wrong;
  }
  return {};
}

void Chat::set_system(std::string text) {
  system_ = std::move(text);
  messages_.clear();
}

void Chat::say(const std::string& text) {
  if (attached_.empty()) return messages_.push_back(text_message("user", text));
  Json::Array parts = std::exchange(attached_, {});
  if (!text.empty()) parts.emplace_back(Json::Object{{"type", Json(std::string("text"))}, {"text", Json(text)}});
  messages_.emplace_back(Json::Object{{"role", Json(std::string("user"))}, {"content", Json(std::move(parts))}});
}

void Chat::give(const AnswerCall& call, size_t number, const std::string& result) {
  // Its message is the one before all results.
  messages_.emplace_back(Json::Object{{"role", Json(std::string("tool"))},
                                      {"tool_call_id", Json(id_of(call, messages_.size() - 1 - number))},
                                      {"content", Json(result)}});
}

Result<Answer> Chat::answer(AnswerSink& sink, const volatile std::sig_atomic_t& interrupted) {
  Result<Answer> answer = run(Endpoint::kChat, body(), sink, interrupted);
  if (!answer) {
    drop_question();
    return answer;
  }
  messages_.push_back(message_of(answer->choice, messages_.size()));
  return answer;
}

Result<Answer> Chat::complete(const std::string& text, AnswerSink& sink,
                              const volatile std::sig_atomic_t& interrupted) {
  Json::Object body = fields_;
  body.emplace_back("prompt", Json(text));
  return run(Endpoint::kCompletions, Json(std::move(body)), sink, interrupted);
}

Result<Answer> Chat::run(Endpoint endpoint, const Json& body, AnswerSink& sink,
                         const volatile std::sig_atomic_t& interrupted) {
  ASSIGN_OR_RETURN(const ApiRequest api, parse_api_request(endpoint, body, ApiLimits(), backend_.model().sampling));
  ASSIGN_OR_RETURN(BuiltRequests built, build_requests(api, backend_, ""));
  Request request = std::move(built.requests.front());
  request.sampling.seed = seed_;
  request.reports_progress = true;
  if (const AdapterShelf* shelf = backend_.adapters(); shelf != nullptr) request.adapter = shelf->list().front().placed;
  const auto n_prompt = static_cast<int32_t>(request.prompt.size()), most = backend_.model().context_len;
  if (n_prompt > most) {
    return exhausted((endpoint == Endpoint::kChat && messages_.size() > 1 ? "The conversation" : "The prompt") +
                     std::string(" does not fit into the context: ") + std::to_string(n_prompt) + " of " +
                     std::to_string(most) + " tokens");
  }
  const RequestId id = request.id = backend_.next_id();
  Answer out;
  if (built.parser) out.choice.parser.emplace(*built.parser);
  TRY(backend_.submit(std::move(request)));
  std::vector<Output> outputs;
  bool is_cancelled = false, has_begun = false;
  for (int n_looks = 1; !out.choice.finished; ++n_looks) {
    if (n_looks == kLongWait && !has_begun) sink.progress(0, n_prompt);
    if (interrupted && !std::exchange(is_cancelled, true)) backend_.cancel(id);
    outputs.clear();
    {
      std::unique_lock lock(mailbox_->mutex);
      mailbox_->came.wait_for(lock, kLook, [&] { return !mailbox_->outputs.empty(); });
      outputs.swap(mailbox_->outputs);
    }
    for (Output& o : outputs) {
      if (o.request != id) continue;
      has_begun |= o.n_computed > 0 || !o.tokens.empty();
      if (o.n_computed > 0 && o.n_computed < n_prompt) sink.progress(o.n_computed, n_prompt);
      std::vector<AnswerPart> parts;
      if (out.choice.parser) {
        out.choice.parser->push(o.text, parts);
        if (o.finished) out.choice.parser->finish(parts);
      } else if (!o.text.empty()) {
        parts.push_back({.text = o.text});
      }
      for (AnswerPart& part : parts) {
        sink.part(part);
        out.choice.parts.push_back(std::move(part));
      }
      out.usage = o.usage;
      out.timing = o.timing;
      if (!o.finished) continue;
      out.choice.finished = true;
      out.choice.reason = o.reason;
      out.choice.error = o.error();
    }
  }
  if (out.choice.failed()) return out.choice.error;
  return out;
}

bool Chat::forget_answer() {
  size_t n = messages_.size();
  while (n > 0 && !has_role(messages_[n - 1], "user")) --n;
  if (n > 0) messages_.resize(n);
  return n > 0;
}

std::string Chat::take_question() {
  if (!forget_answer()) return "";
  const Json question = std::move(messages_.back());
  messages_.pop_back();
  detach();
  if (const Json* content = question.find("content"); content->array() != nullptr)
    std::ranges::copy_if(*content->array(), std::back_inserter(attached_), is_picture);
  return content_of(question);
}

void Chat::drop_question() {
  take_question();
  detach();
}

std::string Chat::last_answer() const {
  return messages_.empty() || !has_role(messages_.back(), "assistant") ? "" : content_of(messages_.back());
}

Status Chat::save(const std::string& path) const {
  Json::Array messages;
  if (!system_.empty()) messages.push_back(text_message("system", system_));
  messages.insert(messages.end(), messages_.begin(), messages_.end());
  const std::string text = Json(Json::Object{{"messages", Json(std::move(messages))}}).text() + "\n";
  if (text.size() > kMaxConversation)
    return invalid("The conversation has more than " + std::to_string(kMaxConversation >> 20) +
                   " MiB and is not written to " + in_quotes(path) + ".");
  const std::string fresh = path + ".new";  // so that a disk that is full leaves the old one
  std::ofstream file(fresh, std::ios::binary);
  file << text;
  file.close();
  std::error_code wrong;
  if (file) std::filesystem::rename(fresh, path, wrong);
  if (!file || wrong) return unavailable("The conversation could not be written to " + in_quotes(path) + ".");
  return {};
}

Status Chat::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path, kMaxConversation));
  ASSIGN_OR_RETURN(const Json file, parse_json(text, path, {.max_bytes = kMaxConversation}));
  const Json* messages = file.array() != nullptr ? &file : file.find("messages");
  if (messages == nullptr || messages->array() == nullptr)
    return invalid("The file " + in_quotes(path) + " holds no conversation: {\"messages\": [..]}.");
  Json::Array list = *messages->array();
  std::string system;
  if (!list.empty() && has_role(list.front(), "system")) {
    system = content_of(list.front());
    list.erase(list.begin());
  }
  std::swap(list, messages_);
  std::swap(system, system_);
  if (const Status wrong = check(); !wrong) {
    messages_ = std::move(list);
    system_ = std::move(system);
    return invalid("The conversation in " + in_quotes(path) + " cannot be gone on with: " + wrong.error().message);
  }
  return {};
}

Result<Json> read_tools(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  ASSIGN_OR_RETURN(Json given, parse_json(text, path));
  Json::Array list = given.array() != nullptr ? *given.array() : Json::Array{given};
  for (Json& tool : list) {
    if (tool.find("function") == nullptr)
      tool = Json(Json::Object{{"type", Json(std::string("function"))}, {"function", std::move(tool)}});
  }
  return Json(std::move(list));
}

Result<Json> read_schema(const std::string& argument) {
  const size_t first = argument.find_first_not_of(" \n\t");
  if (first != std::string::npos && argument[first] == '{') return parse_json(argument, "--json-schema");
  ASSIGN_OR_RETURN(const std::string text, read_text(argument));
  return parse_json(text, argument);
}

}  // namespace ibid::cli
