// The functions of include/ibid.h.
#include "ibid.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "capi/local_engine.h"

using ibid::capi::LocalEngine;
using ibid::capi::LocalError;
using ibid::capi::LocalRequest;

struct ibid_engine {
  std::shared_ptr<LocalEngine> engine;
};
struct ibid_request {
  std::shared_ptr<LocalRequest> request;
};
struct ibid_error {
  ibid_code code = IBID_FAILED;
  std::string message, field, json;
};

namespace {

// For want of memory for another; never freed.
const ibid_error& no_memory_error() {
  static const ibid_error one = {IBID_NO_MEMORY, "Out of memory.", "", ""};
  return one;
}

constexpr const char* kForked =
    "The engine was opened by another process; fork() takes none of its threads along. Open one after the fork, or "
    "start the process in another way (in Python: multiprocessing's \"spawn\").";

ibid_code code_of(ibid::ErrorKind kind) {
  switch (kind) {
    case ibid::ErrorKind::kInvalid:
      return IBID_INVALID;
    case ibid::ErrorKind::kUnsupported:
      return IBID_UNSUPPORTED;
    case ibid::ErrorKind::kNotFound:
      return IBID_NOT_FOUND;
    case ibid::ErrorKind::kExhausted:
    case ibid::ErrorKind::kNoMemory:
      return IBID_NO_MEMORY;
    case ibid::ErrorKind::kUnavailable:
      return IBID_UNAVAILABLE;
  }
  return IBID_FAILED;
}

ibid_code code_of(int status) {
  switch (status) {
    case 0:
      return IBID_CLOSED;
    case 404:
      return IBID_NOT_FOUND;
    case 429:
      return IBID_BUSY;
    case 501:
      return IBID_UNSUPPORTED;
    case 503:
      return IBID_UNAVAILABLE;
    default:
      return status >= 400 && status < 500 ? IBID_INVALID : IBID_FAILED;
  }
}

ibid_code told(ibid_error** out, ibid_code code, std::string message, std::string field = "", std::string json = "") {
  if (out != nullptr) *out = new ibid_error{code, std::move(message), std::move(field), std::move(json)};
  return code;
}
ibid_code told(ibid_error** out, const LocalError& error) {
  return told(out, code_of(error.status), error.message, error.field, error.json);
}

// Nothing is thrown into the caller's code: of what could, there is std::bad_alloc, and threads that cannot be started.
template <typename Body>
ibid_code guarded(ibid_error** error, Body&& body) {
  if (error != nullptr) *error = nullptr;
  try {
    return body();
  } catch (...) {
    if (error != nullptr) *error = const_cast<ibid_error*>(&no_memory_error());
    return IBID_NO_MEMORY;
  }
}

char* copied(std::string_view text) {
  auto* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out == nullptr) throw std::bad_alloc();
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return out;
}

void give(std::string_view part, char** text, size_t* n_bytes) {
  *text = copied(part);
  if (n_bytes != nullptr) *n_bytes = part.size();
}

LocalEngine::OnPart on_part(ibid_callback callback, void* user) {
  if (callback == nullptr) return nullptr;
  return [callback, user](const std::string* part, const LocalError* error) {
    if (part != nullptr) return callback(user, IBID_OK, part->c_str(), part->size());
    if (error != nullptr) return callback(user, code_of(error->status), error->message.c_str(), error->message.size());
    callback(user, IBID_END, nullptr, 0);
  };
}

static_assert(sizeof(ibid::TokenId) == sizeof(int32_t));

LocalEngine::OnLogits on_logits(ibid_logits_processor processor, void* user) {
  if (processor == nullptr) return nullptr;
  return [processor, user](std::span<const ibid::TokenId> prompt, std::span<const ibid::TokenId> answer,
                           std::span<float> logits) {
    const auto ids = [](std::span<const ibid::TokenId> tokens) {
      return reinterpret_cast<const int32_t*>(tokens.data());
    };
    return processor(user, ids(prompt), prompt.size(), ids(answer), answer.size(), logits.data(), logits.size()) == 0;
  };
}

ibid_code submit(ibid_engine* engine, const char* path, const char* body, size_t n_bytes, ibid_callback callback,
                 void* user, ibid_error** error, std::shared_ptr<LocalRequest>& out,
                 LocalEngine::OnLogits processor = nullptr) {
  if (engine == nullptr || path == nullptr) return told(error, IBID_INVALID, "engine and path must not be NULL.");
  if (!engine->engine->is_of_this_process()) return told(error, IBID_FORKED, kForked);
  const std::string_view text(body != nullptr ? body : "", body != nullptr ? n_bytes : 0);
  LocalEngine::Submitted submitted =
      engine->engine->submit(path, body != nullptr ? &text : nullptr, on_part(callback, user), std::move(processor));
  if (const auto* refused = std::get_if<LocalError>(&submitted)) return told(error, *refused);
  out = std::get<std::shared_ptr<LocalRequest>>(std::move(submitted));
  return IBID_OK;
}

ibid_code pull(LocalRequest& request, int64_t timeout_ms, char** text, size_t* n_bytes, ibid_error** error) {
  const LocalRequest::Next next = request.next(timeout_ms);
  switch (next.kind) {
    case LocalRequest::Next::Kind::kPart:
      give(next.part, text, n_bytes);
      return IBID_OK;
    case LocalRequest::Next::Kind::kEnd:
      return IBID_END;
    case LocalRequest::Next::Kind::kPending:
      return IBID_PENDING;
    case LocalRequest::Next::Kind::kError:
      break;
  }
  return told(error, next.error);
}

}  // namespace

