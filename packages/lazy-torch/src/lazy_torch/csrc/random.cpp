// Random numbers in native execution: Philox4x32-10 with the core's streams, and from words to numbers as the core's lowerings do it.
//
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  `lazy_core.random` says how words lie and how a draw advances the
// counter; the two are held equal by a test.
#include "operation.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/Parallel.h>

#include <functional>

namespace lazytorch {

namespace {

using Words = std::vector<uint32_t>;

// At least `count` words: word w of block i stands at w * blocks + i.
Words draw_words(uint64_t seed, uint64_t& counter, int64_t count) {
  const int64_t blocks = count ? std::max<int64_t>((count + 3) / 4, 1) : 0;
  Words out(4 * blocks);
  const uint64_t start = counter;
  at::parallel_for(0, blocks, 4096, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
      const uint64_t place = start + i;
      uint32_t a = place, b = place >> 32, c = 0, d = 0, k0 = seed, k1 = seed >> 32;
      for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * a, p1 = (uint64_t)0xCD9E8D57u * c;
        const uint32_t next_a = (uint32_t)(p1 >> 32) ^ b ^ k0, next_c = (uint32_t)(p0 >> 32) ^ d ^ k1;
        b = (uint32_t)p1, d = (uint32_t)p0, a = next_a, c = next_c;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
      }
      out[i] = a, out[blocks + i] = b, out[2 * blocks + i] = c, out[3 * blocks + i] = d;
    }
  });
  counter += blocks;
  return out;
}

// The bits of n 64-bit integers: the high words first, then the low ones.
uint64_t wide(const Words& words, int64_t n, int64_t i) { return (uint64_t)words[i] << 32 | words[n + i]; }

// Uniform in [0, 1), in C order, of dtype float or double.
at::Tensor unit(at::IntArrayRef sizes, bool as_double, uint64_t seed, uint64_t& counter) {
  at::Tensor made = at::empty(sizes, at::TensorOptions(as_double ? at::kDouble : at::kFloat));
  const int64_t n = made.numel();
  if (as_double) {
    const Words words = draw_words(seed, counter, 2 * n);
    double* p = made.mutable_data_ptr<double>();
    for (int64_t i = 0; i < n; i++) p[i] = (double)(int64_t)(wide(words, n, i) >> 11) * 0x1p-53;
  } else {
    const Words words = draw_words(seed, counter, n);
    float* p = made.mutable_data_ptr<float>();
    for (int64_t i = 0; i < n; i++) p[i] = (float)(int32_t)(words[i] >> 8) * 0x1p-24f;
  }
  return made;
}

// Standard normal by inversion, of dtype float or double.
at::Tensor gauss(at::IntArrayRef sizes, bool as_double, uint64_t seed, uint64_t& counter) {
  at::Tensor u = at::empty(sizes, at::TensorOptions(as_double ? at::kDouble : at::kFloat));
  const int64_t n = u.numel();
  if (as_double) {
    const Words words = draw_words(seed, counter, 2 * n);
    double* p = u.mutable_data_ptr<double>();
    for (int64_t i = 0; i < n; i++) p[i] = (double)((int64_t)(wide(words, n, i) >> 12) * 2 + 1 - (1ll << 52)) * 0x1p-52;
  } else {
    const Words words = draw_words(seed, counter, n);
    float* p = u.mutable_data_ptr<float>();
    for (int64_t i = 0; i < n; i++) p[i] = (float)((int32_t)(words[i] >> 9) * 2 + 1 - (1 << 23)) * 0x1p-23f;
  }
  return u.erfinv_().mul_(std::sqrt(2.0));
}

bool draws_double(const at::Tensor& t) { return t.scalar_type() == at::kDouble; }

struct Draw {
  Stack& stack;
  IValue* a;
  uint64_t seed;
  uint64_t& counter;
  at::Tensor self() const { return a[0].toTensor(); }
};

// The functions below leave the results on the stack in place of the arguments.
void replace(Stack& stack, IValue* a, std::initializer_list<IValue> results) {
  std::vector<IValue> held(results);
  stack.resize(a - stack.data());
  for (auto& r : held) stack.push_back(std::move(r));
}

void uniform(Draw d) {
  const double low = d.a[1].toDouble(), high = d.a[2].toDouble();
  TORCH_CHECK(low <= high, "uniform_ expects to return a [from, to) range, but found from=", low, " > to=", high);
  at::Tensor self = d.self(), x = unit(self.sizes(), draws_double(self), d.seed, d.counter).mul_(high - low).add_(low);
  if (x.scalar_type() == self.scalar_type()) {
    self.copy_(x);
  } else {  // rounding must not reach the open end
    at::Tensor rounded = x.to(self.scalar_type());
    self.copy_(at::where(rounded.ge(high), at::full_like(rounded, low), rounded));
  }
  replace(d.stack, d.a, {self});
}

void normal(Draw d) {
  const double mean = d.a[1].toDouble(), deviation = d.a[2].toDouble();
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  TORCH_CHECK_NOT_IMPLEMENTED(!d.self().is_complex(), "lazy: normal_ of complex tensors");
  at::Tensor self = d.self();
  self.copy_(gauss(self.sizes(), draws_double(self), d.seed, d.counter).mul_(deviation).add_(mean));
  replace(d.stack, d.a, {self});
}

