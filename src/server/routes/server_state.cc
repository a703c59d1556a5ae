#include "server/routes/server_state.h"

namespace ibid {
namespace {

std::string mebibytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

std::optional<ApiError> ServerState::reserve(WebExchange& exchange, int64_t bytes, const std::string& field) {
  if (bytes > answers.most()) {
    return ApiError{400,
                    "This answer might come to hold " + mebibytes(bytes) + " and the server has " +
                        mebibytes(answers.most()) + " for all of them (--max-answers-bytes): " +
                        (field == "max_tokens" ? "ask for fewer tokens, choices or log-probabilities, or for a stream."
                                               : "send fewer or shorter texts."),
                    field, "answer_too_large"};
  }
  exchange.promised = answers.take(bytes);
  if (exchange.promised) return std::nullopt;
  return ApiError{429, "The answers under way have all of the server's memory for them; try again later.", "",
                  "memory_full", 1};
}

}  // namespace ibid
