#include "server/access/host_check.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

TEST(HostCheck, AllowsTheNamesOfLoopbackAndThoseGiven) {
  const HostCheck check("127.0.0.2", {"Box.Example", "[fd00::1]"}, false);
  for (const char* host : {"localhost", "LocalHost:8080", "localhost.:1", "127.0.0.1", "127.0.0.1:8080", "[::1]",
                           "[::1]:8080", "127.0.0.2:9", "box.example", "BOX.EXAMPLE.:80", "[fd00::1]:80", ""}) {
    EXPECT_TRUE(check.allows(host)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
                           "xlocalhost", "127.0.0.3", "[::2]", ":8080", "[", "]:", ".", "localhost:80:80", "[::1",
                           "evil.example:localhost", "localhost@evil.example"}) {
    EXPECT_FALSE(check.allows(host)) << host;
  }
}

TEST(HostCheck, LeavesAloneWhatKeysOrTheNetworkGuard) {
  EXPECT_FALSE(HostCheck("127.0.0.1", {}, false).allows("evil.example"));
  EXPECT_TRUE(HostCheck("127.0.0.1", {}, true).allows("evil.example"));
  EXPECT_TRUE(HostCheck("0.0.0.0", {}, false).allows("evil.example"));
  EXPECT_FALSE(HostCheck("0.0.0.0", {"box.example"}, false).allows("evil.example"));
  EXPECT_TRUE(HostCheck("0.0.0.0", {"box.example"}, false).allows("box.example"));
  const std::string_view unix_socket = "";
  EXPECT_TRUE(HostCheck(unix_socket, {}, false).allows("any.name"));
}

TEST(HostCheck, LoopbackIsAnAddressNotABeginning) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"127.evil.example", "0.0.0.0", "::", "10.0.0.1", ""})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace ibid
