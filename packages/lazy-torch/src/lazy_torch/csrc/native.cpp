// Native execution: operations run by the CPU's own kernels, on host memory, as they come (`run_immediately`) or from the recorded graph (`evaluate`).
#include "operation.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <unordered_set>

namespace lazytorch {

// ---------------------------------------------------------------- bytes in host memory

at::Tensor alias(const at::Tensor& tensor, const c10::Storage& host) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(host), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return made;
}

const at::Tensor& view_on_host(const at::Tensor& tensor, Array* array) {
  at::Tensor& kept = array->view;
  auto* t = tensor.unsafeGetTensorImpl();
  if (C10_LIKELY(kept.defined())) {
    auto* k = kept.unsafeGetTensorImpl();
    if (C10_LIKELY(k->storage_offset() == t->storage_offset() && k->sizes() == t->sizes() && k->strides() == t->strides() && k->dtype() == t->dtype() &&
                   k->unsafe_storage().unsafeGetStorageImpl() == array->host.unsafeGetStorageImpl() && kept.is_inference() == c10::InferenceMode::is_enabled()))
      return kept;
  }
  return kept = alias(tensor, array->host);
}

static c10::Storage new_bytes(size_t nbytes, bool zeroed) {
  const int64_t n = nbytes;
  const auto options = at::TensorOptions(at::kByte);
  return (zeroed ? at::zeros({n}, options) : at::empty({n}, options)).storage();
}

void make_writable(Buffer* b, bool keep) {
  if (!b->array) {
    set_array(b, c10::make_intrusive<Array>(new_bytes(b->nbytes, keep)), b->layout);
  } else if (b->array.use_count() != 1 || !b->array->alone()) {
    c10::Storage fresh = new_bytes(b->nbytes, false);
    if (keep && b->nbytes) memcpy(fresh.mutable_data(), b->array->host.data(), b->nbytes);
    set_array(b, c10::make_intrusive<Array>(std::move(fresh)), b->layout);
  } else {
    b->array->let_go();
    b->node = nullptr;
    b->epoch = ~0ull;
  }
  State& s = state();
  if (b->born != s.trace) b->born = s.trace, s.fresh++;
}

// What stands in the way of using a buffer's bytes.
enum class Obstacle { NONE, PENDING, AWAY, BARRIER };

static Obstacle obstacle(Buffer* b, ArrayPtr& away) {
  if (b->pending) return Obstacle::PENDING;
  if (!b->array) {
    set_array(b, c10::make_intrusive<Array>(new_bytes(b->nbytes, true)), b->layout);
  } else if (!b->array->host) {
    away = b->array;
    return Obstacle::AWAY;
  }
  return Obstacle::NONE;
}

void run_pending() {
  Gil gil;
  state().keep_immediate = state().immediate.load();
  try {
    call("run_natively", PyTuple_New(0));
  } catch (...) {
    state().keep_immediate = false;
    throw;
  }
  state().keep_immediate = false;
}

static void overcome(Obstacle what, const ArrayPtr& away) {
  if (what == Obstacle::PENDING) return run_pending();
  if (what == Obstacle::AWAY) return (void)pull(away);
  Gil gil;
  TraceLock wait;  // for another thread's barrier
  drain();
  std::lock_guard<std::mutex> lock(state().mutex);
  TORCH_CHECK(!state().in_barrier, "lazy: an operation was recorded while a barrier runs on the same thread, as by a finaliser or a callback");
}

void ensure_bytes(const at::Tensor& tensor) {
  for (;;) {
    ArrayPtr away;
    Obstacle what;
    {
      std::lock_guard<std::mutex> lock(state().mutex);
      what = state().in_barrier ? Obstacle::BARRIER : obstacle(buffer_of(tensor), away);
    }
    if (what == Obstacle::NONE) return;
    overcome(what, away);
  }
}

// ---------------------------------------------------------------- where traces end, and how often they began alike


