#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <map>
#include <tuple>

#include "kernels/cuda/cuda_ops.h"

namespace ibid::cuda {
namespace {

constexpr size_t kGemmWorkspace = size_t{32} << 20;
constexpr int64_t kPlannedRows = 256;  // algorithms are chosen for so many rows and used for any number

// cuBLASLt is loaded when the first CUDA stream is made: half a gigabyte that CPU runs must not pay for.
struct Lt {
#define IBID_LT(name) decltype(&cublasLt##name) name = nullptr
  IBID_LT(Create);
  IBID_LT(Matmul);
  IBID_LT(MatmulDescCreate);
  IBID_LT(MatmulDescDestroy);
  IBID_LT(MatmulDescSetAttribute);
  IBID_LT(MatrixLayoutCreate);
  IBID_LT(MatrixLayoutDestroy);
  IBID_LT(MatmulPreferenceCreate);
  IBID_LT(MatmulPreferenceDestroy);
  IBID_LT(MatmulPreferenceSetAttribute);
  IBID_LT(MatmulAlgoGetHeuristic);
#undef IBID_LT
  cublasLtHandle_t handle = nullptr;
  std::map<std::tuple<int64_t, int64_t, DType>, cublasLtMatmulAlgo_t> algorithms;

  bool load() {
    if (handle != nullptr) return true;
    void* library = dlopen("libcublasLt.so." IBID_CUBLAS_MAJOR, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    bool found = true;
    auto find = [&]<typename F>(F& f, const char* name) {
      f = reinterpret_cast<F>(dlsym(library, name));
      found = found && f != nullptr;
    };
#define IBID_LT(name) find(name, "cublasLt" #name)
    IBID_LT(Create);
    IBID_LT(Matmul);
    IBID_LT(MatmulDescCreate);
    IBID_LT(MatmulDescDestroy);
    IBID_LT(MatmulDescSetAttribute);
    IBID_LT(MatrixLayoutCreate);
    IBID_LT(MatrixLayoutDestroy);
    IBID_LT(MatmulPreferenceCreate);
    IBID_LT(MatmulPreferenceDestroy);
    IBID_LT(MatmulPreferenceSetAttribute);
    IBID_LT(MatmulAlgoGetHeuristic);
#undef IBID_LT
    return found && Create(&handle) == CUBLAS_STATUS_SUCCESS;
  }
};
Lt& lt() {
  static Lt instance;
  return instance;
}

void check(bool ok) { CHECK(ok, "a CUDA call failed"); }

// One block of 16 threads a row: thread i is lane i of the CPU's order, and the tree is the same.
__global__ void rms_norm_rows(float* out, int64_t out_stride, const float* x, int64_t x_stride, const float* weight,
                              int64_t n, float eps) {
  const float* row = x + blockIdx.x * x_stride;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < n; i += 16) sum = __fmaf_rn(row[i], row[i], sum);
  for (int step = 8; step > 0; step /= 2) sum = __fadd_rn(sum, __shfl_down_sync(0xffff, sum, step, 16));
  sum = __shfl_sync(0xffff, sum, 0, 16);
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(n)), eps)));
  for (int64_t i = threadIdx.x; i < n; i += 16) {
    out[blockIdx.x * out_stride + i] = __fmul_rn(__fmul_rn(row[i], scale), weight[i]);
  }
}

template <typename To>
__global__ void round_rows(To* to, const float* x, int64_t x_stride, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) to[blockIdx.x * n + i] = To(x[blockIdx.x * x_stride + i]);
}

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::kF16 ? CUDA_R_16F : dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::byte* allocate(size_t bytes) {
  void* p = nullptr;
  return cudaMalloc(&p, bytes) == cudaSuccess ? static_cast<std::byte*>(p) : nullptr;
}
void release(std::byte* p, size_t) { cudaFree(p); }

}  // namespace

bool built() { return true; }

Result<Stream> make_stream() {
  int n_devices = 0;
  if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
    return unavailable("no CUDA device answers; check the driver with nvidia-smi, or run on the CPU", "device");
  }
  if (!lt().load()) {
    return not_found("libcublasLt.so." IBID_CUBLAS_MAJOR " cannot be loaded; install the CUDA libraries, or run on the CPU",
                     "device");
  }
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    return exhausted("the CUDA device gives no stream", "device");
  }
  return Stream(Device::kCuda, stream, {allocate, release});
}

