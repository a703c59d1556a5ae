#include "server/request/picture_fetcher.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <future>

namespace ibid {
namespace {

namespace net = boost::asio;
using Fetched = std::shared_ptr<const FetchedPictures>;

TEST(PictureFetcher, AsksTheHostsThatAreNamedAlone) {
  const PictureFetcher fetcher({.hosts = {"images.example", "localhost:8000", "[::1]:80"}});
  for (const char* url : {"http://images.example/a.png", "https://IMAGES.example/a?b=c", "https://images.example:443/a",
                          "http://localhost:8000/", "http://[::1]/a"})
    EXPECT_TRUE(fetcher.check(url).ok()) << url;
  for (const char* url :
       {"http://images.example:8080/a.png", "http://images.example.evil/a", "http://an.images.example/a",
        "http://localhost/a", "https://localhost/a", "http://127.0.0.1:8000/a", "http://images.example@evil/a",
        "https://[::1]/a", "ftp://images.example/a", "http://", "x"})
    EXPECT_FALSE(fetcher.check(url).ok()) << url;
  EXPECT_FALSE(PictureFetcher({}).is_on());
}

TEST(PictureFetcher, RefusesWhatExceedsItsPlaces) {
  PictureFetcher fetcher({.hosts = {"localhost"}, .max_of_tenant = 0});
  Fetched got;
  fetcher.fetch("t", {"http://localhost/a"}, {}, [&got](Fetched fetched) { got = std::move(fetched); });
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->by_url.at("http://localhost/a").error().kind, ErrorKind::kExhausted);
}

// A host that takes the connection and says nothing.
struct SilentHost {
  net::io_context io;
  net::ip::tcp::acceptor acceptor{io, {net::ip::make_address("127.0.0.1"), 0}};
  std::string name = "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
};

TEST(PictureFetcher, EndsWithItsClientAndWithTheServer) {
  SilentHost host;
  const std::string url = "http://" + host.name + "/a";
  std::promise<Fetched> gone;
  PictureFetcher fetcher({.hosts = {host.name}, .timeout = 600});
  fetcher.fetch(
      "t", {url}, [] { return true; }, [&gone](Fetched fetched) { gone.set_value(std::move(fetched)); });
  EXPECT_FALSE(gone.get_future().get()->by_url.at(url).ok());
  for (int i = 0; i < 8; ++i) fetcher.fetch("t", {url}, {}, [](const Fetched&) {});
  fetcher.stop();
  bool is_called = false;
  fetcher.fetch("t", {url}, {}, [&is_called](const Fetched&) { is_called = true; });
  EXPECT_FALSE(is_called);
}

}  // namespace
}  // namespace ibid
