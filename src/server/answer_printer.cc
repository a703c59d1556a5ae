#include "server/answer_printer.h"

namespace ibid {

std::unique_ptr<AnswerPrinter> make_printer(ApiStyle style) { return make_openai_printer(style); }

const char* id_prefix_of(ApiStyle style) { return style == ApiStyle::kChat ? "chatcmpl-" : "cmpl-"; }

}  // namespace ibid
