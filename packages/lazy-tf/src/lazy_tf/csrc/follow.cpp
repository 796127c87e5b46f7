#include "follow.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "arrays.h"
#include "items.h"
#include "sights.h"

namespace lazy_tf {

namespace {

using Clock = std::chrono::steady_clock;

// So often must a trace have begun alike before more of it is recorded.
constexpr uint16_t kSightsToLearn = 2;
// A shorter trace takes less than handing a program to the device.
constexpr std::chrono::microseconds kShortestTrace{100};
// One trace in so many is recorded even if it is known to run faster natively, so that a wrong verdict does not last.
constexpr uint64_t kExamineEvery = 1024;
// A program may be there after so many milliseconds; each look takes a recorded trace.
constexpr uint32_t kCompiledAfter = 1000;
// What a program does often is worth recording, though a trace that begins like it runs faster natively, such as the step whose loss is read:
// so many traces later it is no longer held to do it often.
constexpr uint32_t kOften = 64;
// A trace of so many operations goes on being recorded though it runs natively: TensorFlow's kernels are run from the record in less time than
// TensorFlow takes to call them one by one, by more than ending the trace costs. An LSTM's training step of 1,708 takes 0.98 of eager TensorFlow's
// time so, and 1.35 as it comes; a training step of 68 takes 1.04 and 1.08; one row through a model 1.37 and 1.15.
constexpr size_t kReplayed = 32;
// What is recorded in part has to run natively, from the record, which takes longer than to run it as it comes. Where that is so of traces
// that begin alike, one after another, more and more of them run as they come, up to so many, before the next one is recorded.
constexpr uint16_t kOftenInVain = 4, kMostSkipped = 64;

Tier tier = Tier::kCompiled;
bool now_immediate = false;
bool keep = false;  // a barrier that is not the trace's end is under way
bool examine = false;
std::atomic<uint16_t> programs{1};  // how often all that was being compiled has come; wraps around, which makes a trace wait once too often
bool replayable = true;
uint64_t prefix = 0, trace = 1;
uint32_t position = 0;  // in the trace
size_t cut_at = SIZE_MAX;
long long epoch = 0;  // grows with every barrier
long long reads = 0;  // grows with every read of what the core has
long long immediate_operations = 0, immediate_traces = 0;
bool any_immediate = false;
Clock::time_point began = Clock::now();
auto& sights = *new Sights;
auto& prefixes = *new std::vector<uint64_t>;  // that ran at once in this trace
auto& followed = *new std::vector<uint64_t>;  // that were recorded in this trace
auto& use_log = *new std::vector<uint32_t>;
// Shared, because another thread may begin another trace while these are run.
auto& items = *new std::shared_ptr<Items>(std::make_shared<Items>());

PyObject* name_expr = PyUnicode_InternFromString("expr");
PyObject* name_current = PyUnicode_InternFromString("current");

uint64_t mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h ^= h >> 30;
  h *= 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 31);
}

uint32_t milliseconds() { return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count(); }

bool waiting(const Sight& sight) { return sight.waits == programs.load() && static_cast<int32_t>(sight.until - milliseconds()) > 0; }

// Whether a trace that begins like this is to run as it comes, since recording was in vain; one fewer is from then on.
bool skip_one(Sight* first) {
  if (first->skips == 0) return false;
  --first->skips;
  return true;
}

// The sight of how this trace began; null if nothing was recorded, or it is no longer known.
Sight* beginning() { return followed.empty() ? nullptr : sights.find(followed.front()); }

// What was recorded of this trace is not all of it, and the rest is not about to be learned.
void note_in_vain() {
  Sight* first = beginning();
  if (first == nullptr || ++first->in_vain < kOftenInVain) return;
  first->in_vain = kOftenInVain;  // it must not wrap around
  first->skips = first->skipped = std::min<uint16_t>(2 * first->skipped + 1, kMostSkipped);
}

bool is_variable(PyObject* entry) {
  return PyObject_TypeCheck(entry, entry_type) && reinterpret_cast<Entry*>(entry)->handle_dtype == TF_RESOURCE;
}

Ref contents_of(PyObject* variable) {
  Ref current(PyObject_GetAttr(variable, name_current));
  if (!current) PyErr_Clear();
  return current && is_tensor(current.get()) ? std::move(current) : Ref();
}

uint64_t mix_dims(uint64_t h, const Entry* entry) {
  h = mix(h, static_cast<uint64_t>(entry->dtype) << 8 | static_cast<uint64_t>(entry->rank));
  for (int i = 0; i < entry->rank; ++i) h = mix(h, entry->sizes[i]);
  return h;
}

