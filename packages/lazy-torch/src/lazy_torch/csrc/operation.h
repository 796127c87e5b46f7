// What is known of an ATen operation, shared by the recorder and by native execution.
#pragma once

#include "common.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/AutogradState.h>

namespace lazytorch {

using c10::IValue;
using torch::jit::Stack;

struct ArgSpec {
  bool write = false;
  bool write_only = false;  // its old value does not matter
  bool number = false;      // Scalar, or a list of them, or a float that may be fed at run time
  bool fixed = false;       // numbers here are never fed at run time
  enum { PLAIN, DTYPE, DROP } kind = PLAIN;
};

enum Mode : int { UNKNOWN = -1, FALLBACK = 0, RECORD = 1, COMPOSE = 2 };

struct Op {
  c10::OperatorHandle handle;
  uint32_t id;
  std::string name;  // "add.Tensor"
  int nargs, nrets;
  std::vector<ArgSpec> args;
  std::vector<int> alias;  // for each return the written argument that it is, or -1
  int generator = -1;
  bool composite, cpu_indices, is_copy, is_clone, is_zero;
  bool seeded = false;  // torch says that it may draw random numbers
  int dropout = -1;     // the argument that says how much, if there is one
  std::atomic<int> mode{UNKNOWN};
  bool on_cpu = true;                           // the CPU has a kernel
  void (*own)(Stack&, IValue*) = nullptr;       // a native kernel of ours, where the CPU has none
  bool random = false;  // the builder draws random numbers
  std::atomic<bool> any_lifted{false};
  Op(c10::OperatorHandle h, uint32_t i) : handle(std::move(h)), id(i) {}
};

inline c10::TypePtr strip_optional(c10::TypePtr t) {
  return t->kind() == c10::TypeKind::OptionalType ? t->castRaw<c10::OptionalType>()->getElementType() : t;
}
[[noreturn]] void device_mismatch(const Op& op, int arg, const at::Tensor& tensor);

// Have backward passes run in the thread that asks for them, as the CPU's do. A thread of their own would have a second pool of OpenMP workers,
// and whichever pool has just worked spins on the cores that the other one needs.
inline void one_thread() {
  c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  if (C10_UNLIKELY(autograd.get_multithreading_enabled())) autograd.set_multithreading_enabled(false);
}

// A hash of an operation and its arguments without the values of numbers and tensors: what repeats from step to step.
uint64_t signature(const Op& op, const IValue* arguments);
// The bits of the numbers among the arguments.
uint64_t numbers(const Op& op, const IValue* arguments);
// Traces that begin like this one run natively for so long.  Mutex held.
void postpone(std::chrono::milliseconds wait);
// A trace that is being timed begins.  Mutex held.
void note_round(Timed& timed);
void note_in_vain();  // what was recorded of this trace is not all of it; mutex held
// How often a trace that is worth recording has begun this way natively, and whether its last operation had other numbers at other times.
int times_seen(uint64_t prefix);
bool numbers_vary(uint64_t prefix);
void see(uint64_t prefix, uint64_t numbers);

// Run the CPU's kernel now, on the bytes that the arguments hold.  False where only recording can do it (random numbers of a kind without a kernel here).
bool run_immediately(Op& op, Stack* stack);
// The typed kernel of an operation, which runs it immediately where nothing stands in the way, and otherwise calls the boxed one; null if it has none.
std::optional<c10::KernelFunction> direct_kernel(Op& op, const c10::BoxedKernel& boxed);
std::vector<std::string> direct_names();          // of the operations that have one
bool runs_directly();                             // whether an operation need neither be recorded nor watched
bool at_hand(const at::Tensor& tensor, bool write);  // whether the CPU's kernels can be given it as it is; mutex held
void note_immediate(const Op& op);                // count it; mutex held
// Which storages the arguments of an operation have, so that a result is known to be one of them.
using Held = c10::SmallVector<std::pair<const c10::StorageImpl*, Buffer*>, 8>;
const at::Tensor& on_host(const at::Tensor& tensor, Held& held);  // mutex held
at::Tensor adopt(at::Tensor host, const Held& held);              // a result in host memory as a tensor of the device
// The kernels for what the CPU has none for; they leave the results on the stack in place of the arguments.  Null for others.
void (*own_kernel(const std::string& name))(Stack&, IValue*);
// The random operations that have a kernel here: the same numbers as the core's, in the arguments' order of the schema.  False for others.
bool has_draw(const Op& op);
bool draw(const Op& op, Stack* stack, uint64_t seed, uint64_t& counter);
// The state of a random operation's generator as two words; GIL not held, mutex not held.
std::pair<uint64_t, uint64_t> seed_and_counter(RandomState* random);

}  // namespace lazytorch
