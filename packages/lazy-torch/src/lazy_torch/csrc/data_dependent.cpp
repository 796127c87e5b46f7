// Operations that torch composes, or differentiates, by selecting elements by their value, so that a size depends on data: the derivative of a product looks
// for zeros, that of a fill by a tensor for the elements that were filled, a weighted mean of losses for what is not ignored.  Where that would happen, they are
// made of other operations whose sizes are known, as are those of their derivatives of every order, forward and backward; elsewhere they stay as they are.
#include <ATen/ATen.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

namespace lazytorch {

namespace {

using at::Tensor;
using torch::jit::Stack;

bool differentiable(const Tensor& t) {
  if (!t.defined() || !(t.is_floating_point() || t.is_complex())) return false;
  return (at::GradMode::is_enabled() && t.requires_grad()) || t._fw_grad(/*level=*/0).defined();
}

void as_torch_does(const c10::OperatorHandle& op, Stack* stack) { op.callBoxedForDispatchKey(c10::DispatchKey::Autograd, *stack); }

void give(const c10::OperatorHandle& op, Stack* stack, const Tensor& result) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->emplace_back(result);
}

// ---------------------------------------------------------------- products

// Along a dim, which is kept: one half times the other until a single element is left, so that a derivative is a product of all other elements and
// divides by none.
Tensor halved(Tensor x, int64_t dim) {
  if (x.size(dim) == 0) return x.sum(dim, /*keepdim=*/true) + 1;
  if (x.size(dim) == 1) return x.clone();
  Tensor odd;
  while (x.size(dim) > 1) {
    const auto parts = x.split(x.size(dim) / 2, dim);
    if (parts.size() > 2) odd = odd.defined() ? odd * parts[2] : parts[2];
    x = parts[0] * parts[1];
  }
  return odd.defined() ? x * odd : x;
}

void prod(const c10::OperatorHandle& op, Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto given = torch::jit::last(*stack, arguments.size());
  const bool whole = arguments.size() == 2;
  const Tensor self = given[0].toTensor();
  const auto dtype = given[arguments.size() - 1].toOptional<at::ScalarType>().value_or(self.scalar_type());
  if (!differentiable(self) || !(c10::isFloatingType(dtype) || c10::isComplexType(dtype))) return as_torch_does(op, stack);
  // Half-precision numbers are multiplied in single precision, as in the kernel.
  Tensor x = self.to(c10::isReducedFloatingType(dtype) ? at::kFloat : dtype);
  if (whole || x.dim() == 0) {
    if (!whole) at::maybe_wrap_dim(given[1].toInt(), 0);
    x = halved(x.reshape({-1}), 0).squeeze(0);
  } else {
    const int64_t dim = at::maybe_wrap_dim(given[1].toInt(), x.dim());
    x = halved(x, dim);
    if (!given[2].toBool()) x = x.squeeze(dim);
  }
  give(op, stack, x.to(dtype));
}

// ---------------------------------------------------------------- fills

bool filled_by_parts(const Tensor& self, const Tensor& value) {
  const bool alike = self.is_floating_point() || self.is_complex();
  return alike && differentiable(value) && value.dim() == 0 && at::canCast(value.scalar_type(), self.scalar_type());
}

Tensor fill(const Tensor& self, const Tensor& mask, const Tensor& value) { return at::where(mask, value.to(self.options()), self); }

void masked_fill(const c10::OperatorHandle& op, Stack* stack) {
  const auto given = torch::jit::last(*stack, 3);
  const Tensor self = given[0].toTensor(), mask = given[1].toTensor(), value = given[2].toTensor();
  if (!filled_by_parts(self, value) || mask.scalar_type() != at::kBool || mask.device() != self.device()) return as_torch_does(op, stack);
  const Tensor found = fill(self, mask, value);
  give(op, stack, op.schema().arguments()[0].alias_info() ? self.copy_(found) : found);
}

void index_fill(const c10::OperatorHandle& op, Stack* stack) {
  const auto given = torch::jit::last(*stack, 4);
  const Tensor self = given[0].toTensor(), index = given[2].toTensor(), value = given[3].toTensor();
  if (!filled_by_parts(self, value) || index.device() != self.device()) return as_torch_does(op, stack);
  const int64_t dim = at::maybe_wrap_dim(given[1].toInt(), self.dim());
  std::vector<int64_t> along(self.dim(), 1);
  if (self.dim()) along[dim] = self.size(dim);
  const Tensor places = at::zeros({self.dim() ? self.size(dim) : 1}, self.options().dtype(at::kBool));
  const Tensor found = fill(self, places.index_fill(0, index, true).view(along), value);
  give(op, stack, op.schema().arguments()[0].alias_info() ? self.copy_(found) : found);
}

// ---------------------------------------------------------------- losses

// With smoothed labels torch gathers the weights of the targets that are not ignored.
void cross_entropy(const c10::OperatorHandle& op, Stack* stack) {
  const auto given = torch::jit::last(*stack, 6);
  const Tensor self = given[0].toTensor(), target = given[1].toTensor();
  const int64_t ignored = given[4].toSymInt().expect_int();
  if (given[2].isNone() || given[3].toInt() != at::Reduction::Mean || given[5].toDouble() <= 0 || target.sizes() == self.sizes() || target.device() != self.device())
    return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  const Tensor weight = given[2].toTensor(), none = target == ignored;
  const Tensor sum = at::cross_entropy_loss(self, target, weight, at::Reduction::Sum, ignored, given[5].toDouble());
  give(op, stack, sum / weight.gather(0, target.masked_fill(none, 0).flatten()).masked_fill(none.flatten(), 0).sum());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("cross_entropy_loss", torch::CppFunction::makeFromBoxedFunction<&cross_entropy>()); }

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("cross_entropy_loss", torch::CppFunction::makeFromBoxedFunction<&cross_entropy>());
  m.impl("prod", torch::CppFunction::makeFromBoxedFunction<&prod>());
  m.impl("prod.dim_int", torch::CppFunction::makeFromBoxedFunction<&prod>());
  m.impl("masked_fill.Tensor", torch::CppFunction::makeFromBoxedFunction<&masked_fill>());
  m.impl("masked_fill_.Tensor", torch::CppFunction::makeFromBoxedFunction<&masked_fill>());
  m.impl("index_fill.int_Tensor", torch::CppFunction::makeFromBoxedFunction<&index_fill>());
  m.impl("index_fill_.int_Tensor", torch::CppFunction::makeFromBoxedFunction<&index_fill>());
}

}  // namespace lazytorch
