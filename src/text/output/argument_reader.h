// ArgumentReader: converts the arguments of a call, in a model's dialect, to JSON as they arrive. Its output is always
// a prefix of one JSON object, the same for every slicing of the text.
#pragma once

#include <cstdint>
#include <string>

namespace ibid {

class ArgumentReader {
 public:
  enum class Dialect : uint8_t {
    kJson,    // {"k": "v"}; line ends and the like within strings are escaped
    kGemma,   // {k:<|"|>v<|"|>}
    kPython,  // (k="v", n=None)
  };
  enum class Verdict : uint8_t { kMore, kDone, kBad };

  explicit ArgumentReader(Dialect dialect = Dialect::kJson) : dialect_(dialect) {}
  // The next byte; the first is the opening bracket, and with the closing one it is done. Appends what is certain.
  Verdict feed(char c, std::string& out);
  size_t depth() const { return open_.size(); }
  bool expects_key() const { return at_ == At::kKey; }  // after a comma
  bool expects_colon() const { return at_ == At::kColon; }
  bool expects_value() const { return at_ == At::kValue; }  // after a colon, or a comma of an array

 private:
  enum class At : uint8_t { kBegin, kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd, kWord, kMark, kString };
  static constexpr size_t kMaxDepth = 128;
  static constexpr size_t kMaxWord = 400;  // of a number or a bare key

  Verdict begin_value(char c, std::string& out);
  Verdict begin_key(char c, std::string& out);
  Verdict open(char bracket, std::string& out);
  Verdict close(char bracket, std::string& out);
  Verdict end_word(char c, std::string& out);
  Verdict feed_mark(char c, std::string& out);
  Verdict feed_string(char c, std::string& out);
  void end_string(std::string& out);

  Dialect dialect_;
  At at_ = At::kBegin;
  bool is_key_ = false;   // what is being read
  std::string open_;      // the brackets
  std::string word_;      // a bare word, or a mark that has begun
  char quote_ = 0;        // of the string; '<': <|"|>
  uint8_t n_escape_ = 0;  // 0: none; 1: after a backslash; 2..5: hex digits of \u are missing
};

}  // namespace ibid
