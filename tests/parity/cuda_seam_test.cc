#include <gtest/gtest.h>

#include "kernels/cuda/cuda_ops.h"

namespace ibid {
namespace {

TEST(CudaSeam, GivesAStreamOrASentenceThatSaysWhatWouldDo) {
  Result<Stream> stream = cuda::make_stream();
  if (stream) {
    EXPECT_TRUE(cuda::built());
    EXPECT_EQ(stream->device(), Device::kCuda);
    EXPECT_NE(stream->native(), nullptr);
    EXPECT_TRUE(stream->reserve_workspace(4096).ok());
    EXPECT_NE(stream->workspace(4096), nullptr);
  } else {
    EXPECT_NE(stream.error().message.find("run on the CPU"), std::string::npos) << stream.error().message;
    EXPECT_EQ(stream.error().where, "device");
  }
}

}  // namespace
}  // namespace ibid
