/* ibid as a C library: an inference engine for large language models in the caller's process.
 *
 *   link with -libid; a program in C needs nothing else
 *
 * Requests and answers are those of `ibid serve`: a path and a JSON body in, JSON or a stream of events out, the same
 * bytes without a socket. Every API of the server is there: OpenAI's, Anthropic's, Ollama's, llama.cpp's, and the
 * routes for vectors, scores, tokens and templates (docs/users/api.md, docs/users/apis.md). docs/users/library.md shows
 * the use.
 *
 * Threads. Every function may be called from any thread at any time, but ibid_close() and ibid_request_free(), which
 * are the last use of what they free. Requests run beside each other; calls that take one request wait for each other.
 *
 * Ownership. What a function returns through `ibid_engine **`, `ibid_request **`, `ibid_error **` and `char **` belongs
 * to the caller, who frees it with ibid_close(), ibid_request_free(), ibid_error_free() and ibid_free(). What is passed
 * in stays the caller's and is not referred to after the call. Results are set on success alone and errors on failure
 * alone.
 *
 * Text is UTF-8. A length counts bytes and no NUL; text that is returned has a NUL after it as well.
 *
 * Errors are an ibid_code and, where the caller passes the address of an ibid_error pointer (which may be NULL),
 * sentences for a person. No function ends the process, throws, or writes to standard output; warnings go to standard
 * error.
 *
 * Processes. An engine belongs to the process that opened it: fork() takes no threads along, and in a child every
 * function refuses an engine of the parent with IBID_FORKED. Several engines in one process share nothing but the
 * instruction set of the CPU kernels, which is that of the first.
 *
 * Stability. Functions and numbers are never removed or changed within an IBID_ABI_VERSION; new ones may be added. The
 * structs are opaque.
 */
#ifndef IBID_H
#define IBID_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define IBID_API __attribute__((visibility("default")))
#else
#define IBID_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define IBID_ABI_VERSION 1

typedef struct ibid_engine ibid_engine;
typedef struct ibid_request ibid_request;
typedef struct ibid_error ibid_error;

typedef int32_t ibid_code;
enum {
  IBID_OK = 0,
  IBID_INVALID = 1,     /* an option, a body or an argument is wrong */
  IBID_UNSUPPORTED = 2, /* well formed, but not served by this engine */
  IBID_NOT_FOUND = 3,   /* a file, model or path does not exist */
  IBID_BUSY = 4,        /* the queue or a budget is full; try again when requests have ended */
  IBID_UNAVAILABLE = 5, /* the network or the disk failed; trying again may help */
  IBID_NO_MEMORY = 6,   /* an allocation failed, or a model does not fit */
  IBID_FAILED = 7,      /* the engine failed */
  IBID_CLOSED = 8,      /* the engine was closed while the request ran */
  IBID_FORKED = 9,      /* the engine belongs to the process that this one was forked from */
  IBID_END = 10,        /* no error: the answer has no more parts */
  IBID_PENDING = 11     /* no error: nothing came within the time */
};

/* The version of the library, as "0.1.0", and its ABI. Static. */
IBID_API const char* ibid_version(void);
IBID_API uint32_t ibid_abi_version(void);

/* ---- errors -------------------------------------------------------------------------------------------------------
 */

IBID_API ibid_code ibid_error_code(const ibid_error* error);
/* The sentence. Valid as long as the error. */
IBID_API const char* ibid_error_message(const ibid_error* error);
/* The option or field of the body at fault, as "temperature"; empty where there is none. Valid as long as the error. */
IBID_API const char* ibid_error_field(const ibid_error* error);
/* What the server would have answered, in the form of the API that was asked; empty where no request was refused. Valid
 * as long as the error. */
IBID_API const char* ibid_error_json(const ibid_error* error);
IBID_API void ibid_error_free(ibid_error* error); /* NULL: nothing */
IBID_API void ibid_free(char* text);              /* NULL: nothing */

/* ---- an engine ----------------------------------------------------------------------------------------------------
 */

/* Loads a model and starts its engine; takes as long as that, and fetches what is not there. `options` is a JSON object
 * whose members have the names of the flags of `ibid serve`, as {"model": "model.gguf", "ctx": 4096, "threads": 4,
 * "memory": "4G", "keep-packed": true}; those of sockets, keys and connections are refused. "{}": the default model.
 * With "log-file" each request is logged there. */
IBID_API ibid_code ibid_open(const char* options, ibid_engine** engine, ibid_error** error);

/* Ends all requests with IBID_CLOSED and frees the engine. No other call with this engine may run or follow; its
 * requests stay valid until they are freed. Not to be called from a callback: then it is IBID_INVALID and the engine
 * goes on. */
IBID_API ibid_code ibid_close(ibid_engine* engine);

/* ---- one call, one answer -----------------------------------------------------------------------------------------
 */