// How traces begin, in a table of fixed size: it decides what is worth recording, never what is computed. A long trace has thousands of
// beginnings, and is recorded as a whole only if all of them are found again; so each has a few places to choose from.
struct Sight {
  uint64_t prefix = 0, numbers = 0;
  int times = 0;
  int longs = 0;      // of these, how many belonged to a trace that took long enough; a busy machine makes any trace long now and then
  float seconds = 0;  // that its traces have taken in all
  int operations = 0; // that the latest of them had
  bool vary = false;
  // What is learned must have taken as long natively as learning may take: then trying costs at most as much again. Even the shortest
  // program takes as long to compile as so many operations.
  static constexpr int kLeast = 20;
  bool worth() const {
    return 4 * longs >= times && longs > 0 && seconds >= state().learn_seconds.load(std::memory_order_relaxed) * (operations + kLeast);
  }
};
constexpr size_t kWays = 8;
constexpr int kSetBits = 14;
static Sight* sights_like(uint64_t prefix) {
  static auto* table = new std::vector<Sight>(kWays << kSetBits);
  return table->data() + (prefix >> (64 - kSetBits)) * kWays;
}
static Sight* sighted(uint64_t prefix) {
  Sight* set = sights_like(prefix);
  for (size_t i = 0; i < kWays; i++)
    if (set[i].prefix == prefix) return set + i;
  return nullptr;
}
// The place of a prefix. What came least often makes room for a new one, and the others must come again to stay for long.
static Sight& sight(uint64_t prefix, uint64_t numbers) {
  if (Sight* found = sighted(prefix)) return *found;
  Sight *set = sights_like(prefix), *least = set;
  for (size_t i = 1; i < kWays; i++)
    if (set[i].times < least->times) least = set + i;
  if (least->times != 0)
    for (size_t i = 0; i < kWays; i++) set[i].times = (set[i].times + 1) / 2, set[i].longs = (set[i].longs + 1) / 2;
  return *least = Sight{prefix, numbers};
}
int times_seen(uint64_t prefix) {
  const Sight* found = sighted(prefix);
  return found && found->worth() ? found->times : 0;
}
bool numbers_vary(uint64_t prefix) {
  const Sight* found = sighted(prefix);
  return found && found->vary;
}
void see(uint64_t prefix, uint64_t numbers) {
  Sight& found = sight(prefix, numbers);
  if (found.times < 1000) found.times++;
  found.vary |= found.numbers != numbers;
}

uint64_t numbers(const Op& op, const IValue* a) {
  uint64_t h = 0;
  auto one = [&](const IValue& v) {
    double d = v.isDouble() ? v.toDouble() : 0;
    uint64_t bits;
    memcpy(&bits, &d, 8);
    h = mix(h, v.isInt() ? (uint64_t)v.toInt() : bits);
  };
  for (int i = 0; i < op.nargs; i++) {
    const IValue& v = a[i];
    if (v.isInt() || v.isDouble()) {
      one(v);
    } else if (v.isTensor()) {
      const at::Tensor& t = v.toTensor();
      if (t.defined() && t.device().is_cpu() && t.dim() == 0 && (t.scalar_type() == at::kDouble || t.scalar_type() == at::kLong))
        h = mix(h, *static_cast<const uint64_t*>(t.const_data_ptr()));
    } else if (v.isList() && op.args[i].number) {
      for (const IValue& x : v.toListRef()) one(x);
    }
  }
  return h;
}