// What repeats from trace to trace: the operation, and its inputs without their numbers, but for those that are part of the program.
uint64_t describe(Use* use, const Inputs& inputs) {
  uint64_t h = mix(1, use->id);
  for (const Ref& input : inputs) {
    PyObject* entry = input.get();
    if (is_tensor(entry)) {
      const Tensor* tensor = as_tensor(entry);
      h = mix_dims(h, &tensor->entry);
      h = mix(h, tensor->foldable ? 1 : tensor->born == trace ? tensor->number : 0);
    } else if (is_variable(entry)) {
      const Ref current = contents_of(entry);
      h = current ? mix_dims(h, reinterpret_cast<Entry*>(current.get())) : mix(h, 2);
    } else {
      h = mix(h, 3);
    }
  }
  std::string bits;
  for (int place : use->statics) {
    PyObject* host = is_tensor(inputs[place].get()) ? as_tensor(inputs[place].get())->host : nullptr;
    if (host != nullptr) add_bits(host, &bits);
  }
  return bits.empty() ? h : mix(h, std::hash<std::string>()(bits));
}

// Whether recording this needs a read: something that the trace has made decides what is recorded.
bool needs_read(Use* use, const Inputs& inputs) {
  for (int place : use->statics) {
    PyObject* entry = inputs[place].get();
    if (is_tensor(entry) && as_tensor(entry)->host == nullptr && as_tensor(entry)->born == trace) return true;
  }
  return false;
}

bool flush(bool native) {
  Ref done(PyObject_CallOneArg(hooks.flush, native ? Py_True : Py_False));
  return static_cast<bool>(done);
}

// End the trace here: whatever comes begins another.
bool split() {
  if (now_immediate && items->empty()) {
    boundary();
    return true;
  }
  return flush(false);
}

bool diverge() {
  if (!items->empty() || !followed.empty()) {
    keep = true;
    const bool fine = flush(true);
    keep = false;
    if (!fine) return false;
  }
  now_immediate = true;
  return true;
}

bool may_learn(bool* allowed) {
  Ref answer(PyObject_CallOneArg(hooks.may_learn, Py_None));
  *allowed = answer.get() == Py_True;
  return static_cast<bool>(answer);
}

}  // namespace

void set_tier(int number) {
  tier = static_cast<Tier>(number);
  if (tier != Tier::kAuto || !any_immediate) now_immediate = tier == Tier::kNative;
  if (tier == Tier::kCompiled) cut_at = SIZE_MAX;
}

bool immediate() { return now_immediate; }

bool decide(Use* use, const Inputs& inputs, Mode* mode) {
  *mode = Mode::kRecord;
  if (tier == Tier::kCompiled) return true;
  if (position != 0 && (use->reads || needs_read(use, inputs)) && !split()) return false;
  if (position == 0) began = Clock::now();
  if (use_log.size() >= cut_at) {
    Ref done(PyObject_CallNoArgs(hooks.cut_if_due));
    if (!done) return false;
  }
  use_log.push_back(use->id);
  const uint64_t next = mix(prefix, describe(use, inputs));
  if (use->reads && !now_immediate && !diverge()) return false;
  if (!now_immediate) {
    Sight* found = sights.find(next);
    const bool recordable = found != nullptr && ((!found->native && !waiting(*found) && !skip_one(found)) || examine);
    if (recordable && found->learned) {
      followed.push_back(prefix = next);
      ++position;
      return true;
    }
    bool allowed = false;
    const bool wanted = recordable && found->times >= kSightsToLearn;
    if (wanted && !may_learn(&allowed)) return false;
    if (allowed) {
      followed.push_back(prefix = next);
      ++position;
      *mode = Mode::kLearn;
      return true;
    }
    if (!wanted && (found == nullptr || !found->native)) note_in_vain();
    if (!diverge()) return false;
  }
  prefixes.push_back(prefix = next);
  ++position;
  ++immediate_operations;
  any_immediate = true;
  *mode = Mode::kImmediate;
  return true;
}

void note_before(const Inputs& inputs, Before* before) {
  if (tier == Tier::kCompiled) return;
  before->epoch = epoch;
  before->reads = reads;
  for (const Ref& input : inputs) before->contents.push_back(is_variable(input.get()) ? contents_of(input.get()) : Ref());
}