extern "C" {

const char* ibid_version(void) { return IBID_VERSION; }
uint32_t ibid_abi_version(void) { return IBID_ABI_VERSION; }

ibid_code ibid_error_code(const ibid_error* error) { return error != nullptr ? error->code : IBID_OK; }
const char* ibid_error_message(const ibid_error* error) { return error != nullptr ? error->message.c_str() : ""; }
const char* ibid_error_field(const ibid_error* error) { return error != nullptr ? error->field.c_str() : ""; }
const char* ibid_error_json(const ibid_error* error) { return error != nullptr ? error->json.c_str() : ""; }
void ibid_error_free(ibid_error* error) {
  if (error != &no_memory_error()) delete error;
}
void ibid_free(char* text) { std::free(text); }

ibid_code ibid_open(const char* options, ibid_engine** engine, ibid_error** error) {
  return guarded(error, [&]() -> ibid_code {
    if (options == nullptr || engine == nullptr)
      return told(error, IBID_INVALID, "options and engine must not be NULL.");
    auto opened = LocalEngine::open(options);
    if (!opened) {
      const ibid::Error& wrong = opened.error();
      return told(error, code_of(wrong.kind), wrong.message, wrong.where);
    }
    *engine = new ibid_engine{*std::move(opened)};
    return IBID_OK;
  });
}

ibid_code ibid_close(ibid_engine* engine) {
  if (engine == nullptr) return IBID_OK;
  if (!engine->engine->is_of_this_process()) return IBID_FORKED;  // its threads are not here to be ended
  if (engine->engine->is_callback_thread()) return IBID_INVALID;
  return guarded(nullptr, [&]() -> ibid_code {
    engine->engine->close();
    delete engine;
    return IBID_OK;
  });
}

ibid_code ibid_submit(ibid_engine* engine, const char* path, const char* body, size_t n_bytes, ibid_callback callback,
                      void* user, ibid_request** request, ibid_error** error) {
  return ibid_submit_with(engine, path, body, n_bytes, nullptr, nullptr, callback, user, request, error);
}

ibid_code ibid_submit_with(ibid_engine* engine, const char* path, const char* body, size_t n_bytes,
                           ibid_logits_processor processor, void* processor_user, ibid_callback callback, void* user,
                           ibid_request** request, ibid_error** error) {
  return guarded(error, [&]() -> ibid_code {
    if (request == nullptr) return told(error, IBID_INVALID, "request must not be NULL.");
    auto out = std::make_unique<ibid_request>();
    const ibid_code code =
        submit(engine, path, body, n_bytes, callback, user, error, out->request, on_logits(processor, processor_user));
    if (code == IBID_OK) *request = out.release();
    return code;
  });
}

ibid_code ibid_next(ibid_request* request, int64_t timeout_ms, char** text, size_t* n_bytes, ibid_error** error) {
  return guarded(error, [&]() -> ibid_code {
    if (request == nullptr || text == nullptr) return told(error, IBID_INVALID, "request and text must not be NULL.");
    if (!request->request->engine().is_of_this_process()) return told(error, IBID_FORKED, kForked);
    if (request->request->has_callback())
      return told(error, IBID_INVALID, "The request has a callback, which receives its answer.");
    return pull(*request->request, timeout_ms, text, n_bytes, error);
  });
}

ibid_code ibid_cancel(ibid_request* request) {
  return guarded(nullptr, [&]() -> ibid_code {
    if (request == nullptr) return IBID_INVALID;
    if (!request->request->engine().is_of_this_process()) return IBID_FORKED;
    request->request->cancel();
    return IBID_OK;
  });
}

void ibid_request_free(ibid_request* request) {
  if (request == nullptr || !request->request->engine().is_of_this_process()) return;
  guarded(nullptr, [&]() -> ibid_code {
    request->request->silence();
    delete request;
    return IBID_OK;
  });
}

ibid_code ibid_call(ibid_engine* engine, const char* path, const char* body, size_t n_bytes, char** answer,
                    size_t* n_answer, ibid_error** error) {
  return guarded(error, [&]() -> ibid_code {
    if (answer == nullptr) return told(error, IBID_INVALID, "answer must not be NULL.");
    std::shared_ptr<LocalRequest> request;
    const ibid_code code = submit(engine, path, body, n_bytes, nullptr, nullptr, error, request);
    if (code != IBID_OK) return code;
    if (request->is_stream())
      return told(error, IBID_INVALID, "A stream has more than one part: submit it, and pull its parts.", "stream");
    return pull(*request, -1, answer, n_answer, error);
  });
}

ibid_code ibid_embed(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                     ibid_error** error) {
  return ibid_call(engine, "/v1/embeddings", body, n_bytes, answer, n_answer, error);
}
ibid_code ibid_score(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                     ibid_error** error) {
  return ibid_call(engine, "/v1/score", body, n_bytes, answer, n_answer, error);
}
ibid_code ibid_tokenize(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                        ibid_error** error) {
  return ibid_call(engine, "/tokenize", body, n_bytes, answer, n_answer, error);
}
ibid_code ibid_detokenize(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                          ibid_error** error) {
  return ibid_call(engine, "/detokenize", body, n_bytes, answer, n_answer, error);
}
ibid_code ibid_render(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                      ibid_error** error) {
  return ibid_call(engine, "/apply-template", body, n_bytes, answer, n_answer, error);
}
ibid_code ibid_metrics(ibid_engine* engine, char** answer, size_t* n_answer, ibid_error** error) {
  return ibid_call(engine, "/metrics", nullptr, 0, answer, n_answer, error);
}

}  // extern "C"
