#include "server/routes/request_mover.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <system_error>

#include "base/caught.h"
#include "base/clock.h"
#include "base/thread_name.h"
#include "format/http_client.h"
#include "server/answer/output_lines.h"

namespace ibid {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(100);
constexpr double kPause = 1;               // seconds between tries
constexpr size_t kMostRefusal = 64 << 10;  // bytes that are read of one
constexpr size_t kMostSentences = 8;       // that the log has of different refusals
constexpr const char* kType = "application/json";

// Which may pass when tried again: it loads, is full, or has too many requests of this tenant.
bool may_pass(int status) { return status == 429 || status == 502 || status == 503 || status == 504; }

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

// The sentence in a refusal's body, of any API.
std::string sentence_in(const std::string& body) {
  const Result<Json> json = parse_json(body);
  const Json* error = json ? json->find("error") : nullptr;
  const Json* message = error != nullptr && error->object() != nullptr ? error->find("message") : error;
  return message != nullptr && message->string() != nullptr ? *message->string() : body.substr(0, 200);
}

}  // namespace

// What has come of one request from the replica, whose lines begin after the snapshot's tokens.
struct RequestMover::Arrival {
  RequestMove& move;
  std::optional<Mailbox::Given> given = std::nullopt;  // when it was handed over; none: it has not been
  bool finished = false;
  int status = 0;
  std::string line = {};            // that is not whole
  size_t n_tokens = 0, n_text = 0;  // after the snapshot, that have come
  Usage usage = {};                 // as handed over
  Timing timing = {};
};

Status RequestMover::check(const std::string& url) {
  ASSIGN_OR_RETURN(const Url parsed, parse_url(url));
  if (parsed.target.find('?') != std::string::npos)
    return invalid("The replica's URL has a query; give its root, such as http://replica-2:8080.", url);
  return {};
}

RequestMover::RequestMover(const std::string& url, const JsonLimits& limits, MovableRequests& requests, RequestLog& log)
    : url_(without_slash(url)), limits_(limits), requests_(requests), log_(log) {
  threads_.reserve(kMostAtOnce);
  for (int i = 0; i < kMostAtOnce; ++i) {
    try {
      threads_.emplace_back([this] {
        name_thread("ibid-move");
        loop();
      });
    } catch (const std::system_error&) {  // as many as the system has
      break;
    }
  }
}

RequestMover::~RequestMover() { stop(); }

void RequestMover::stop() {
  if (threads_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  log_.say("Moved " + std::to_string(n_moved_) + " answers to " + url_ + "; " + std::to_string(n_taken_back_) +
           " of them went on here.");
}

void RequestMover::loop() {
  while (!stopping_) {
    try {
      if (std::optional<RequestMove> next = requests_.next_to_move(steady_clock().now(), limits_)) {
        move(*std::move(next));
        continue;
      }
    } catch (const std::bad_alloc&) {  // the engine goes on with it
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kTurn, [this] { return stopping_.load(); });
  }
}

void RequestMover::move(RequestMove move) {
  HttpRequest request = {.url = url_ + move.path, .timeout_s = kSilence, .max_redirects = 0};
  request.headers = move.keys;
  request.headers.emplace_back("X-Request-Id", move.request_id);
  request.cancelled = [&] { return stopping_ || move.mailbox.expired(); };
  Arrival arrival = {move};
  std::string refusal;
  const auto on_head = [&](const std::vector<HttpHead>& heads) {
    arrival.status = heads.back().status;
    return Status();
  };
  const auto on_body = [&](std::string_view bytes) -> Status {
    if (arrival.status == 200) return take(arrival, bytes);
    refusal.append(bytes.substr(0, kMostRefusal - std::min(kMostRefusal, refusal.size())));
    return {};
  };
  Status status = caught([&] {
    return http_post(request, kType, std::exchange(move.body, {}), {.on_head = on_head, .on_body = on_body});
  });
  if (arrival.finished || move.mailbox.expired()) return;
  if (status)
    status = arrival.status == 200 ? unavailable("it ended before its answer") : invalid(sentence_in(refusal));
  arrival.given ? give_back(arrival, status) : refused(move, arrival.status, status);
}

Status RequestMover::take(Arrival& arrival, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (arrival.line.size() + std::min(end, bytes.size()) > kMaxOutputLine) return invalid("a line is too long");
    arrival.line.append(bytes.substr(0, end));
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    const std::string line = std::exchange(arrival.line, {});
    if (!line.empty()) TRY(take_line(arrival, line));
    if (arrival.finished) return {};
  }
  return {};
}

