/* Answers a prompt twice with the C library: as one JSON text, and as a stream.
 *
 *   cc complete.c -libid -o complete && ./complete default "Why is the sky blue?"
 */
#include <ibid.h>
#include <stdio.h>
#include <string.h>

/* Prints the sentence of an error, frees it, and returns the program's exit code. */
static int fail(ibid_error* error) {
  fprintf(stderr, "error: %s\n", ibid_error_message(error));
  ibid_error_free(error);
  return 1;
}

static int answer(ibid_engine* engine, const char* body) {
  ibid_error* error = NULL;
  char* text = NULL;
  if (ibid_call(engine, "/v1/chat/completions", body, strlen(body), &text, NULL, &error) != IBID_OK) return fail(error);
  printf("%s\n", text);
  ibid_free(text);
  return 0;
}

static int stream(ibid_engine* engine, const char* body) {
  ibid_error* error = NULL;
  ibid_request* request = NULL;
  if (ibid_submit(engine, "/v1/chat/completions", body, strlen(body), NULL, NULL, &request, &error) != IBID_OK)
    return fail(error);
  ibid_code code;
  char* event = NULL;
  while ((code = ibid_next(request, -1, &event, NULL, &error)) == IBID_OK) {
    printf("%s\n", event);
    ibid_free(event);
  }
  ibid_request_free(request);
  return code == IBID_END ? 0 : fail(error);
}

int main(int argc, char** argv) {
  if (argc != 3 || strpbrk(argv[1], "\"\\") || strpbrk(argv[2], "\"\\")) {
    fprintf(stderr, "usage: complete MODEL PROMPT (without quotes and backslashes)\n");
    return 2;
  }
  char options[4096], body[8192];
  snprintf(options, sizeof options, "{\"model\": \"%s\", \"ctx\": 2048}", argv[1]);
  ibid_engine* engine = NULL;
  ibid_error* error = NULL;
  if (ibid_open(options, &engine, &error) != IBID_OK) return fail(error);

  const char* form =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"max_tokens\": 64, "
      "\"temperature\": 0, \"stream\": %s}";
  snprintf(body, sizeof body, form, argv[2], "false");
  int failed = answer(engine, body);
  snprintf(body, sizeof body, form, argv[2], "true");
  if (!failed) failed = stream(engine, body);
  ibid_close(engine);
  return failed;
}
