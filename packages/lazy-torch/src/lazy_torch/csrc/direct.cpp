// The operations that programs call most as typed kernels: run immediately without a stack of boxed arguments, which for small tensors takes as long
// as the kernel itself.  Whatever stands in the way is left to the boxed kernel, whose results are the same.
#include "operation.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/_unsafe_view_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/select_backward_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/slice_backward_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/where_ops.h>

namespace lazytorch {

namespace {

// An argument of type A: whether the CPU's kernel can be given it at once, and what it is given.  What is no tensor is handed on.
template <class A>
struct Given {
  using Host = A;
  static bool ready(const std::remove_reference_t<A>&, bool) { return true; }
  template <class F>
  static void each(const std::remove_reference_t<A>&, F&&) {}
  static Host host(std::remove_reference_t<A>& a, Held&) { return a; }
  static A pass(std::remove_reference_t<A>& h) { return static_cast<A&&>(h); }
};

template <class A>
struct GivenTensor {
  using Host = at::Tensor;
  static bool ready(const at::Tensor& t, bool write) { return at_hand(t, write); }
  template <class F>
  static void each(const at::Tensor& t, F&& f) {
    if (t.defined()) f(t);
  }
  static Host host(const at::Tensor& t, Held& held) { return on_host(t, held); }
  static A pass(Host& h) { return h; }
};
template <>
struct Given<const at::Tensor&> : GivenTensor<const at::Tensor&> {};
template <>
struct Given<at::Tensor&> : GivenTensor<at::Tensor&> {};

template <>
struct Given<const std::optional<at::Tensor>&> {
  using Host = std::optional<at::Tensor>;
  static bool ready(const std::optional<at::Tensor>& t, bool write) { return !t || at_hand(*t, write); }
  template <class F>
  static void each(const std::optional<at::Tensor>& t, F&& f) {
    if (t && t->defined()) f(*t);
  }
  static Host host(const std::optional<at::Tensor>& t, Held& held) { return t ? Host(on_host(*t, held)) : Host(); }
  static const Host& pass(Host& h) { return h; }
};

template <class List>
struct GivenList {
  using Host = c10::SmallVector<at::Tensor, 8>;
  static bool ready(const List& list, bool write) {
    for (const at::Tensor& t : list)
      if (!at_hand(t, write)) return false;
    return true;
  }
  template <class F>
  static void each(const List& list, F&& f) {
    for (const at::Tensor& t : list)
      if (t.defined()) f(t);
  }
  static Host host(const List& list, Held& held) {
    Host made;
    made.reserve(list.size());
    for (const at::Tensor& t : list) made.push_back(on_host(t, held));
    return made;
  }
};
template <>
struct Given<at::TensorList> : GivenList<at::TensorList> {
  static at::TensorList pass(Host& h) { return h; }
};
template <>
struct Given<const at::ITensorListRef&> : GivenList<at::ITensorListRef> {
  static at::ITensorListRef pass(Host& h) { return at::TensorList(h); }
};

at::Tensor adopted(at::Tensor&& t, const Held& held) { return adopt(std::move(t), held); }
std::vector<at::Tensor> adopted(std::vector<at::Tensor>&& list, const Held& held) {
  for (at::Tensor& t : list) t = adopt(std::move(t), held);
  return std::move(list);
}
template <class... T>
std::tuple<T...> adopted(std::tuple<T...>&& parts, const Held& held) {
  return std::apply([&](auto&... t) { return std::tuple<T...>(adopt(std::move(t), held)...); }, parts);
}

template <class O, class Schema = typename O::schema>
struct Direct;

template <class O, class R, class... A>
struct Direct<O, R(A...)> {
  static inline const Op* op = nullptr;
  static inline c10::BoxedKernel boxed;
  using Hosts = std::tuple<typename Given<A>::Host...>;

  static R call(c10::DispatchKeySet keys, A... a) {
    if (C10_LIKELY(runs_directly())) {
      one_thread();
      Held held;
      std::optional<Hosts> hosts;
      prepare(hosts, held, std::index_sequence_for<A...>(), a...);
      if (C10_LIKELY(hosts.has_value())) {
        try {
          return run(*hosts, held, std::index_sequence_for<A...>(), a...);
        } catch (const c10::NotImplementedError&) {  // the boxed kernel meets it once more, and knows what to do
        }
      }
    }
    return c10::impl::BoxedKernelWrapper<R(A...)>::call(boxed, op->handle, keys, std::forward<A>(a)...);
  }

  template <size_t... I>
  static void prepare(std::optional<Hosts>& hosts, Held& held, std::index_sequence<I...>, std::remove_reference_t<A>&... a) {
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.in_barrier || !(Given<A>::ready(a, op->args[I].write) && ...)) return;
    const auto writable = [](const at::Tensor& t) { make_writable(buffer_of(t), true); };
    ((op->args[I].write ? Given<A>::each(a, writable) : void()), ...);
    hosts.emplace(Given<A>::host(a, held)...);
    note_immediate(*op);
    s.direct_operations++;
  }