namespace {

// The expression that a tensor is in this trace; null if it is none.
Ref expression_of(PyObject* tensor) {
  PyObject* value = as_tensor(tensor)->value;
  if (value == nullptr) return Ref();
  Ref expr(PyObject_GetAttr(value, name_expr));
  if (!expr) PyErr_Clear();
  return expr && expr.get() != Py_None ? std::move(expr) : Ref();
}

bool add_input(PyObject* entry, const Ref& contents, Item* item) {
  Item::In in;
  in.variable = is_variable(entry);
  PyObject* tensor = in.variable ? contents.get() : entry;
  if (tensor == nullptr || !is_tensor(tensor)) return false;
  in.dtype = reinterpret_cast<Entry*>(tensor)->dtype;
  in.host = as_tensor(tensor)->host != nullptr;
  in.object = in.host ? Ref::borrow(as_tensor(tensor)->host) : expression_of(tensor);
  item->inputs.push_back(std::move(in));
  return static_cast<bool>(item->inputs.back().object);
}

// Note how to run a recorded operation natively; where that is not possible the trace cannot be.
void add_item(const std::shared_ptr<Use>& use, const Inputs& inputs, const Inputs& outputs, const Before& before) {
  Item item;
  item.use = use;
  item.count = static_cast<int>(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_tensor(outputs[i].get())) continue;
    Ref expr = expression_of(outputs[i].get());
    if (expr) item.outputs.push_back({std::move(expr), static_cast<int>(i), false});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!before.contents[i]) continue;
    Ref after = contents_of(inputs[i].get());
    if (!after || after.get() == before.contents[i].get()) continue;
    Ref expr = expression_of(after.get());
    if (expr) item.outputs.push_back({std::move(expr), static_cast<int>(i), true});
  }
  if (item.outputs.empty()) return;
  bool fine = use->operation->place == Place::kCpu && use->prototype != nullptr;
  for (size_t i = 0; fine && i < inputs.size(); ++i) fine = add_input(inputs[i].get(), before.contents[i], &item);
  if (!fine) {
    replayable = false;
    return;
  }
  items->push_back(std::move(item));
}

void be_born(const Inputs& outputs) {
  for (const Ref& output : outputs) {
    if (!is_tensor(output.get()) || as_tensor(output.get())->born == trace) continue;
    as_tensor(output.get())->born = trace;
    as_tensor(output.get())->number = position + 3;
  }
}

}  // namespace

bool note_recorded(const std::shared_ptr<Use>& use, const Inputs& inputs, const Inputs& outputs, const Before& before, double seconds) {
  if (tier == Tier::kCompiled) return true;
  if (before.epoch != epoch) {
    replayable = false;
    if (before.reads == reads) return true;  // the trace had become long, and was cut
    use->reads = true;  // from now on it runs at once, between two traces
    return split();
  }
  add_item(use, inputs, outputs, before);
  be_born(outputs);
  if (seconds >= 0) {
    Sight* found = sights.find(prefix);
    if (found != nullptr) found->learned = true;
    Ref spent(PyFloat_FromDouble(seconds));
    Ref done(spent ? PyObject_CallOneArg(hooks.may_learn, spent.get()) : nullptr);
    if (!done) return false;
  }
  return true;
}

void note_run(Use* use, const Inputs& outputs) {
  if (tier == Tier::kCompiled) return;
  be_born(outputs);
  if (use->reads) boundary();
}

void note_read(const Tensor* tensor) {
  if (tier == Tier::kAuto && now_immediate && tensor->born == trace) boundary();
}

void note_wait() { ++reads; }

void boundary() {
  ++epoch;
  items = std::make_shared<Items>();
  replayable = true;
  if (keep) return;
  if (!prefixes.empty() && Clock::now() - began >= kShortestTrace) {
    for (uint64_t seen : prefixes) sights.note(seen);
  }
  immediate_traces += any_immediate;
  any_immediate = false;
  if (Sight* first = beginning(); first != nullptr && !now_immediate) first->in_vain = first->skipped = 0;
  prefixes.clear();
  followed.clear();
  use_log.clear();
  prefix = 0;
  position = 0;
  ++trace;
  examine = trace % kExamineEvery == 0;
  now_immediate = tier == Tier::kNative;
}

void settled(bool native) {
  if (native && followed.size() >= kReplayed) return;
  for (uint64_t seen : followed) {
    Sight* found = sights.find(seen);
    if (found == nullptr) continue;
    if (!native) found->compiled = trace;
    found->native = native && (found->compiled == 0 || static_cast<uint32_t>(trace) - found->compiled > kOften);
  }
}

void reopened() {
  for (uint64_t seen : followed) {
    Sight* found = sights.find(seen);
    if (found != nullptr) found->native = false;
  }
}

void postponed() {
  for (uint64_t seen : followed) {
    Sight* found = sights.find(seen);
    if (found != nullptr) found->waits = programs.load(), found->until = milliseconds() + kCompiledAfter;
  }
}

void compiled() {
  if (++programs == 0) ++programs;
}

void set_cut_at(size_t length) { cut_at = length; }

PyObject* log_list() {
  PyObject* list = PyList_New(use_log.size());
  for (size_t i = 0; list != nullptr && i < use_log.size(); ++i) PyList_SET_ITEM(list, i, PyLong_FromUnsignedLong(use_log[i]));
  return list;
}

PyObject* follow_counters() { return Py_BuildValue("(LL)", immediate_operations, immediate_traces); }

PyObject* replay(PyObject* wanted, PyObject* known) {
  const std::shared_ptr<Items> held = items;
  if (!replayable || held->empty()) Py_RETURN_NONE;
  return replay_items(*held, wanted, known);
}

}  // namespace lazy_tf
