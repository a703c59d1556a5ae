#include "server/observe/request_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/log.h"

namespace ibid {
namespace {

class Folder {
 public:
  Folder() { EXPECT_NE(mkdtemp(path_), nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const char* name) const { return std::string(path_) + "/" + name; }

 private:
  char path_[64] = "/tmp/ibid-logs-XXXXXX";
};

int n_lines(const std::string& path) {
  std::ifstream file(path);
  int n = 0;
  for (std::string line; std::getline(file, line);) ++n;
  return n;
}

TEST(RequestLog, GoesOnInANewFileWhenTheOldOneWasRotated) {
  const Folder folder;
  const std::string path = folder.file("log"), old = folder.file("log.1");
  const std::unique_ptr<RequestLog> log = RequestLog::open(path, false, true).value();
  log->say("One.");
  std::filesystem::rename(path, old);
  log->say("Two.");
  ASSERT_TRUE(log->reopen().ok());
  log->say("Three.");
  EXPECT_EQ(n_lines(old), 2);
  EXPECT_EQ(n_lines(path), 1);
  ASSERT_TRUE(log->reopen().ok());  // nothing was rotated: the file goes on
  log->say("Four.");
  EXPECT_EQ(n_lines(path), 2);
}

TEST(RequestLog, GoesOnInTheOldFileWhereNoNewOneCanBeOpened) {
  const Folder folder;
  const std::string path = folder.file("log"), old = folder.file("log.1");
  const std::unique_ptr<RequestLog> log = RequestLog::open(path, false, true).value();
  std::filesystem::rename(path, old);
  std::filesystem::create_directory(path);
  const Status status = log->reopen();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("cannot be opened"), std::string::npos) << status.error().message;
  EXPECT_TRUE(log->say("One."));
  EXPECT_EQ(n_lines(old), 1);
}

std::string all_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(RequestLog, EachLineHasItsTimeAndWarningsOfTheProcessReachIt) {
  const Folder folder;
  for (const bool json : {false, true}) {
    const std::string path = folder.file(json ? "json" : "text");
    const std::unique_ptr<RequestLog> log = RequestLog::open(path, json, true).value();
    {
      const LogTo to([&](LogLevel level, std::string_view sentence) {
        level == LogLevel::kWarning ? log->warn(sentence) : log->say(sentence);
      });
      log->say("One.");
      log_warn("Two\nlines.");
      log_info("Three.");
      log->say_end("Four.");
    }
    log_info("Five.");  // to standard error again, where it is not wanted
    std::string text = all_of(path);
    for (char& c : text) c = std::isdigit(static_cast<unsigned char>(c)) != 0 ? '0' : c;
    const std::string time = "0000-00-00T00:00:00.000Z";
    if (json) {
      const std::string begin = "{\"time\":\"" + time + "\",\"event\":\"server\",";
      EXPECT_EQ(text, begin + "\"message\":\"One.\"}\n" + begin +
                          "\"level\":\"warning\",\"message\":\"Two\\nlines.\"}\n" + begin +
                          "\"message\":\"Three.\"}\n" + begin + "\"level\":\"error\",\"message\":\"Four.\"}\n");
    } else {
      EXPECT_EQ(text, time + " One.\n" + time + " warning Two lines.\n" + time + " Three.\n" + time + " error Four.\n");
    }
  }
}

TEST(RequestLog, LosesNoLineWhileItIsReopened) {
  const Folder folder;
  const std::string path = folder.file("log");
  const std::unique_ptr<RequestLog> log = RequestLog::open(path, true, true).value();
  std::atomic<bool> over = false;
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      for (int k = 0; k < 500; ++k) EXPECT_TRUE(log->add({.request_id = "x", .route = "chat"}));
      over = true;
    });
  }
  int n_files = 0;
  while (!over) {
    std::filesystem::rename(path, folder.file(std::to_string(n_files++).c_str()));
    ASSERT_TRUE(log->reopen().ok());
  }
  for (std::thread& writer : writers) writer.join();
  int n = n_lines(path);
  for (int i = 0; i < n_files; ++i) n += n_lines(folder.file(std::to_string(i).c_str()));
  EXPECT_EQ(n, 1000);
}

TEST(RequestLog, OnStandardErrorHasNothingToReopen) {
  const std::unique_ptr<RequestLog> log = RequestLog::open("", false, true).value();
  EXPECT_TRUE(log->reopen().ok());
}

TEST(RequestLog, AMethodIsCut) {
  const std::string method(10'000, 'M');
  RequestLine line;
  line.method = method;
  for (const bool json : {true, false}) EXPECT_LT(format_request_line(line, json, 0).size(), 1000u);
}

}  // namespace
}  // namespace ibid
