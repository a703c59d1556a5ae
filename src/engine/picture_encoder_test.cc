// Requests wait for their pictures in the order in which they came, and pictures that were shown lately are found.
#include "engine/picture_encoder.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"

namespace ibid {
namespace {

using testing::LoadedModel;

class Pictures : public ::testing::Test {
 protected:
  Pictures() {
    Result<ModelFile> file = ModelFile::open(source_dir() + "/tests/golden/qwen3vl_vision");
    EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
    file_ = std::make_shared<const ModelFile>(std::move(file).value());
    m_ = std::make_unique<LoadedModel>(file_);
    tower_ = Tower::load(file_, "digest", 256, *m_->stream).value();
    engine_ = Engine::create(*m_->model, nullptr, *m_->stream, {.step_tokens = 64, .max_sequences = 4}).value();
  }

  // A request that shows pictures; equal numbers are equal pictures.
  AdmittedRequest request(uint64_t id, std::vector<int> numbers, int32_t n = 1) {
    Request r;
    r.id = RequestId{id};
    r.n = n;
    r.max_tokens = 1;
    r.prompt = {TokenId{5}};
    r.to_encode = std::make_shared<std::vector<PictureToEncode>>();
    std::vector<PlacedPicture> placed;
    for (const int number : numbers) {
      PictureToEncode& p = r.to_encode->emplace_back();
      p.grid_rows = 4, p.grid_columns = 6;
      p.rows = std::make_shared<PictureRows>(tower_->rows_of(4, 6, sha256(std::to_string(number))).value());
      p.patches.assign(static_cast<size_t>(24 * tower_->config().patch_len()), 0.1f * static_cast<float>(number));
      placed.push_back({.first = static_cast<int32_t>(r.prompt.size()), .rows = p.rows});
      r.prompt.insert(r.prompt.end(), static_cast<size_t>(p.rows->n_cells()), TokenId{70});
    }
    r.pictures = std::make_shared<const PromptPictures>(std::move(placed));
    Result<AdmittedRequest> admitted = engine_->admit(std::move(r));
    EXPECT_TRUE(admitted.ok()) << (admitted ? "" : admitted.error().message);
    return *std::move(admitted);
  }

  // A piece at a time, until all are ready: the ids, in order.
  std::vector<uint64_t> run(PictureEncoder& encoder) {
    std::vector<uint64_t> ids;
    while (encoder.has_work()) {
      encoder.advance(0, [&](const AdmittedRequest& r, const Status& done) {
        EXPECT_TRUE(done.ok());
        ids.push_back(static_cast<uint64_t>(r->id));
        for (const PlacedPicture& p : r->pictures->all()) EXPECT_NE(p.rows->values, nullptr);
        ready_.push_back(r);
      });
    }
    return ids;
  }

  std::shared_ptr<const ModelFile> file_;
  std::unique_ptr<LoadedModel> m_;
  std::unique_ptr<Tower> tower_;
  std::unique_ptr<Engine> engine_;
  std::vector<AdmittedRequest> ready_;
};

TEST_F(Pictures, AreMadeInTheOrderOfTheirRequests) {
  PictureEncoder encoder(*tower_, *m_->stream, 1 << 20);
  encoder.add(request(1, {1, 2}));
  encoder.add(request(2, {2}, 3));
  encoder.add(request(3, {3}));
  EXPECT_EQ(encoder.n_sequences(), 5);
  EXPECT_EQ(encoder.stats().n_waiting, 4);
  EXPECT_EQ(run(encoder), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(encoder.stats().n_encoded, 3);
  EXPECT_EQ(encoder.stats().n_found, 1);
  EXPECT_EQ(encoder.stats().n_waiting, 0);
  EXPECT_EQ(encoder.n_sequences(), 0);
  const auto values = [&](size_t request, size_t picture) {
    return ready_[request]->pictures->all()[picture].rows->values;
  };
  EXPECT_EQ(values(0, 1), values(1, 0)) << "one memory for one picture";
  EXPECT_NE(*values(0, 0), *values(0, 1));
  EXPECT_NE(*values(0, 1), *values(2, 0));
}

TEST_F(Pictures, ACancelledRequestsWorkIsLeft) {
  PictureEncoder encoder(*tower_, *m_->stream, 1 << 20);
  encoder.add(request(1, {1}));
  encoder.add(request(2, {2}, 2));
  encoder.add(request(3, {3}));
  encoder.advance(0, [](const AdmittedRequest&, const Status&) {});  // the first one's picture is begun
  EXPECT_EQ(encoder.cancel(RequestId{1}), 1);
  EXPECT_EQ(encoder.cancel(RequestId{1}), 0);
  EXPECT_EQ(encoder.cancel(RequestId{2}), 2);
  EXPECT_EQ(run(encoder), (std::vector<uint64_t>{3}));
  PictureEncoder other(*tower_, *m_->stream, 1 << 20);
  other.add(request(5, {3}));
  run(other);
  const auto values = [&](size_t i) { return *ready_[i]->pictures->all().front().rows->values; };
  EXPECT_EQ(values(0), values(1)) << "its own picture's, not the cancelled one's";
  EXPECT_EQ(encoder.stats().n_encoded, 1);
  EXPECT_EQ(encoder.stats().n_waiting, 0);
  encoder.add(request(4, {4}));
  EXPECT_EQ(encoder.take_all().size(), 1u);
  EXPECT_FALSE(encoder.has_work());
}

TEST_F(Pictures, ThoseShownLongestAgoAreForgottenAndHeldOnesCount) {
  const int64_t one = 6 * tower_->config().row_len() * 4;  // bytes
  PictureEncoder encoder(*tower_, *m_->stream, 2 * one);
  encoder.add(request(1, {1, 2, 3}));
  run(encoder);
  EXPECT_EQ(encoder.stats().kept_bytes, 2 * one);
  encoder.add(request(2, {1}));  // gone
  run(encoder);
  EXPECT_EQ(encoder.stats().n_found, 0);
  encoder.add(request(3, {3}));
  run(encoder);
  EXPECT_EQ(encoder.stats().n_found, 1);
  EXPECT_TRUE(encoder.has_room());
  encoder.add(request(4, {4, 5, 6, 7}));
  run(encoder);
  EXPECT_FALSE(encoder.has_room()) << "requests hold the rows of pictures that were forgotten";
  ready_.clear();
  EXPECT_TRUE(encoder.has_room());
}

}  // namespace
}  // namespace ibid