// A shorter trace takes less than handing a program to the device.
constexpr std::chrono::microseconds kShortestTrace{100};
// One trace in so many is recorded even if it is known to run faster natively, so that a wrong verdict does not last.
constexpr uint64_t kExamineEvery = 1024;
// Watching an operation takes up to a microsecond. Where operations take longer than this on average every trace is watched. Elsewhere the first
// traces are, and then one in so many in proportion, up to a limit, or fewer where learning is dear; which ones is as good as random, since programs alternate.
constexpr std::chrono::nanoseconds kWatchAll{50'000};
constexpr double kMostUnwatched = 8;
constexpr uint64_t kWatchFirst = 100;

void forget_leaves(std::vector<ArrayPtr>& released) {
  State& s = state();
  if (s.first || s.lent) return;
  released.swap(s.leaves);
  s.floats.clear();
  s.ints.clear();
  s.epoch++;
}

// A trace ends. What is recorded in parts may run as a whole, so that the number of operations is a little different.
static void end_round(Timed& timed) {
  const State& s = state();
  const size_t more = std::max(s.log.size(), timed.operations), fewer = std::min(s.log.size(), timed.operations);
  if (timed.trace == s.trace && 5 * (more - fewer) <= more) timed.alike = s.trace;
}

void boundary(std::vector<ArrayPtr>& released) {
  State& s = state();
  forget_leaves(released);
  const std::chrono::nanoseconds spent(s.spent.exchange(0));
  const uint64_t watched_one_in = s.watch_one_in;
  if (!s.prefixes.empty()) {
    const double each = std::max(1.0, static_cast<double>(spent.count())) / s.log.size();
    const double dear = s.learn_seconds.load(std::memory_order_relaxed) / kUsualLearnSeconds;
    s.watch_one_in = ++s.watched_in_vain < kWatchFirst ? 1 : std::clamp(dear * kWatchAll.count() / each, 1.0, kMostUnwatched);
  }
  if (!s.prefixes.empty() && spent >= kShortestTrace) {
    const float seconds = std::chrono::duration<float>(spent).count() * watched_one_in;
    for (uint64_t prefix : s.prefixes)
      if (Sight* found = sighted(prefix)) {
        found->longs = std::min(found->longs + 1, found->times);
        found->seconds += seconds;
        found->operations = s.log.size();
      }
  }
  s.prefixes.clear();
  s.prefix = 0;
  if (!s.followed.empty() && !s.immediate.load()) s.followed.front()->in_vain = s.followed.front()->skipped = 0;
  s.immediate = s.tier.load() == State::NATIVE;
  if (C10_UNLIKELY(s.timed.first != nullptr)) end_round(s.timed);
  s.log.clear();
  s.followed.clear();
  s.trace++;
  s.watched = mix(s.trace, 0) % s.watch_one_in == 0;
  s.fresh = 0;
  s.examine = s.trace % kExamineEvery == 0;
  s.immediate_traces += s.run_in_trace != 0;
  s.run_in_trace = 0;
  s.due.store(0);
}

void postpone(std::chrono::milliseconds wait) {
  State& s = state();
  const auto until = std::chrono::steady_clock::now() + wait;
  for (auto* e : s.followed) e->waits = s.programs.load(), e->wait_until = until;
}

// What is recorded in part has to run natively, from the record, which takes longer than to run it as it comes. Where that is so of traces
// that begin alike, one after another, more and more of them run as they come, up to so many, before the next one is recorded.
constexpr uint32_t kOftenInVain = 4, kMostSkipped = 64;
void note_in_vain() {
  State& s = state();
  if (s.followed.empty()) return;
  OpEntry& first = *s.followed.front();
  if (++first.in_vain >= kOftenInVain) first.skips = first.skipped = std::min(2 * first.skipped + 1, kMostSkipped);
}

// The first rounds do not count: what ran before, such as a pool of threads that still spins, disturbs them.
constexpr std::chrono::milliseconds kSettlesFor{30};
// See `_ROUNDS` in lazy_core.trials, which compiled rounds are timed with.
constexpr size_t kRounds = 8;
constexpr std::chrono::milliseconds kRoundsTake{20};
void note_round(Timed& timed) {
  const uint64_t trace = state().trace, before = std::exchange(timed.trace, trace);
  if (trace == before) return;  // an operation may be attempted more than once
  const auto now = Timed::Clock::now();
  auto& at = timed.beginnings;
  if (timed.since == Timed::Clock::time_point()) timed.since = now;
  if (now - timed.since < kSettlesFor) return;
  if (timed.alike != before || trace != before + 1) at.clear();
  at.push_back(now);
  while (at.size() > 2 && (at.size() > kRounds + 1 || now - at[1] >= kRoundsTake)) at.pop_front();
  const auto span = now - at.front();
  if (at.size() <= kRounds && span < kRoundsTake) return;
  timed.rounds.push_back(std::chrono::duration<double>(span).count() / (at.size() - 1));
}

void note_read(Buffer* b, std::vector<ArrayPtr>& released) {
  if (state().immediate.load(std::memory_order_relaxed) && b->born == state().trace) boundary(released);
}

static uint64_t describe(uint64_t h, const at::Tensor& t) {
  if (!t.defined()) return mix(h, 6);
  h = mix(h, (uint64_t)t.scalar_type() << 8 | (uint64_t)t.dim() << 16 | (uint64_t)is_lazy(t));
  for (int64_t n : t.sizes()) h = mix(h, n);
  return h;
}

uint64_t signature(const Op& op, const IValue* a) {
  uint64_t h = op.id | (uint64_t)c10::typeMetaToScalarType(c10::get_default_dtype()) << 32;
  for (int i = 0; i < op.nargs; i++) {
    const IValue& v = a[i];
    if (v.isTensor()) {
      h = describe(h, v.toTensor());
    } else if (v.isInt() && !op.args[i].number) {
      h = mix(h, v.toInt());
    } else if (v.isBool()) {
      h = mix(h, v.toBool());
    } else if (v.isIntList()) {
      for (int64_t n : v.toDimVector()) h = mix(h, n);
    } else if (v.isList() && !op.args[i].number) {
      const auto items = v.toListRef();
      h = mix(h, items.size());
      for (const IValue& x : items)
        if (x.isTensor()) h = describe(h, x.toTensor());
    } else {
      h = mix(h, v.isNone());
    }
  }
  return h;
}

// ---------------------------------------------------------------- now

template <class F>
static void each_tensor(const Op& op, const IValue* a, F&& f) {
  for (int i = 0; i < op.nargs; i++) {
    if (a[i].isTensor()) {
      f(i, a[i].toTensor());
    } else if (a[i].isTensorList() || a[i].isOptionalTensorList()) {
      for (const IValue& x : a[i].toListRef())
        if (x.isTensor()) f(i, x.toTensor());
    }
  }
}

static bool covers(const at::Tensor& t, const Buffer* b) { return t.storage_offset() == 0 && t.nbytes() == b->nbytes && t.is_non_overlapping_and_dense(); }

// Whether an argument's old contents do not matter: it is overwritten as a whole, and no other argument shows them.
static bool overwritten(const Op& op, const IValue* a, int arg, const at::Tensor& t) {
  if (!op.args[arg].write_only || !covers(t, buffer_of(t))) return false;
  int sharing = 0;
  each_tensor(op, a, [&](int, const at::Tensor& other) { sharing += other.defined() && is_lazy(other) && buffer_of(other) == buffer_of(t); });
  return sharing == 1;
}

// Everything that the arguments need in host memory.
static void prepare(const Op& op, const IValue* a) {
  for (;;) {
    ArrayPtr away;
    Obstacle what = Obstacle::NONE;
    {
      std::lock_guard<std::mutex> lock(state().mutex);
      if (state().in_barrier) what = Obstacle::BARRIER;
      each_tensor(op, a, [&](int i, const at::Tensor& t) {
        if (what != Obstacle::NONE || !t.defined()) return;
        if (!is_lazy(t)) {
          if (!t.device().is_cpu() || t.dim() != 0 || op.args[i].write || t.layout() != c10::kStrided) device_mismatch(op, i, t);
          return;
        }
        Buffer* b = buffer_of(t);
        if (overwritten(op, a, i, t)) {
          if (b->pending) set_array(b, ArrayPtr(), nullptr);
          return;
        }
        what = obstacle(b, away);
      });
      if (what == Obstacle::NONE) {
        each_tensor(op, a, [&](int i, const at::Tensor& t) {
          if (op.args[i].write && t.defined()) make_writable(buffer_of(t), !overwritten(op, a, i, t));
        });
        return;
      }
    }
    overcome(what, away);
  }
}

const at::Tensor& on_host(const at::Tensor& t, Held& held) {
  if (!t.defined() || !is_lazy(t)) return t;
  Buffer* b = buffer_of(t);
  held.emplace_back(b->array->host.unsafeGetStorageImpl(), b);
  return view_on_host(t, b->array.get());
}

static IValue on_host(const IValue& v, Held& held) {
  if (v.isTensor()) return on_host(v.toTensor(), held);
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    list.reserve(v.toListRef().size());
    for (const IValue& x : v.toListRef()) list.push_back(on_host(x.toTensor(), held));
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& x : v.toListRef()) x.isTensor() ? list.push_back(on_host(x.toTensor(), held)) : list.push_back(std::nullopt);
    return list;
  }
  if (v.isDevice()) {
    TORCH_CHECK(v.toDevice().type() != kDeviceType || v.toDevice().index() <= 0, "lazy: there is one lazy device, lazy:0; got ", v.toDevice());
    return v.toDevice().type() == kDeviceType ? IValue(at::Device(at::kCPU)) : v;
  }
  return v;
}

