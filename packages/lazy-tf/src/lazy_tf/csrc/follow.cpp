#include "follow.h"

#include <chrono>
#include <cstring>
#include <deque>

#include "arrays.h"
#include "native.h"
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

// An operation that was recorded, so that it can be run natively: what went in, and the expressions that came out.
struct Item {
  struct In {
    Ref object;  // an expression, or an array that the host knew
    bool host = false, variable = false;
    int dtype = 0;
  };
  struct Out {
    Ref expr;
    int position;  // of the output, or of the variable among the inputs
    bool variable;
  };
  std::shared_ptr<Use> use;
  std::vector<In> inputs;
  std::vector<Out> outputs;
  int count = 0;
};

Tier tier = Tier::kCompiled;
bool now_immediate = false;
bool keep = false;  // a barrier that is not the trace's end is under way
bool examine = false;
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
// A deque, and shared, because another thread may add to it or begin another trace while these are run.
using Items = std::deque<Item>;
auto& items = *new std::shared_ptr<Items>(std::make_shared<Items>());

PyObject* name_expr = PyUnicode_InternFromString("expr");
PyObject* name_current = PyUnicode_InternFromString("current");

uint64_t mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h ^= h >> 30;
  h *= 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 31);
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
    const Sight* found = sights.find(next);
    const bool recordable = found != nullptr && (!found->native || examine);
    if (recordable && found->learned) {
      followed.push_back(prefix = next);
      ++position;
      return true;
    }
    bool allowed = false;
    if (recordable && found->times >= kSightsToLearn && !may_learn(&allowed)) return false;
    if (allowed) {
      followed.push_back(prefix = next);
      ++position;
      *mode = Mode::kLearn;
      return true;
    }
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
  for (uint64_t seen : followed) {
    Sight* found = sights.find(seen);
    if (found != nullptr) found->native = native;
  }
}

void set_cut_at(size_t length) { cut_at = length; }

PyObject* log_list() {
  PyObject* list = PyList_New(use_log.size());
  for (size_t i = 0; list != nullptr && i < use_log.size(); ++i) PyList_SET_ITEM(list, i, PyLong_FromUnsignedLong(use_log[i]));
  return list;
}

PyObject* follow_counters() { return Py_BuildValue("(LL)", immediate_operations, immediate_traces); }

// ------------------------------------------------------------------ running what was recorded

namespace {

// Handles by expression, owned.
class Environment {
 public:
  ~Environment() {
    for (auto& entry : handles_) TFE_DeleteTensorHandle(entry.second);
  }
  TFE_TensorHandle* find(PyObject* expr) const {
    auto found = handles_.find(expr);
    return found != handles_.end() ? found->second : nullptr;
  }
  void set(PyObject* expr, TFE_TensorHandle* handle) {
    TFE_TensorHandle*& place = handles_[expr];
    if (place != nullptr) TFE_DeleteTensorHandle(place);
    place = handle;
  }
  void drop(PyObject* expr) {
    auto found = handles_.find(expr);
    if (found == handles_.end()) return;
    TFE_DeleteTensorHandle(found->second);
    handles_.erase(found);
  }

