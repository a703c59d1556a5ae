#include "server/observe/otlp.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

TEST(TraceParent, IsReadByTheSpecification) {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736", span = "00f067aa0ba902b7";
  const auto read = parse_trace_parent("00-" + trace + "-" + span + "-01");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->trace_id, trace);
  EXPECT_EQ(read->span_id, span);
  EXPECT_TRUE(read->is_sampled);
  EXPECT_FALSE(parse_trace_parent("00-" + trace + "-" + span + "-02")->is_sampled);
  EXPECT_TRUE(parse_trace_parent("00-" + trace + "-" + span + "-ff")->is_sampled);
  EXPECT_TRUE(parse_trace_parent("cc-" + trace + "-" + span + "-01-what-comes-later"));
  for (const std::string& wrong :
       {std::string(), "00-" + trace + "-" + span, "00-" + trace + "-" + span + "-01-more",
        "ff-" + trace + "-" + span + "-01", "00-" + std::string(32, '0') + "-" + span + "-01",
        "00-" + trace + "-" + std::string(16, '0') + "-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01",
        "00_" + trace + "-" + span + "-01", "cc-" + trace + "-" + span + "-01more", std::string(55, '-'),
        std::string(3000, 'a')})
    EXPECT_FALSE(parse_trace_parent(wrong)) << wrong;
}

TEST(SpanSender, RefusesWhatIsNoUrl) {
  EXPECT_FALSE(SpanSender::create("localhost:4318").ok());
  EXPECT_FALSE(SpanSender::create("ftp://localhost/").ok());
}

// Nobody listens there.
TEST(SpanSender, DropsAndCountsWhatFindsNoPlace) {
  auto sender = SpanSender::create("http://127.0.0.1:1/").value();
  for (size_t i = 0; i < 3 * SpanSender::kMaxQueue; ++i) sender->add({.name = "x"});
  EXPECT_GE(sender->n_dropped(), static_cast<int64_t>(SpanSender::kMaxQueue));
  EXPECT_EQ(sender->n_sent(), 0);
}

}  // namespace
}  // namespace ibid