at::Tensor adopt(at::Tensor plain, const Held& held) {
  if (!plain.defined()) return plain;
  TORCH_CHECK_NOT_IMPLEMENTED(plain.layout() == c10::kStrided, "lazy: only strided tensors exist on the lazy device, not ", plain.layout());
  if (C10_UNLIKELY(plain.is_conj() || plain.is_neg())) plain = plain.resolve_conj().resolve_neg();
  if (C10_UNLIKELY(plain._is_zerotensor())) plain = at::zeros(plain.sizes(), plain.options());  // it has no memory
  Buffer* b = nullptr;
  for (auto& [storage, buffer] : held)
    if (storage == plain.storage().unsafeGetStorageImpl()) b = buffer;
  const bool fresh = !b;
  if (!fresh) {
    retain(b);
  } else {
    State& s = state();
    b = new Buffer();
    b->nbytes = plain.storage().nbytes();
    b->array = c10::make_intrusive<Array>(c10::Storage(plain.storage()));
    b->born = s.trace;
    s.fresh++;
  }
  at::Tensor made = make_bare_tensor(plain.scalar_type(), b);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(plain.sizes(), plain.strides(), plain.storage_offset());
  if (fresh && plain.use_count() == 1) b->array->view = std::move(plain);
  return made;
}