Status RequestMover::take_line(Arrival& arrival, std::string_view line) {
  const RequestMove& move = arrival.move;
  const std::shared_ptr<Mailbox> mailbox = move.mailbox.lock();
  if (mailbox == nullptr) return unavailable("the client has gone");
  const auto n_left = static_cast<int64_t>(move.max_tokens) - static_cast<int64_t>(move.n_tokens + arrival.n_tokens);
  ASSIGN_OR_RETURN(Output output,
                   read_output_line(line, {.vocab_size = move.vocab_size,
                                           .n_tokens = static_cast<int32_t>(std::max<int64_t>(n_left, 0)),
                                           .n_top = move.n_top}));
  if (arrival.n_text + output.text.size() >
      kMostTokenText * (move.n_tokens + arrival.n_tokens + output.tokens.size() + 1))
    return invalid("its text is too long for its tokens");
  if (!arrival.given) {
    if (output.tokens.empty() && !output.finished) return {};
    std::optional<Mailbox::Given> given = mailbox->given();
    if (given) TRY(compare(arrival, output, *given));
    if (given) arrival.given = requests_.hand_over(arrival.move);
    if (!arrival.given) {  // it has ended here meanwhile
      arrival.finished = true;
      return {};
    }
    arrival.usage = arrival.given->usage;
    arrival.timing = arrival.given->timing;
    if (arrival.given->tokens.empty()) {
      arrival.usage.cached_tokens = output.usage.cached_tokens;
      arrival.timing.arrived = arrival.timing.admitted = arrival.timing.ledger.until = move.now();
    }
    ++n_moved_;
  }
  TRY(compare(arrival, output, *arrival.given));
  put(arrival, std::move(output), *mailbox);
  return {};
}

// Both replicas draw the same tokens. Where they did not, the other is no replica of this one.
Status RequestMover::compare(const Arrival& arrival, const Output& output, const Mailbox::Given& given) {
  const size_t begin = arrival.move.n_tokens + arrival.n_tokens, end = begin + output.tokens.size();
  bool is_same = !output.finished || end >= given.tokens.size();
  for (size_t at = begin; at < std::min(end, given.tokens.size()); ++at)
    is_same = is_same && given.tokens[at] == output.tokens[at - begin].chosen.token;
  return is_same ? Status() : invalid("it gave other tokens than were given here");
}

// All of it but what the client was given before it was handed over.
void RequestMover::put(Arrival& arrival, Output output, Mailbox& mailbox) {
  const RequestMove& move = arrival.move;
  const Mailbox::Given& given = *arrival.given;
  const auto n_known = [](size_t n_given, size_t n_before, size_t n) {
    return n_given > n_before ? std::min(n_given - n_before, n) : 0;
  };
  const size_t n_tokens = n_known(given.tokens.size(), move.n_tokens + arrival.n_tokens, output.tokens.size());
  const size_t n_text = n_known(given.n_text, move.n_text + arrival.n_text, output.text.size());
  arrival.n_tokens += output.tokens.size();
  arrival.n_text += output.text.size();
  output.tokens.erase(output.tokens.begin(), output.tokens.begin() + static_cast<std::ptrdiff_t>(n_tokens));
  output.text.erase(0, n_text);
  if (output.tokens.empty() && output.text.empty() && !output.finished) return;
  output.request = move.source;
  Usage& usage = output.usage;
  usage.prompt_tokens = arrival.usage.prompt_tokens;
  usage.cached_tokens = arrival.usage.cached_tokens;
  usage.drafted_tokens += arrival.usage.drafted_tokens;
  usage.accepted_tokens += arrival.usage.accepted_tokens;
  usage.completion_tokens = static_cast<int32_t>(move.n_tokens + arrival.n_tokens);
  if (!output.tokens.empty()) {
    Timing& timing = arrival.timing;
    timing.last_token = std::max(timing.last_token, move.now());
    if (timing.first_token <= 0) timing.first_token = timing.last_token;
    timing.ledger.pass(timing.last_token, Phase::kNetwork);
  }
  output.timing = arrival.timing;
  arrival.finished = output.finished;
  try {
    mailbox.put(std::move(output));
  } catch (const std::bad_alloc&) {
    mailbox.lose();
    arrival.finished = true;
  }
}

void RequestMover::give_back(const Arrival& arrival, const Status& why) {
  const RequestMove& move = arrival.move;
  if (stopping_) {
    const std::shared_ptr<Mailbox> mailbox = move.mailbox.lock();
    if (mailbox == nullptr) return;
    Output last;
    last.request = move.source;
    last.finished = true;
    last.reason = FinishReason::kCancelled;
    last.usage = arrival.usage;
    last.timing = arrival.timing;
    return mailbox->put(std::move(last));
  }
  ++n_taken_back_;
  say_once("An answer that was moved to " + url_ + " goes on here: " + why.error().message);
  if (const Status status = requests_.take_back(move.id, limits_); !status)
    say_once("It cannot: " + status.error().message);
}

void RequestMover::refused(const RequestMove& move, int status, const Status& why) {
  if (stopping_) return;
  say_once("The replica at " + url_ + " does not take an answer, which goes on here: " + why.error().message);
  if (status == 0 ? why.error().kind == ErrorKind::kUnavailable : may_pass(status))
    requests_.try_again(move.id, steady_clock().now() + kPause);
}

void RequestMover::say_once(const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    if (said_.size() >= kMostSentences || std::ranges::find(said_, sentence) != said_.end()) return;
    said_.push_back(sentence);
  }
  log_.warn(sentence);
}

}  // namespace ibid