 private:
  std::unordered_map<PyObject*, TFE_TensorHandle*> handles_;
};

struct Status {
  TF_Status* get = TF_NewStatus();
  ~Status() { TF_DeleteStatus(get); }
};

// A failure that left only a status becomes an exception.
PyObject* raise_status(TF_Status* status) {
  if (!PyErr_Occurred()) {
    Ref pointer = number(status);
    Ref done(PyObject_CallOneArg(hooks.raise, pointer.get()));
    if (done) PyErr_SetString(PyExc_RuntimeError, "running recorded operations natively failed without a reason");
  }
  return nullptr;
}

// The handle of an input, which the environment owns; null with an exception or a status, or without where there is none.
TFE_TensorHandle* input_handle(const Item::In& in, Environment* environment, TF_Status* status) {
  PyObject* key = in.object.get();
  TFE_TensorHandle* found = environment->find(key);
  if (found != nullptr) return found;
  Ref array = in.host ? Ref::borrow(key) : Ref(PyObject_CallOneArg(hooks.leaf, key));
  if (!array || array.get() == Py_None) return nullptr;
  found = handle_over(array.get(), in.dtype, context, status);
  if (found != nullptr) environment->set(key, found);
  return found;
}

bool run_item(const Item& item, Environment* environment, bool* possible, TF_Status* status) {
  std::vector<TFE_TensorHandle*> handles, resources;
  bool fine = true;
  for (const Item::In& in : item.inputs) {
    TFE_TensorHandle* handle = input_handle(in, environment, status);
    fine = handle != nullptr;
    if (fine && in.variable) {
      resources.push_back(new_resource(in.dtype, status));
      fine = resources.back() != nullptr && assign_resource(resources.back(), handle, status);
      handle = resources.back();
    }
    if (!fine) break;
    handles.push_back(handle);
  }
  if (!fine && !PyErr_Occurred() && TF_GetCode(status) == TF_OK) *possible = false;
  std::vector<TFE_TensorHandle*> made(item.count + 1);
  int count = item.count;
  if (fine) {
    fine = run_handles(item.use->operation->name.c_str(), item.use->prototype, handles, &count, made.data(), status);
    if (!fine) count = 0;
    for (const Item::Out& out : item.outputs) {
      if (!fine) break;
      if (out.variable) {
        TFE_TensorHandle* contents = read_resource(handles[out.position], item.inputs[out.position].dtype, status);
        fine = contents != nullptr;
        if (fine) environment->set(out.expr.get(), contents);
      } else {
        environment->set(out.expr.get(), made[out.position]);
        made[out.position] = nullptr;
      }
    }
    for (int i = 0; i < count; ++i)
      if (made[i] != nullptr) TFE_DeleteTensorHandle(made[i]);
  }
  for (TFE_TensorHandle* resource : resources)
    if (resource != nullptr) TFE_DeleteTensorHandle(resource);
  return fine;
}

}  // namespace

PyObject* replay(PyObject* wanted, PyObject* known) {
  const std::shared_ptr<Items> held = items;
  const Items& recorded = *held;
  const size_t size = recorded.size();
  if (!replayable || size == 0) Py_RETURN_NONE;
  // Backwards: which operations are needed, and where each expression is used last.
  std::unordered_map<PyObject*, size_t> last;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(wanted); ++i) last[PyList_GET_ITEM(wanted, i)] = size;
  std::vector<bool> needed(size);
  for (size_t i = size; i-- > 0;) {
    for (const Item::Out& out : recorded[i].outputs)
      if (last.count(out.expr.get())) needed[i] = true;
    if (!needed[i]) continue;
    for (const Item::In& in : recorded[i].inputs)
      if (!in.host) last.emplace(in.object.get(), i);
  }
  Environment environment;
  Status status;
  for (size_t i = 0; i < size; ++i) {
    if (!needed[i]) continue;
    bool possible = true;
    if (!run_item(recorded[i], &environment, &possible, status.get)) {
      if (!possible) Py_RETURN_NONE;
      return raise_status(status.get);
    }
    for (const Item::In& in : recorded[i].inputs) {
      auto found = last.find(in.object.get());
      if (in.host || (found != last.end() && found->second == i)) environment.drop(in.object.get());
    }
  }
  Ref found(PyList_New(PyList_GET_SIZE(wanted)));
  for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(wanted); ++i) {
    PyObject* expr = PyList_GET_ITEM(wanted, i);
    PyObject* array = PyDict_GetItemWithError(known, expr);
    Ref made = Ref::borrow(array);
    if (PyErr_Occurred()) return nullptr;
    TFE_TensorHandle* handle = made ? nullptr : environment.find(expr);
    if (handle != nullptr) made = view_of(handle, status.get);
    if (!made && handle != nullptr) return raise_status(status.get);
    if (!made) {
      made = Ref(PyObject_CallOneArg(hooks.leaf, expr));
      if (!made) return nullptr;
      if (made.get() == Py_None) Py_RETURN_NONE;
    }
    PyList_SET_ITEM(found.get(), i, made.release());
  }
  return found.release();
}

}  // namespace lazy_tf