// An argument that the kernel resized has its new sizes.
static void follow_resize(const at::Tensor& lazy, const at::Tensor& host) {
  auto* t = lazy.unsafeGetTensorImpl();
  Buffer* b = buffer_of(lazy);
  if (b->nbytes != host.storage().nbytes()) {
    b->nbytes = host.storage().nbytes();
    b->layout = nullptr;
    t->unsafe_storage().unsafeGetStorageImpl()->set_nbytes(b->nbytes);
  }
  if (!lazy.sizes().equals(host.sizes()) || !lazy.strides().equals(host.strides())) t->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
}

static void run_kernel(Op& op, Stack* stack) {
  if (C10_UNLIKELY(op.own != nullptr)) return op.own(*stack, stack->data() + stack->size() - op.nargs);
  op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

static bool random_now(Op& op, Stack* stack, const IValue& generator) {
  RandomState* random = random_state(generator);
  auto [seed, counter] = seed_and_counter(random);
  if (!draw(op, stack, seed, counter)) return false;
  std::lock_guard<std::mutex> lock(state().mutex);
  random->seed = seed, random->counter = counter, random->fresh = true;
  return true;
}

// Calls that the CPU has no kernel for, mostly for their dtypes: an integer histogram, which it has on other devices.
struct Refused {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::unordered_set<uint64_t> signatures;
  bool has(uint64_t signature) {
    if (C10_LIKELY(!any.load(std::memory_order_relaxed))) return false;
    std::lock_guard<std::mutex> lock(mutex);
    return signatures.count(signature);
  }
  void add(uint64_t signature) {
    std::lock_guard<std::mutex> lock(mutex);
    if (signatures.size() >= 1 << 12) signatures.clear();
    signatures.insert(signature);
    any = true;
  }
};
static Refused& refused() {
  static auto* kept = new Refused();
  return *kept;
}

// Whether the operations of this trace are noted, since it may be worth recording another time.
static bool is_watched() {
  const State& s = state();
  return s.watched.load(std::memory_order_relaxed) && s.tier.load(std::memory_order_relaxed) == State::AUTO;
}

bool at_hand(const at::Tensor& t, bool write) {
  if (!t.defined()) return true;
  if (C10_UNLIKELY(t.is_conj() || t.is_neg())) return false;
  if (!is_lazy(t)) return !write && t.dim() == 0 && t.device().is_cpu() && t.layout() == c10::kStrided;
  ArrayPtr away;
  return obstacle(buffer_of(t), away) == Obstacle::NONE;
}

bool runs_directly() {
  const State& s = state();
  return s.immediate.load(std::memory_order_relaxed) && s.direct.load(std::memory_order_relaxed) && !s.due.load(std::memory_order_relaxed) &&
         !is_watched() && !refused().any.load(std::memory_order_relaxed);
}

void note_immediate(const Op& op) {
  State& s = state();
  s.recorded++, s.run_in_trace++, s.immediate_operations++;
  if (s.tier.load(std::memory_order_relaxed) == State::AUTO) s.log.push_back(op.id);
  if (C10_UNLIKELY(s.log.size() >= s.cut_at) && !s.due.load(std::memory_order_relaxed)) s.due.store(2);
}

bool run_immediately(Op& op, Stack* stack) {
  State& s = state();
  const size_t below = stack->size() - op.nargs;
  IValue* a = stack->data() + below;
  const IValue generator = op.generator >= 0 ? a[op.generator] : IValue();
  const bool random = op.seeded && !(op.dropout >= 0 && a[op.dropout].isDouble() && a[op.dropout].toDouble() == 0);
  if (random ? !has_draw(op) : !op.on_cpu) return false;
  if (op.composite) {  // some are given tensors on the CPU on purpose, such as lengths: their parts know
    bool elsewhere = false;
    each_tensor(op, a, [&](int, const at::Tensor& t) { elsewhere |= t.defined() && !is_lazy(t) && t.dim() > 0; });
    if (C10_UNLIKELY(elsewhere)) return false;
  }
  using Clock = std::chrono::steady_clock;
  const bool watched = is_watched();
  const uint64_t signed_by = watched || refused().any.load(std::memory_order_relaxed) ? signature(op, a) : 0;
  const uint64_t shown = watched ? numbers(op, a) : 0;
  const Clock::time_point begin = watched ? Clock::now() : Clock::time_point();
  if (C10_UNLIKELY(refused().has(signed_by))) return false;
  prepare(op, a);
  c10::SmallVector<std::pair<IValue, int>, 8> given;  // the arguments; of one that is written to, where its host side stands in `hosts`
  Held held;
  c10::SmallVector<IValue, 4> hosts;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    for (int i = 0; i < op.nargs; i++) {
      IValue host = i == op.generator ? IValue() : on_host(a[i], held);
      given.emplace_back(std::move(a[i]), op.args[i].write ? (int)hosts.size() : -1);  // keeps the buffers alive
      if (op.args[i].write) hosts.push_back(host);
      a[i] = std::move(host);
    }
    note_immediate(op);
    if (watched) {
      s.prefix = mix(s.prefix, signed_by);
      s.prefixes.push_back(s.prefix);
      see(s.prefix, shown);
    }
  }
  try {
    at::AutoDispatchBelowADInplaceOrView guard;
    random ? (void)random_now(op, stack, generator) : run_kernel(op, stack);
  } catch (const c10::NotImplementedError&) {  // what cannot be recorded either raises this once more
    stack->resize(below);
    for (auto& argument : given) stack->push_back(std::move(argument.first));
    refused().add(signature(op, stack->data() + below));
    return false;
  }
  for (auto& [lazy, at] : given) {
    if (at < 0) continue;
    if (lazy.isTensor()) {
      if (lazy.toTensor().defined()) follow_resize(lazy.toTensor(), hosts[at].toTensor());
    } else if (lazy.isTensorList()) {
      const auto from = hosts[at].toListRef(), to = lazy.toListRef();
      for (size_t k = 0; k < to.size(); k++) follow_resize(to[k].toTensor(), from[k].toTensor());
    }
  }
  for (int r = 0; r < op.nrets; r++) {
    IValue& v = (*stack)[below + r];
    if (op.alias[r] >= 0) {
      int nth = 0;
      for (int i = 0; i < op.alias[r]; i++) nth += op.args[i].write;
      for (auto& [lazy, at] : given)
        if (at == nth) v = lazy;
    } else if (v.isTensor()) {
      v = adopt(std::move(v).toTensor(), held);
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const IValue& x : v.toListRef()) list.push_back(adopt(x.toTensor(), held));
      v = std::move(list);
    }
  }
  if (watched) s.spent += std::chrono::nanoseconds(Clock::now() - begin).count();
  return true;
}

