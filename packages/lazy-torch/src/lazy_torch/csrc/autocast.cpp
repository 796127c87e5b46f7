// Automatic mixed precision: torch's own policies for every operation that it lists, on the dispatch key of this device.  What is in no list
// falls through (see recorder.cpp).  A cast weight is kept until the outermost region ends, as torch keeps it.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace lazytorch {

// Names that the lists of autocast_mode.h use unqualified.
using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;

// Without logits it takes probabilities, of which half a float's precision leaves too little near 0 and 1.
static at::Tensor no_binary_cross_entropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false, "binary_cross_entropy and BCELoss are unsafe in a region of autocast; use binary_cross_entropy_with_logits or BCEWithLogitsLoss, "
                     "which take the values before the sigmoid, or compute the loss in torch.autocast(\"lazy\", enabled=False)");
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
#undef LOWER
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FP32)
#undef FP32
#define FP32_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_DTYPE)
#undef FP32_DTYPE
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(PROMOTE)
#undef PROMOTE
  KERNEL_PRIVATEUSEONE(cat, promote)
  KERNEL_PRIVATEUSEONE(stack, promote)
  m.impl("binary_cross_entropy", &no_binary_cross_entropy);
}

}  // namespace lazytorch
