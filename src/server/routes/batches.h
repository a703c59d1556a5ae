// Batches: files of requests that are answered in the background (OpenAI's /v1/batches): a line of JSON each, answered
// into a file of answers and one of errors. A thread of its own, of low priority, hands lines to the FrontDoor as a
// client would, a few at a time, and writes each answer down when it has ended, in whatever order they end. Each
// tenant's oldest batch is worked on; those of several tenants line by line in turn, with equal shares of the lines
// that the engine has. A batch that is cancelled begins no further line. One that fails keeps the answers that it has.
//
// Nothing but the disk remembers what is done: a process that is killed goes on where the files end, and a line whose
// answer is written whole is not asked again. A line that cannot be read, or that is refused, is an error of its own.
//
//   DIR/batches/ID.json        what is known of a batch, renamed into place
//   DIR/batches/ID.out .err    the lines so far
//
// Safe from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "format/file_lock.h"
#include "server/routes/file_store.h"

namespace ibid {

class FrontDoor;

struct Batch {
  std::string id, tenant, endpoint, input_file, window, metadata = "null";  // metadata: JSON
  std::string status = "validating";
  std::string output_file, error_file;  // ids; empty: none yet, or none
  std::string error;                    // why it failed
  int64_t created = 0, begun = 0, finalizing = 0, ended = 0, cancelling = 0;
  int64_t n_total = 0, n_completed = 0, n_failed = 0;
  int64_t turn = 0;  // it goes after those of a lower one; not kept
  bool is_over() const { return status == "completed" || status == "failed" || status == "cancelled"; }
};

class Batches {
 public:
  static constexpr int kAtOnce = 16;         // lines that the engine has
  static constexpr int kMaxUnfinished = 64;  // batches of a tenant
  static constexpr size_t kMaxOpen = 16;     // batches that are worked on at once, each of another tenant
  static constexpr int kLinesOfTurn = 256;   // of one, where more tenants than kMaxOpen have one

  // One process at a time: nothing in the folder is read or changed before its lock is held. `max_bytes`: of all files;
  // `max_line`: bytes of a line.
  static Result<std::unique_ptr<Batches>> open(const std::string& folder, int64_t max_bytes, size_t max_line);
  ~Batches();

  // From now on; `front` outlives the next stop(), after which lines that were under way are as if never begun.
  void start(FrontDoor& front);
  void stop();

  FileStore& files() { return *files_; }
  Result<Batch> create(Batch batch);  // its id, status and times are made here
  std::optional<Batch> find(std::string_view id, std::string_view tenant) const;
  std::vector<Batch> list(std::string_view tenant) const;  // the newest first
  // Lines under way end, no others begin. None: there is no such batch.
  std::optional<Batch> cancel(std::string_view id, std::string_view tenant);

 private:
  struct Loading;
  struct Work;
  using Works = std::vector<std::unique_ptr<Work>>;
  Batches(std::string folder, size_t max_line, FileLock lock, std::unique_ptr<FileStore> files);
  void scan();
  void wake();
  // Changes a batch and writes it down.
  Batch change(const std::string& id, const std::function<void(Batch&)>& change);
  // What there is of its lines becomes its files. `why`: it failed; empty: it did not.
  void conclude(const std::string& id, const std::string& why);
  void finalize(const std::string& id);
  bool keep_lines(const Batch& batch, const std::string& file, const char* name);

  // The thread's (batch_work.cc).
  void run();
  bool goes_on() const;
  void look_again();
  void rest(bool is_idle);
  bool open_more(Works& works);
  std::unique_ptr<Work> open_work(const std::string& id);
  bool turn(Work& work, size_t share, bool is_waited_for);
  bool count(const Work& work);
  bool ask_next(Work& work);
  bool ask(Work& work, int64_t number, const std::string& custom_id, const std::string& body);
  bool collect(Work& work);
  void abandon(Work& work);
  std::string path_of(const std::string& id) const { return folder_ + "/" + id; }

  const std::string folder_;
  const size_t max_line_;
  const FileLock lock_;
  const std::unique_ptr<FileStore> files_;
  FrontDoor* front_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ById<Batch> batches_;
  bool is_stopping_ = false;
  bool is_awake_ = false;      // a batch, an answer or a model has news
  bool has_changes_ = false;   // batches have come, gone, or been cancelled since they were looked through
  bool has_unopened_ = false;  // the thread's: a tenant's batch waits for one of the others to make room
  std::thread thread_;
};

std::string batch_json(const Batch& batch);

}  // namespace ibid