void exponential(Draw d) {
  at::Tensor self = d.self();
  self.copy_(unit(self.sizes(), draws_double(self), d.seed, d.counter).neg_().log1p_().neg_().div_(d.a[1].toDouble()));
  replace(d.stack, d.a, {self});
}

void bernoulli(Draw d) {
  const double p = d.a[1].toDouble();
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  at::Tensor self = d.self();
  self.copy_(unit(self.sizes(), false, d.seed, d.counter).lt(p));
  replace(d.stack, d.a, {self});
}

void bernoulli_tensor(Draw d) {
  at::Tensor self = d.self(), p = d.a[1].toTensor();
  at::Tensor u = unit(self.sizes(), draws_double(p), d.seed, d.counter);
  self.copy_(u.lt(p.to(u.scalar_type())));
  replace(d.stack, d.a, {self});
}

void dropout(Draw d) {
  at::Tensor x = d.self();
  const double p = d.a[1].toDouble();
  const bool train = d.a[2].isNone() || d.a[2].toBool();
  if (!train || p == 0) return replace(d.stack, d.a, {x.clone(), at::ones_like(x, x.options().dtype(at::kBool))});
  if (p == 1) return replace(d.stack, d.a, {at::zeros_like(x), at::zeros_like(x, x.options().dtype(at::kBool))});
  at::Tensor kept = at::empty_like(x, x.options().dtype(at::kBool));
  kept.copy_(unit(x.sizes(), false, d.seed, d.counter).lt(1 - p));
  replace(d.stack, d.a, {at::where(kept, x.mul(1 / (1 - p)), at::zeros_like(x)), kept});
}

// One past the largest integer that random_() draws for a dtype.
int64_t limit(at::ScalarType t) {
  switch (t) {
    case at::kBool: return 2;
    case at::kByte: return 256;
    case at::kChar: return 128;
    case at::kShort: return 1 << 15;
    case at::kInt: return 1ll << 31;
    case at::kHalf: return (1 << 11) + 1;
    case at::kBFloat16: return (1 << 8) + 1;
    case at::kFloat: return (1 << 24) + 1;
    case at::kDouble: return (1ll << 53) + 1;
    default: return std::numeric_limits<int64_t>::max();
  }
}

void integers(Draw d, int64_t low, int64_t high) {
  TORCH_CHECK(low < high, "random_ expects 'from' to be less than 'to', but got from=", low, " >= to=", high);
  at::Tensor self = d.self(), made = at::empty(self.sizes(), at::TensorOptions(at::kLong));
  const int64_t n = made.numel();
  const Words words = draw_words(d.seed, d.counter, 2 * n);
  const uint64_t span = (uint64_t)high - (uint64_t)low;
  auto* p = made.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; i++) p[i] = (int64_t)((uint64_t)low + wide(words, n, i) % span);
  self.copy_(made);
  replace(d.stack, d.a, {self});
}

void permutation(Draw d) {
  const int64_t n = d.a[0].toInt();
  TORCH_CHECK(n >= 0, "n must be non-negative, got ", n);
  const Words words = draw_words(d.seed, d.counter, 2 * n);
  at::Tensor order = at::empty({n}, at::TensorOptions(at::kLong));
  auto* p = order.mutable_data_ptr<int64_t>();
  std::iota(p, p + n, 0);
  std::stable_sort(p, p + n, [&](int64_t i, int64_t j) { return wide(words, n, i) < wide(words, n, j); });
  at::ScalarType kind = at::kLong;
  for (IValue* v = d.a + 1; v < d.stack.data() + d.stack.size(); v++)
    if (v->isInt()) {
      kind = (at::ScalarType)v->toInt();
      break;
    }
  replace(d.stack, d.a, {order.to(kind)});
}

using Kernel = std::function<void(Draw)>;
const std::unordered_map<std::string, Kernel>& kernels() {
  static const auto* table = new std::unordered_map<std::string, Kernel>{
      {"uniform_", uniform},
      {"normal_", normal},
      {"exponential_", exponential},
      {"bernoulli_.float", bernoulli},
      {"bernoulli_.Tensor", bernoulli_tensor},
      {"native_dropout", dropout},
      {"randperm", permutation},
      {"randperm.generator", permutation},
      {"random_", [](Draw d) { integers(d, 0, limit(d.self().scalar_type())); }},
      {"random_.to", [](Draw d) { integers(d, 0, d.a[1].toInt()); }},
      {"random_.from", [](Draw d) { integers(d, d.a[1].toInt(), d.a[2].isNone() ? limit(d.self().scalar_type()) : d.a[2].toInt()); }},
  };
  return *table;
}

}  // namespace

bool has_draw(const Op& op) { return kernels().count(op.name); }

bool draw(const Op& op, Stack* stack, uint64_t seed, uint64_t& counter) {
  auto found = kernels().find(op.name);
  if (found == kernels().end()) return false;
  at::AutoDispatchBelowADInplaceOrView guard;
  found->second(Draw{*stack, stack->data() + stack->size() - op.nargs, seed, counter});
  return true;
}

}  // namespace lazytorch