// ---------------------------------------------------------------- from the graph

namespace {

// A tensor in this geometry, copied if its strides differ.
at::Tensor laid_out(const at::Tensor& t, const Geom* geom) {
  if (has_geom(t.unsafeGetTensorImpl(), geom)) return t;
  TORCH_INTERNAL_ASSERT(t.sizes().equals(geom->sizes) && t.scalar_type() == geom->dtype, "lazy: a native kernel gave ", t.toString(), t.sizes(),
                        " where the graph has ", c10::toString(geom->dtype), IntArrayRef(geom->sizes));
  auto made = at::empty_strided(geom->sizes, geom->strides, t.options());
  made.copy_(t);
  return made;
}

at::Tensor viewed(const at::Tensor& base, const Geom* layout, const Geom* view, int64_t offset) {
  at::Tensor flat = base;
  int64_t start = base.storage_offset();
  if (layout->dtype != view->dtype) {
    flat = base.as_strided({layout->numel}, {1}, start).view(view->dtype);
    start = flat.storage_offset();
  }
  return flat.as_strided(view->sizes, view->strides, start + offset);
}

// Whether nobody else can see a node's value any more, so that it may be overwritten.
bool sole(const Node* node) { return node->uses == 1 && node->value.use_count() == 1 && node->value.storage().use_count() == 1; }

at::Tensor private_copy(const Node* node) {
  if (sole(node)) return node->value;
  auto made = at::empty_strided(node->value.sizes(), node->value.strides(), node->value.options());
  made.copy_(node->value);
  return made;
}

class Evaluation {
 public:
  bool run(const std::vector<Node*>& roots, const std::vector<const Geom*>& layouts, std::vector<at::Tensor>& results) {
    static std::atomic<uint64_t> stamps{1};
    stamp_ = stamps++;
    bool all = true;
    for (Node* root : roots) {
      root->uses++;
      all = all && visit(root);
    }
    try {
      for (size_t k = 0; all && k < order_.size(); k++) all = compute(order_[k]);
      for (size_t k = 0; all && k < roots.size(); k++) results.push_back(owned(roots[k]->value, layouts[k]));
    } catch (...) {
      clear(roots);
      throw;
    }
    clear(roots);
    return all;
  }

