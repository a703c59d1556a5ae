// ArrivingBody: an HTTP body type (Beast's Body) whose string takes memory as bytes arrive, so that a header's promise
// of a large body costs nothing, and which asks before it takes more. Until kUnsure bytes of a known length are there
// the string grows as it does anyway; then it takes all that is to come in one go, so that no more than kUnsure bytes
// are ever copied. Without a length it doubles.
#pragma once

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <functional>
#include <string>

namespace ibid {

struct ArrivingBody {
  static constexpr size_t kUnsure = 1 << 20;

  struct value_type {
    std::string text;
    // Asked before each piece, with the bytes that there are then; no: reading ends with no_memory.
    std::function<bool(size_t n)> may_hold;
  };

  class reader {  // by this name, and with this interface, Beast looks for it
   public:
    template <bool is_request, typename Fields>
    reader(boost::beast::http::header<is_request, Fields>& /*head*/, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>& length, boost::system::error_code& ec) {
      ec = {};
      length_ = length ? static_cast<size_t>(*length) : 0;  // at most the parser's body_limit
    }

    template <typename ConstBuffers>
    size_t put(const ConstBuffers& buffers, boost::system::error_code& ec) {
      ec = {};
      std::string& text = body_.text;
      const size_t before = text.size();
      for (const auto part : boost::beast::buffers_range_ref(buffers)) {
        const size_t after = text.size() + part.size();
        if (!body_.may_hold(after)) {
          ec = boost::asio::error::no_memory;
          return 0;
        }
        if (after > kUnsure && length_ > text.capacity()) text.reserve(length_);
        text.append(static_cast<const char*>(part.data()), part.size());
      }
      return text.size() - before;
    }

    void finish(boost::system::error_code& ec) { ec = {}; }

   private:
    value_type& body_;
    size_t length_ = 0;
  };
};

}  // namespace ibid
