// Our own declarations of cuBLASLt held against its header: every value, place and type of them.
#include <cublasLt.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/cublaslt/cublaslt_abi.h"

namespace abi = quire::kernels::cuda::cublaslt;

static_assert(abi::kHeaderVersion / 10'000 == CUBLAS_VER_MAJOR);
static_assert(abi::kSuccess == CUBLAS_STATUS_SUCCESS &&
              abi::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(abi::kFloat32 == CUDA_R_32F && abi::kBFloat16 == CUDA_R_16BF &&
              abi::kFloat8 == CUDA_R_8F_E4M3);
static_assert(abi::kComputeFloat32 == CUBLAS_COMPUTE_32F && abi::kTranspose == CUBLAS_OP_T);
static_assert(abi::kDescTransposeA == CUBLASLT_MATMUL_DESC_TRANSA &&
              abi::kDescEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              abi::kDescBias == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(abi::kPreferenceWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              abi::kPreferenceAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              abi::kPreferenceAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              abi::kPreferenceAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              abi::kPreferenceAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(abi::kEpilogueNone == CUBLASLT_EPILOGUE_DEFAULT &&
              abi::kEpilogueRelu == CUBLASLT_EPILOGUE_RELU &&
              abi::kEpilogueBias == CUBLASLT_EPILOGUE_BIAS &&
              (abi::kEpilogueRelu | abi::kEpilogueBias) == CUBLASLT_EPILOGUE_RELU_BIAS);
static_assert(sizeof(cublasOperation_t) == sizeof(abi::kTranspose) &&
              sizeof(cublasLtEpilogue_t) == sizeof(abi::kEpilogueNone) &&
              sizeof(cublasStatus_t) == sizeof(abi::Code) &&
              sizeof(cudaDataType_t) == sizeof(abi::DataType));
static_assert(sizeof(abi::Algo) == sizeof(cublasLtMatmulAlgo_t));

#define SAME_PLACE(ours, theirs) \
  static_assert(offsetof(abi::Heuristic, ours) == offsetof(cublasLtMatmulHeuristicResult_t, theirs))
static_assert(sizeof(abi::Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
SAME_PLACE(algo, algo);
SAME_PLACE(workspace_bytes, workspaceSize);
SAME_PLACE(state, state);
SAME_PLACE(waves, wavesCount);
SAME_PLACE(reserved, reserved);

// Pointers to opaque things and enumerations, which go through registers as ours do.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
struct SameCall<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<sizeof...(Ours) == sizeof...(Theirs) &&
                         sizeof(OurResult) == sizeof(TheirResult) &&
                         ((sizeof(Ours) == sizeof(Theirs) &&
                           std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...)> {};
#define SAME_CALL(ours, theirs) \
  static_assert(SameCall<decltype(abi::Functions::ours), decltype(&theirs)>::value)
SAME_CALL(version, cublasLtGetVersion);
SAME_CALL(status_string, cublasLtGetStatusString);
SAME_CALL(create, cublasLtCreate);
SAME_CALL(destroy, cublasLtDestroy);
SAME_CALL(desc_create, cublasLtMatmulDescCreate);
SAME_CALL(desc_destroy, cublasLtMatmulDescDestroy);
SAME_CALL(desc_set, cublasLtMatmulDescSetAttribute);
SAME_CALL(layout_create, cublasLtMatrixLayoutCreate);
SAME_CALL(layout_destroy, cublasLtMatrixLayoutDestroy);
SAME_CALL(preference_create, cublasLtMatmulPreferenceCreate);
SAME_CALL(preference_destroy, cublasLtMatmulPreferenceDestroy);
SAME_CALL(preference_set, cublasLtMatmulPreferenceSetAttribute);
SAME_CALL(heuristic, cublasLtMatmulAlgoGetHeuristic);
SAME_CALL(matmul, cublasLtMatmul);
