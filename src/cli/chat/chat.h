// Chat: a conversation in the terminal, as the API's own requests: each turn becomes the body of a request, which is
// read and built as the server does it, so that flags, tools and schemas mean the same here and there.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/answer/answer_choice.h"
#include "server/fields/parameters.h"
#include "server/request/backend.h"

namespace ibid::cli {

struct Answer {
  AnswerChoice choice;  // parts, calls, how it ended
  Usage usage;
  Timing timing;
};

class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void part(const AnswerPart& part) = 0;  // of a growing answer, in order; not for keeping
  // While nothing of it is there: so many of the prompt's tokens are computed. 0: it takes long already.
  virtual void progress(int32_t n_computed, int32_t n_prompt) {
    static_cast<void>(n_computed);
    static_cast<void>(n_prompt);
  }
};

class Chat {
 public:
  // `fields`: of every request, by the API's names. `backend` is started, and outlives this.
  Chat(Backend& backend, Json::Object fields, std::string system, uint64_t seed);
  ~Chat();

  // An error where no request can have these fields.
  Status check() const;
  // Sets one field as /set has it; null takes it out. What no request could have then is an error, and changes nothing.
  Status set(const std::string& name, const std::string& value);
  void set_system(std::string text);  // and forgets the conversation

  bool reads_pictures() const { return backend_.pictures() != nullptr; }
  // A part of a message (cli/chat/picture_file.h) that goes before the text of the next question.
  void attach(Json picture) { attached_.push_back(std::move(picture)); }
  size_t n_attached() const { return attached_.size(); }
  void detach() { attached_.clear(); }
  void say(const std::string& text);  // with what is attached, which nothing is then
  // What a call gave; as many as it had, in order.
  void give(const AnswerCall& call, size_t number, const std::string& result);
  // Answers the last message. An error leaves the question out again; kExhausted: the conversation fills the context.
  // `interrupted` stops it.
  Result<Answer> answer(AnswerSink& sink, const volatile std::sig_atomic_t& interrupted);
  // Goes on from a text without a template.
  Result<Answer> complete(const std::string& text, AnswerSink& sink, const volatile std::sig_atomic_t& interrupted);

  void clear() { messages_.clear(), detach(); }
  // Takes back all after the last question; false where there is none.
  bool forget_answer();
  // And the question, whose text it returns and whose pictures are attached again; empty where there is none.
  std::string take_question();
  void drop_question();  // the same without its pictures
  std::string last_answer() const;

  // A file as `ibid template` reads it: {"messages": [..]}, the system message first.
  Status save(const std::string& path) const;
  Status load(const std::string& path);

  const Json::Object& fields() const { return fields_; }  // that are set, by the API's names
  const std::string& system() const { return system_; }
  uint64_t seed() const { return seed_; }
  void next_seed() { ++seed_; }
  size_t n_messages() const { return messages_.size(); }

 private:
  struct Mailbox;
  Json body() const;
  Result<Answer> run(Endpoint endpoint, const Json& body, AnswerSink& sink,
                     const volatile std::sig_atomic_t& interrupted);

  Backend& backend_;
  Json::Object fields_;
  std::string system_;
  uint64_t seed_;
  Json::Array messages_;
  Json::Array attached_;
  std::shared_ptr<Mailbox> mailbox_;
};

// What /set may set: how tokens are chosen, and what an answer may be.
bool is_settable(const Parameter& parameter);
// The API's `tools`, out of a file: a list of them, of functions alone, or a single one.
Result<Json> read_tools(const std::string& path);
// A schema as an argument has it: JSON, or the path of a file.
Result<Json> read_schema(const std::string& argument);

}  // namespace ibid::cli