void rms_norm(Stream& s, const TensorView& out, const TensorView& x, const TensorView& weight, float eps) {
  if (x.dim[0] == 0) return;
  rms_norm_rows<<<static_cast<unsigned>(x.dim[0]), 16, 0, static_cast<cudaStream_t>(s.native())>>>(
      reinterpret_cast<float*>(out.data), out.row_stride_bytes / 4, reinterpret_cast<const float*>(x.data),
      x.row_stride_bytes / 4, reinterpret_cast<const float*>(weight.data), x.dim[1], eps);
  check(cudaGetLastError() == cudaSuccess);
}

size_t linear_workspace_bytes(int64_t n_rows, int64_t n_inputs) {
  return kGemmWorkspace + static_cast<size_t>(n_rows * n_inputs) * 2;
}

void linear(Stream& s, const TensorView& out, const TensorView& x, const TensorView& w) {
  const int64_t T = x.dim[0], K = x.dim[1], N = w.dim[0];
  if (T == 0) return;
  auto stream = static_cast<cudaStream_t>(s.native());
  std::byte* workspace = s.workspace(linear_workspace_bytes(T, K));
  const void* x_data = x.data;
  int64_t x_stride = x.row_stride_bytes / 4;
  if (w.dtype != DType::kF32) {
    std::byte* rounded = workspace + kGemmWorkspace;
    const auto* from = reinterpret_cast<const float*>(x.data);
    if (w.dtype == DType::kF16) {
      round_rows<<<static_cast<unsigned>(T), 256, 0, stream>>>(reinterpret_cast<__half*>(rounded), from, x_stride, K);
    } else {
      round_rows<<<static_cast<unsigned>(T), 256, 0, stream>>>(reinterpret_cast<__nv_bfloat16*>(rounded), from,
                                                               x_stride, K);
    }
    x_data = rounded;
    x_stride = K;
  }
  // cuBLASLt counts columns first: out^T[N, T] = (w^T)^T[N, K] * x^T[K, T].
  Lt& l = lt();
  cublasLtMatmulDesc_t product;
  check(l.MatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(l.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
        CUBLAS_STATUS_SUCCESS);
  auto layout = [&](cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
    cublasLtMatrixLayout_t m;
    check(l.MatrixLayoutCreate(&m, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), stride) ==
          CUBLAS_STATUS_SUCCESS);
    return m;
  };
  const cudaDataType_t type = data_type(w.dtype);
  const auto w_layout = layout(type, K, N, w.row_stride_bytes / traits(w.dtype).block_bytes);
  const auto x_layout = layout(type, K, T, x_stride);
  const auto out_layout = layout(CUDA_R_32F, N, T, out.row_stride_bytes / 4);
  auto [algorithm, is_new] = l.algorithms.try_emplace({N, K, w.dtype});
  if (is_new) {
    const auto planned_x = layout(type, K, kPlannedRows, K), planned_out = layout(CUDA_R_32F, N, kPlannedRows, N);
    cublasLtMatmulPreference_t preference;
    check(l.MatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    const uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    check(l.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                                         sizeof no_split) == CUBLAS_STATUS_SUCCESS);
    check(l.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kGemmWorkspace,
                                         sizeof kGemmWorkspace) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulHeuristicResult_t best;
    int n_found = 0;
    check(l.MatmulAlgoGetHeuristic(l.handle, product, w_layout, planned_x, planned_out, planned_out, preference, 1,
                                   &best, &n_found) == CUBLAS_STATUS_SUCCESS &&
          n_found == 1);
    algorithm->second = best.algo;
    l.MatmulPreferenceDestroy(preference);
    l.MatrixLayoutDestroy(planned_x);
    l.MatrixLayoutDestroy(planned_out);
  }
  const float one = 1.0f, none = 0.0f;
  check(l.Matmul(l.handle, product, &one, w.data, w_layout, x_data, x_layout, &none, out.data, out_layout, out.data,
                 out_layout, &algorithm->second, workspace, kGemmWorkspace, stream) == CUBLAS_STATUS_SUCCESS);
  l.MatmulDescDestroy(product);
  l.MatrixLayoutDestroy(w_layout);
  l.MatrixLayoutDestroy(x_layout);
  l.MatrixLayoutDestroy(out_layout);
}

}  // namespace ibid::cuda
