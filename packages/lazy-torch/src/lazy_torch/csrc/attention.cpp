// Which kernel scaled_dot_product_attention runs on the device: the one that it runs on the CPU.  Natively the CPU's fused kernel then does the work,
// which never holds all scores at once; compiled, the lowering in lazy_torch/mapping/fused_attention.py does.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>

namespace at::native {

static int64_t as_on_the_cpu(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double dropout, bool is_causal,
                             std::optional<double> scale, bool enable_gqa) {
  return at::_ops::_fused_sdp_choice::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), query, key, value, mask, dropout, is_causal, scale, enable_gqa);
}

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &as_on_the_cpu)

}  // namespace at::native