/* Asks and waits for the whole answer. `path` is a route of the server, as "/v1/chat/completions", with a query where
 * it takes one. `body` is the JSON of a POST; NULL is a GET, as of "/v1/models", "/props" or "/health". A body that
 * asks for a stream is IBID_INVALID: see ibid_submit(). */
IBID_API ibid_code ibid_call(ibid_engine* engine, const char* path, const char* body, size_t n_bytes, char** answer,
                             size_t* n_answer, ibid_error** error);

/* The same of the routes that are named in the comments; bodies are documented there (docs/users/api.md, apis.md). */
IBID_API ibid_code ibid_embed(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                              ibid_error** error); /* POST /v1/embeddings */
IBID_API ibid_code ibid_score(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                              ibid_error** error); /* POST /v1/score */
IBID_API ibid_code ibid_tokenize(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                                 ibid_error** error); /* POST /tokenize */
IBID_API ibid_code ibid_detokenize(ibid_engine* engine, const char* body, size_t n_bytes, char** answer,
                                   size_t* n_answer, ibid_error** error); /* POST /detokenize */
IBID_API ibid_code ibid_render(ibid_engine* engine, const char* body, size_t n_bytes, char** answer, size_t* n_answer,
                               ibid_error** error); /* POST /apply-template */
IBID_API ibid_code ibid_metrics(ibid_engine* engine, char** answer, size_t* n_answer,
                                ibid_error** error); /* GET /metrics: Prometheus's text, not JSON */

/* ---- requests under way -------------------------------------------------------------------------------------------
 */

/* What a request's callback receives: with IBID_OK a part of the answer, `n_bytes` at `text`; then once, and last,
 * IBID_END without text, or the code of an error with the sentence as `text`. `text` is valid during the call.
 *
 * It is called on a thread of the engine's own, one call at a time for all requests, in the order of each answer. The
 * engine computes meanwhile; other callbacks wait. It may call any function but ibid_close(), and may free its request.
 */
typedef void (*ibid_callback)(void* user, ibid_code code, const char* text, size_t n_bytes);

/* Hands a request to the engine and returns without waiting for its answer; reading the body, tokenizing and compiling
 * a grammar are done here. `path`, `body` and `n_bytes` as in ibid_call(). A prompt may be token ids: the body says so.
 *
 * The parts of the answer are: of a body with "stream": true the events, each a JSON text; else one, the whole JSON.
 * How many events carry a text depends on the time at which they are pulled; their sum does not.
 *
 * `callback` NULL: pull them with ibid_next(). A request that is refused is an error here, and there is none to free.
 */
IBID_API ibid_code ibid_submit(ibid_engine* engine, const char* path, const char* body, size_t n_bytes,
                               ibid_callback callback, void* user, ibid_request** request, ibid_error** error);

/* Changes the logits of the token after `answer`, `n_logits` of them (the vocabulary), in place; 0, or another number
 * to end the answer with an error. What it gets is valid during the call.
 *
 * It is called before each token is drawn, before grammars, penalties and truncation, and log-probabilities are of what
 * it leaves; of the tokens that speculation drafts too, as if they were right. As a function of its arguments alone it
 * keeps the promise that the same request gives the same bytes. One call at a time for a request, on the engine's
 * threads, which wait for it: it may call no function of the library. */
typedef int32_t (*ibid_logits_processor)(void* user, const int32_t* prompt, size_t n_prompt, const int32_t* answer,
                                         size_t n_answer, float* logits, size_t n_logits);

/* ibid_submit() with a logits processor, of all answers of the request; NULL: none. It is not called any more when
 * ibid_request_free() has returned. Beside a beam search it is refused. */
IBID_API ibid_code ibid_submit_with(ibid_engine* engine, const char* path, const char* body, size_t n_bytes,
                                    ibid_logits_processor processor, void* processor_user, ibid_callback callback,
                                    void* user, ibid_request** request, ibid_error** error);

/* The next part of the answer: IBID_OK with the part, IBID_END after the last, IBID_PENDING where none comes within
 * `timeout_ms` (0: do not wait; negative: without end), or what the request failed with. After IBID_END or an error
 * each further call returns the same. Of a request with a callback: IBID_INVALID. */
IBID_API ibid_code ibid_next(ibid_request* request, int64_t timeout_ms, char** text, size_t* n_bytes,
                             ibid_error** error);

/* Asks the engine to end the request; it ends soon. A stream ends with the finish reason "cancelled", an answer that is
 * no stream fails with IBID_UNAVAILABLE. */
IBID_API ibid_code ibid_cancel(ibid_request* request);

/* Frees the request, cancelled where it still runs. After it returns its callback does not run and is not called any
 * more, unless it is the callback that frees. NULL: nothing. */
IBID_API void ibid_request_free(ibid_request* request);

#ifdef __cplusplus
}
#endif

#endif /* IBID_H */
