#include <gtest/gtest.h>

#include "server/routes/page_files.h"

namespace ibid {
namespace {

TEST(PageResponse, ACodingIsTakenWhereItIsNamedAndNotRefused) {
  for (const char* takes : {"gzip", "GZip", "br, gzip", "br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip;q=0.001", "*",
                            " gzip ; q=1", "identity, *;q=0.5"})
    EXPECT_TRUE(accepts_coding(takes, "gzip")) << takes;
  for (const char* does_not : {"", "br", "gzip;q=0", "gzip;q=0.000", "gzip; Q=0", "*;q=0", "*, gzip;q=0", "gzipped",
                               "x-gzip", ",,;", "identity"})
    EXPECT_FALSE(accepts_coding(does_not, "gzip")) << does_not;
}

TEST(PageResponse, ATagIsFoundInAList) {
  for (const char* names : {"\"a\"", "W/\"a\"", "\"b\", \"a\"", "\"b\" ,W/\"a\"", "*"})
    EXPECT_TRUE(names_tag(names, "\"a\"")) << names;
  for (const char* does_not : {"", "a", "\"b\"", "\"A\"", "\"a", "W/", ","})
    EXPECT_FALSE(names_tag(does_not, "\"a\"")) << does_not;
}

TEST(PageResponse, EveryFileHasAVersionOfItsOwnAndIsAskedForByIt) {
  std::string_view page;
  for (const PageFile& file : page_files()) {
    EXPECT_EQ(file.version.size(), 16u) << file.path;
    if (file.path == "/") page = file.content;
  }
  for (const PageFile& file : page_files()) {
    if (file.path == "/") continue;
    const std::string address = "=\"" + std::string(file.path.substr(1)) + "?" + std::string(file.version) + "\"";
    EXPECT_NE(page.find(address), std::string_view::npos) << address;
  }
  EXPECT_EQ(page_files().size(), 4u) << "one page, one script, one style sheet, one picture";
}

}  // namespace
}  // namespace ibid