 private:
  // The inputs of what computes a node, in order; false where they are not known here.
  template <class F>
  static void each_input(const Entry* e, F&& f) {
    switch ((Tag)e->key[0]) {
      case Tag::READ:
      case Tag::READ_AT: f((Node*)e->key[1]); break;
      case Tag::WRITE:
      case Tag::WRITE_AT: f((Node*)e->key[1]), f((Node*)e->key[2]); break;
      case Tag::OP:
        for (auto& item : static_cast<const OpEntry*>(e)->items)
          if (item.node) f(item.node);
        break;
      default: break;
    }
  }

  static bool known(const Node* n) { return n->producer && n->epoch == state().epoch; }

  bool visit(Node* root) {
    if (!known(root)) return false;
    std::vector<std::pair<const Entry*, bool>> stack{{root->producer, false}};
    while (!stack.empty()) {
      auto [entry, expanded] = stack.back();
      stack.pop_back();
      if (expanded) {
        order_.push_back(entry);
        continue;
      }
      if (entry->visited == stamp_) continue;
      entry->visited = stamp_;
      stack.emplace_back(entry, true);
      bool all = true;
      each_input(entry, [&](Node* n) {
        n->uses++;
        touched_.push_back(n);
        all = all && known(n);
        if (all && n->producer->visited != stamp_) stack.emplace_back(n->producer, false);
      });
      if (!all) return false;
    }
    return true;
  }

  static void give(Node* node, at::Tensor value) {
    if (node->uses > 0) node->value = std::move(value);
  }

  bool compute(const Entry* e) {
    State& s = state();
    const auto& key = e->key;
    switch ((Tag)key[0]) {
      case Tag::LEAF: {
        const Geom* layout = (const Geom*)key[2];
        const ArrayPtr& array = s.leaves.at(key[1]);
        TORCH_INTERNAL_ASSERT(array->host.nbytes() >= layout->nbytes(), "lazy: leaf ", key[1], " has ", array->host.nbytes(), " bytes where ",
                              IntArrayRef(layout->sizes), " needs ", layout->nbytes());
        at::Tensor whole = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(array->host), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                                     c10::scalarTypeToTypeMeta(layout->dtype));
        whole.unsafeGetTensorImpl()->set_sizes_and_strides(layout->sizes, layout->strides);
        give(e->node, std::move(whole));
        return true;
      }
      case Tag::ZEROS: {
        const Geom* geom = (const Geom*)key[1];
        give(e->node, at::empty_strided(geom->sizes, geom->strides, at::TensorOptions(geom->dtype)).zero_());
        return true;
      }
      case Tag::READ:
      case Tag::READ_AT: {
        const auto *layout = (const Geom*)key[2], *view = (const Geom*)key[3];
        const int64_t offset = (Tag)key[0] == Tag::READ ? (int64_t)key[4] : s.ints[key[4]];
        give(e->node, viewed(laid_out(((Node*)key[1])->value, layout), layout, view, offset));
        break;
      }
      case Tag::WRITE:
      case Tag::WRITE_AT: {
        const auto *layout = (const Geom*)key[3], *view = (const Geom*)key[4];
        const int64_t offset = (Tag)key[0] == Tag::WRITE ? (int64_t)key[5] : s.ints[key[5]];
        at::Tensor base = laid_out(private_copy((Node*)key[1]), layout);
        viewed(base, layout, view, offset).copy_(((Node*)key[2])->value);
        give(e->node, std::move(base));
        break;
      }
      case Tag::OP: {
        if (!compute_op(*static_cast<const OpEntry*>(e))) return false;
        break;
      }
      default: return false;
    }
    each_input(e, [](Node* n) {
      if (--n->uses == 0) n->value.reset();
    });
    return true;
  }

  static IValue number(const Number& n, const IValue& literal) {
    if (n.slot < 0) return literal;
    State& s = state();
    const at::Scalar value = n.type == 'f' ? at::Scalar(s.floats[n.slot]) : at::Scalar(s.ints[n.slot]);
    if (!literal.isTensor()) return value;
    at::Tensor made = at::scalar_tensor(value, at::TensorOptions(n.dtype));
    made.unsafeGetTensorImpl()->set_wrapped_number(literal.toTensor().unsafeGetTensorImpl()->is_wrapped_number());
    return made;
  }

