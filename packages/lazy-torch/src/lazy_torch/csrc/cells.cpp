// Native kernels of the fused LSTM and GRU cells, which torch picks for devices like this one and has none of for the CPU.  The workspace is laid out as in
// lazy_torch/mapping/rnn.py: the activated gates side by side.
#include "operation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

namespace lazytorch {

namespace {

at::Tensor tensor(const IValue& v) { return v.isTensor() ? v.toTensor() : at::Tensor(); }
at::Tensor biased(const at::Tensor& x, const at::Tensor& bias) { return bias.defined() ? x + bias : x; }

void leave(Stack& stack, IValue* a, std::initializer_list<at::Tensor> results) {
  std::vector<at::Tensor> held(results);
  stack.resize(a - stack.data());
  for (auto& r : held) stack.emplace_back(std::move(r));
}

at::Tensor through_sigmoid(const at::Tensor& g, const at::Tensor& y) { return g * ((1 - y) * y); }

void lstm(Stack& stack, IValue* a) {
  const at::Tensor cx = tensor(a[2]);
  const auto gates = (biased(tensor(a[0]), tensor(a[3])) + biased(tensor(a[1]), tensor(a[4]))).chunk(4, 1);
  const at::Tensor i = at::sigmoid(gates[0]), f = at::sigmoid(gates[1]), c = at::tanh(gates[2]), o = at::sigmoid(gates[3]);
  const at::Tensor cy = f * cx + i * c;
  leave(stack, a, {o * at::tanh(cy), cy, at::cat(std::vector<at::Tensor>{i, f, c, o}, 1)});
}

void lstm_backward(Stack& stack, IValue* a) {
  const at::Tensor grad_cy = tensor(a[1]), cx = tensor(a[2]), cy = tensor(a[3]);
  at::Tensor grad_hy = tensor(a[0]);
  if (!grad_hy.defined() && !grad_cy.defined()) return leave(stack, a, {at::Tensor(), at::Tensor(), at::Tensor()});
  if (!grad_hy.defined()) grad_hy = at::zeros_like(cx);
  const auto gates = tensor(a[4]).chunk(4, 1);
  const at::Tensor &i = gates[0], &f = gates[1], &c = gates[2], &o = gates[3], t = at::tanh(cy);
  at::Tensor gc = grad_hy * o * (1 - t * t);
  if (grad_cy.defined()) gc = gc + grad_cy;
  const at::Tensor grads =
      at::cat(std::vector<at::Tensor>{through_sigmoid(gc * c, i), through_sigmoid(gc * cx, f), gc * i * (1 - c * c), through_sigmoid(grad_hy * t, o)}, 1);
  leave(stack, a, {grads, gc * f, a[5].toBool() ? grads.sum(0) : at::Tensor()});
}

void gru(Stack& stack, IValue* a) {
  const at::Tensor hx = tensor(a[2]);
  const auto in = biased(tensor(a[0]), tensor(a[3])).chunk(3, 1), hidden = biased(tensor(a[1]), tensor(a[4])).chunk(3, 1);
  const at::Tensor reset = at::sigmoid(in[0] + hidden[0]), keep = at::sigmoid(in[1] + hidden[1]), fresh = at::tanh(in[2] + reset * hidden[2]);
  leave(stack, a, {fresh + keep * (hx - fresh), at::cat(std::vector<at::Tensor>{reset, keep, fresh, hx, hidden[2]}, 1)});
}

void gru_backward(Stack& stack, IValue* a) {
  const at::Tensor grad = tensor(a[0]);
  const auto saved = tensor(a[1]).chunk(5, 1);
  const at::Tensor &reset = saved[0], &keep = saved[1], &fresh = saved[2], &hx = saved[3], &hidden = saved[4];
  const at::Tensor g_keep = through_sigmoid(grad * (hx - fresh), keep), g_fresh = grad * (1 - keep) * (1 - fresh * fresh);
  const at::Tensor g_reset = through_sigmoid(g_fresh * hidden, reset);
  const at::Tensor in = at::cat(std::vector<at::Tensor>{g_reset, g_keep, g_fresh}, 1), out = at::cat(std::vector<at::Tensor>{g_reset, g_keep, g_fresh * reset}, 1);
  const bool biases = a[2].toBool();
  leave(stack, a, {in, out, grad * keep, biases ? in.sum(0) : at::Tensor(), biases ? out.sum(0) : at::Tensor()});
}

}  // namespace

void (*own_kernel(const std::string& name))(Stack&, IValue*) {
  if (name == "_thnn_fused_lstm_cell") return lstm;
  if (name == "_thnn_fused_lstm_cell_backward_impl") return lstm_backward;
  if (name == "_thnn_fused_gru_cell") return gru;
  if (name == "_thnn_fused_gru_cell_backward") return gru_backward;
  return nullptr;
}

}  // namespace lazytorch