  template <size_t... I>
  static R run(Hosts& hosts, const Held& held, std::index_sequence<I...>, std::remove_reference_t<A>&... a) {
    at::AutoDispatchBelowADInplaceOrView guard;
    constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    if constexpr (std::is_void_v<R>) {
      O::redispatch(cpu, Given<A>::pass(std::get<I>(hosts))...);
    } else if constexpr (std::is_reference_v<R>) {  // what was written to
      O::redispatch(cpu, Given<A>::pass(std::get<I>(hosts))...);
      return std::get<0>(std::tie(a...));
    } else {
      return adopted(O::redispatch(cpu, Given<A>::pass(std::get<I>(hosts))...), held);
    }
  }
};

template <class O>
std::optional<c10::KernelFunction> made(Op& op, const c10::BoxedKernel& boxed) {
  TORCH_INTERNAL_ASSERT(op.on_cpu && !op.own && !op.seeded && op.generator < 0 && !op.cpu_indices, "lazy: no direct kernel can run ", op.name);
  for (const ArgSpec& arg : op.args) TORCH_INTERNAL_ASSERT(!arg.write_only, "lazy: no direct kernel can run ", op.name);
  Direct<O>::op = &op;
  Direct<O>::boxed = boxed;
  return c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(Direct<O>::call));
}

using Maker = std::optional<c10::KernelFunction> (*)(Op&, const c10::BoxedKernel&);

template <class... O>
std::unordered_map<std::string, Maker> by_name() {
  const auto name = [](const char* base, const char* overload) { return std::string(base + 6) + (*overload ? "." : "") + overload; };  // after "aten::"
  return {{name(O::name, O::overload_name), &made<O>}...};
}

namespace ops = at::_ops;
const std::unordered_map<std::string, Maker> kDirect = by_name<
    // elementwise
    ops::abs, ops::add_Scalar, ops::add_Tensor, ops::add__Tensor, ops::addcdiv, ops::addcdiv_, ops::addcmul, ops::addcmul_, ops::bitwise_and_Tensor,
    ops::bitwise_not, ops::bitwise_or_Tensor, ops::clamp, ops::clamp_min, ops::clone, ops::cos, ops::div_Scalar, ops::div_Tensor, ops::div__Tensor,
    ops::eq_Scalar, ops::eq_Tensor, ops::exp, ops::ge_Scalar, ops::ge_Tensor, ops::gelu, ops::gelu_backward, ops::gt_Scalar, ops::gt_Tensor,
    ops::le_Scalar, ops::le_Tensor, ops::lerp__Scalar, ops::log, ops::logical_and, ops::logical_not, ops::logical_or, ops::lt_Scalar, ops::lt_Tensor,
    ops::masked_fill_Scalar, ops::maximum, ops::minimum, ops::mul_Scalar, ops::mul_Tensor, ops::mul__Scalar, ops::mul__Tensor,
    ops::native_dropout_backward, ops::ne_Scalar, ops::ne_Tensor, ops::neg, ops::pow_Tensor_Scalar, ops::reciprocal, ops::relu, ops::relu_,
    ops::rsqrt, ops::rsub_Scalar, ops::sigmoid, ops::sigmoid_backward, ops::silu, ops::silu_backward, ops::sin, ops::sqrt, ops::sub_Scalar,
    ops::sub_Tensor, ops::sub__Tensor, ops::tanh, ops::tanh_backward, ops::threshold_backward, ops::where_self,
    // products, convolutions and pooling
    ops::addmm, ops::baddbmm, ops::bmm, ops::convolution, ops::convolution_backward, ops::dot, ops::max_pool2d_with_indices,
    ops::max_pool2d_with_indices_backward, ops::mm,
    // reductions, normalisation and losses
    ops::_log_softmax, ops::_log_softmax_backward_data, ops::_softmax, ops::_softmax_backward_data, ops::all, ops::any, ops::any_dim, ops::argmax,
    ops::cumsum, ops::max, ops::mean, ops::mean_dim, ops::mse_loss, ops::mse_loss_backward, ops::native_batch_norm, ops::native_batch_norm_backward,
    ops::native_layer_norm, ops::native_layer_norm_backward, ops::nll_loss_backward, ops::nll_loss_forward, ops::sum, ops::sum_dim_IntList,
    // parts
    ops::_unsafe_view, ops::cat, ops::embedding, ops::embedding_dense_backward, ops::gather, ops::select_backward, ops::slice_backward,
    // optimizers
    ops::_foreach_add__List, ops::_foreach_add__Scalar, ops::_foreach_addcdiv__Scalar, ops::_foreach_addcdiv__ScalarList,
    ops::_foreach_addcmul__Scalar, ops::_foreach_div__ScalarList, ops::_foreach_lerp__Scalar, ops::_foreach_mul__Scalar, ops::_foreach_sqrt>();

}  // namespace

std::vector<std::string> direct_names() {
  std::vector<std::string> names;
  for (auto& [name, maker] : kDirect) names.push_back(name);
  return names;
}

std::optional<c10::KernelFunction> direct_kernel(Op& op, const c10::BoxedKernel& boxed) {
  const auto found = kDirect.find(op.name);
  return found == kDirect.end() ? std::nullopt : found->second(op, boxed);
}

}  // namespace lazytorch