  bool compute_op(const OpEntry& e) {
    Op& op = *e.op;
    Stack stack;
    std::vector<at::Tensor> written;
    size_t cursor = 0;
    auto tensor = [&](int arg, const IValue& literal) -> IValue {
      const Item& item = e.items[cursor++];
      if (item.number >= 0) return number(e.numbers[item.number], literal);
      if (!op.args[arg].write) return laid_out(item.node->value, item.geom);  // an equal expression may lie in other strides
      if (op.args[arg].write_only) {
        written.push_back(at::empty_strided(item.geom->sizes, item.geom->strides, at::TensorOptions(item.geom->dtype)));
      } else {
        const at::Tensor own = private_copy(item.node);
        written.push_back(laid_out(own, item.geom));
      }
      return written.back();
    };
    for (int i = 0; i < op.nargs; i++) {
      const Argument& given = e.arguments[i];
      switch (given.kind) {
        case Argument::LITERAL: stack.push_back(given.value); break;
        case Argument::ITEM: stack.push_back(tensor(i, given.value)); break;
        case Argument::NUMBERS: {
          c10::impl::GenericList list(c10::NumberType::get());
          for (const IValue& x : given.value.toListRef()) list.push_back(number(e.numbers[e.items[cursor++].number], x));
          stack.emplace_back(std::move(list));
          break;
        }
        case Argument::TENSORS: {
          c10::List<at::Tensor> list;
          const auto literals = given.value.toListRef();
          for (size_t k = 0; k < literals.size(); k++) list.push_back(given.present[k] ? tensor(i, literals[k]).toTensor() : at::Tensor());
          stack.emplace_back(std::move(list));
          break;
        }
        case Argument::OPTIONAL_TENSORS: {
          c10::List<std::optional<at::Tensor>> list;
          const auto literals = given.value.toListRef();
          for (size_t k = 0; k < literals.size(); k++)
            given.present[k] ? list.push_back(tensor(i, literals[k]).toTensor()) : list.push_back(std::nullopt);
          stack.emplace_back(std::move(list));
          break;
        }
      }
    }
    if (op.random) {
      const at::Tensor words = e.items[cursor].node->value;
      uint64_t seed = words.const_data_ptr<uint64_t>()[0], counter = words.const_data_ptr<uint64_t>()[1];
      if (!has_draw(op) || !draw(op, &stack, seed, counter)) return false;
      at::Tensor next = at::empty({2}, at::TensorOptions(ScalarType::UInt64));
      next.mutable_data_ptr<uint64_t>()[0] = seed, next.mutable_data_ptr<uint64_t>()[1] = counter;
      if (e.next_state) give(e.next_state, next);
    } else if (!op.on_cpu) {
      return false;
    } else {
      try {
        run_kernel(op, &stack);
      } catch (const c10::NotImplementedError&) {
        return false;
      }
    }
    for (size_t r = 0; r < e.returns.size(); r++) {
      const Return& made = e.returns[r];
      if (made.kind == Return::TENSOR) {
        const Output& o = e.outputs[made.index];
        if (o.node && stack[r].toTensor().defined()) give(o.node, laid_out(stack[r].toTensor(), o.geom));
      } else if (made.kind == Return::LIST) {
        for (int k = 0; k < made.count; k++) give(e.outputs[made.index + k].node, laid_out(stack[r].toListRef()[k].toTensor(), e.outputs[made.index + k].geom));
      }
    }
    for (size_t k = 0; k < e.writes.size(); k++)
      if (e.writes[k].node) give(e.writes[k].node, laid_out(written[k], e.writes[k].geom));
    return true;
  }

  // A result whose storage is exactly its bytes.
  static at::Tensor owned(const at::Tensor& value, const Geom* layout) {
    at::Tensor t = laid_out(value, layout);
    if (t.storage_offset() == 0 && t.storage().nbytes() == layout->nbytes()) return t;
    auto made = at::empty_strided(layout->sizes, layout->strides, t.options());
    made.copy_(t);
    return made;
  }

  void clear(const std::vector<Node*>& roots) {
    for (Node* n : touched_) n->uses = 0, n->value.reset();
    for (Node* n : roots) n->uses = 0, n->value.reset();
  }

  uint64_t stamp_ = 0;
  std::vector<const Entry*> order_;
  std::vector<Node*> touched_;
};

}  // namespace

bool evaluate(const std::vector<Node*>& roots, const std::vector<const Geom*>& layouts, std::vector<at::Tensor>& results) {
  for (size_t k = 0; k < state().leaves.size(); k++)
    if (!state().leaves[k]->host) pull(state().leaves[k]);
  at::AutoDispatchBelowADInplaceOrView guard;
  return Evaluation().run(roots, layouts, results);
}

}  // namespace lazytorch
