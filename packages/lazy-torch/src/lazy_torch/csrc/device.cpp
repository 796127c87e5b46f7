// The device: guard, hooks, random generators, the source of live values, and the Python module.
#include "operation.h"

#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <algorithm>

namespace lazytorch {

at::Allocator* pinned_allocator();
bool is_pinned(const void* data);
void register_allocator();
void resize_storage(const c10::Storage& storage, size_t nbytes);

// ---------------------------------------------------------------- device guard: one device, one stream

static void check_index(c10::DeviceIndex index) { TORCH_CHECK(index <= 0, "lazy: there is one lazy device, lazy:0; got lazy:", (int)index); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device d) const override { return check_index(d.index()), device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device d) const override { check_index(d.index()); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {
    Gil gil;
    call("synchronize", PyTuple_New(0));
  }

 private:
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device()); }
};

// ---------------------------------------------------------------- generators

static void deny(const char* what) { TORCH_CHECK_NOT_IMPLEMENTED(false, "lazy: Generator.", what, " does not exist on the lazy device"); }

struct Generator final : c10::GeneratorImpl {
  mutable RandomState random{new Buffer()};
  Generator() : c10::GeneratorImpl(lazytorch::device(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {
    random.buffer->nbytes = 16;
    random.seed = c10::default_rng_seed_val;
  }
  ~Generator() override { release(random.buffer); }
  void restart(uint64_t seed, uint64_t counter) const {
    std::lock_guard<std::mutex> lock(state().mutex);
    random.seed = seed;
    random.counter = counter;
    random.fresh = true;
  }
  // (seed, counter), reading the device if random operations have run since the last seed.
  std::pair<uint64_t, uint64_t> now() const {
    return seed_and_counter(&random);
  }
  void set_current_seed(uint64_t seed) override { restart(seed, 0); }
  uint64_t current_seed() const override { return random.seed; }
  uint64_t seed() override {
    const uint64_t s = c10::detail::getNonDeterministicRandom();
    restart(s, 0);
    return s;
  }
  void set_offset(uint64_t offset) override { restart(random.seed, offset); }
  uint64_t get_offset() const override { return now().second; }
  void set_state(const c10::TensorImpl& s) override {
    TORCH_CHECK(s.dtype() == caffe2::TypeMeta::Make<uint8_t>() && s.numel() == 16 && s.device().is_cpu(),
                "lazy: the state of a lazy generator is a CPU uint8 tensor of 16 elements; got ", s.numel(), " elements of ", s.dtype(), " on ", s.device());
    uint64_t words[2];
    memcpy(words, s.data(), 16);
    restart(words[0], words[1]);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto [seed, counter] = now();
    at::Tensor t = at::empty({16}, at::TensorOptions(at::kByte));
    const uint64_t words[2] = {seed, counter};
    memcpy(t.mutable_data_ptr(), words, 16);
    return t.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* g = new Generator();
    auto [seed, counter] = now();
    g->restart(seed, counter);
    return g;
  }
};

static const at::Generator& default_generator() {
  static auto* g = new at::Generator(at::make_generator<Generator>());
  return *g;
}

static Generator* generator_of(const c10::IValue& v) {
  if (!v.isGenerator()) return default_generator().get<Generator>();
  const at::Generator g = v.toGenerator();
  TORCH_CHECK(g.device().type() == kDeviceType, "Expected a '", kDeviceType, "' device type for generator but found '", g.device().type(), "'");
  return g.get<Generator>();
}
RandomState* random_state(const c10::IValue& v) { return &generator_of(v)->random; }

void upload_seed(RandomState* random) {
  at::Tensor words = at::empty({2}, at::TensorOptions(ScalarType::UInt64));
  auto* p = static_cast<uint64_t*>(words.mutable_data_ptr());
  p[0] = random->seed, p[1] = random->counter;
  const int64_t two = 2, one = 1;
  set_array(random->buffer, c10::make_intrusive<Array>(words.storage()), intern_geom(ScalarType::UInt64, {two}, {one}));
  random->fresh = false;
}

std::pair<uint64_t, uint64_t> seed_and_counter(RandomState* random) {
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    if (random->fresh) return {random->seed, random->counter};
  }
  retain(random->buffer);
  const int64_t two = 2, one = 1;
  const Geom* geom;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    geom = intern_geom(ScalarType::UInt64, {two}, {one});
  }
  const at::Tensor host = to_cpu(make_tensor(geom, random->buffer)).contiguous();
  const auto* p = static_cast<const uint64_t*>(host.const_data_ptr());
  return {p[0], p[1]};
}

uint64_t draw_seed(const c10::IValue& v) {
  auto* g = generator_of(v);
  auto [seed, counter] = g->now();
  g->restart(seed, counter + 1);
  return mix(seed, counter);
}

// ---------------------------------------------------------------- hooks

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex i) const override { check_index(i); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex i) const override { return check_index(i), 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex i) const override { return check_index(i), at::make_generator<Generator>(); }
  at::Device getDeviceFromPtr(void*) const override { return device(); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  void resizePrivateUse1Bytes(const c10::Storage& s, size_t n) const override { resize_storage(s, n); }
};

void register_device() {
  register_allocator();
  static Guard guard;
  c10::impl::registerDeviceGuard(kDeviceType, &guard);
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

// ---------------------------------------------------------------- the source of live values (lazy_core.trace.Source)

template <class T, class F>
static PyObject* list_of(const std::vector<T>& items, F&& convert) {
  PyObject* list = PyList_New(items.size());
  for (size_t i = 0; i < items.size(); i++) PyList_SET_ITEM(list, i, convert(items[i]));
  return list;
}
static PyObject* new_ref(PyObject* p) { return Py_INCREF(p), p; }

// Whether a buffer could be retained: one whose last reference is just being released by another thread waits for the mutex to leave the list.
static bool retain_if_alive(Buffer* b) {
  int refs = b->refs.load(std::memory_order_relaxed);
  while (refs > 0)
    if (b->refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acq_rel)) return true;
  return false;
}

static PyObject* py_live(PyObject*, PyObject*) {
  auto& s = state();
  drain();
  std::vector<PyObject*> exprs;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    s.in_barrier = true;
    for (Buffer* b = s.first; b; b = b->next) {
      if (!retain_if_alive(b)) continue;
      s.snapshot.push_back(b);
      exprs.push_back(b->node->expr);
    }
  }
  return list_of(exprs, new_ref);
}

static PyObject* py_leaves(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  return list_of(state().leaves, [](const ArrayPtr& a) { return new_ref(push(*a, a->layout)); });
  END_HANDLE_TH_ERRORS
}

// Nobody but this trace holds the array: its buffers have been overwritten or have died, and no Python object refers to it.
static PyObject* py_donatable(PyObject*, PyObject*) {
  return list_of(state().leaves, [](const ArrayPtr& a) { return PyBool_FromLong(a.use_count() == 1 && (!a->object || Py_REFCNT(a->object) == 1)); });
}

// Everything that live() returned, as CPU tensors in the layouts of their buffers; None if some of it is not this frontend's.
static PyObject* py_native(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  std::vector<Node*> roots;
  std::vector<const Geom*> layouts;
  for (Buffer* b : state().snapshot) roots.push_back(b->node), layouts.push_back(b->layout);
  std::vector<at::Tensor> results;
  if (!evaluate(roots, layouts, results)) Py_RETURN_NONE;
  return list_of(results, [](const at::Tensor& t) { return THPVariable_Wrap(t); });
  END_HANDLE_TH_ERRORS
}

// What a program does often is worth recording, though a trace that begins like it runs faster natively, such as the step whose loss is read:
// so many traces later it is no longer held to do it often.
constexpr uint64_t kOften = 64;
static PyObject* py_settled(PyObject*, PyObject* arg) {
  const int native = PyObject_IsTrue(arg);
  if (native < 0) return nullptr;
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  for (auto* e : s.followed) {
    if (!native) e->compiled = s.trace;
    e->immediate = native && (e->compiled == 0 || s.trace - e->compiled > kOften);
  }
  Py_RETURN_NONE;
}

static PyObject* py_reopened(PyObject*, PyObject*) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  for (auto* e : s.followed) e->immediate = false;
  Py_RETURN_NONE;
}

// A program may be there after so long; each look takes a recorded trace.
constexpr std::chrono::milliseconds kCompiledAfter{1000};
static PyObject* py_postponed(PyObject*, PyObject*) {
  std::lock_guard<std::mutex> lock(state().mutex);
  postpone(kCompiledAfter);
  Py_RETURN_NONE;
}

static PyObject* py_try_natively(PyObject*, PyObject* arg) {
  const double seconds = PyFloat_AsDouble(arg);
  if (PyErr_Occurred()) return nullptr;
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.followed.empty()) Py_RETURN_FALSE;
  postpone(std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds)));
  s.timed = Timed{s.followed.front(), s.log.size()};
  Py_RETURN_TRUE;
}

static PyObject* py_tried(PyObject*, PyObject*) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  std::vector<double> rounds = std::exchange(s.timed, Timed()).rounds;
  if (rounds.size() < 2) Py_RETURN_NONE;  // a hiccup of the machine
  const auto median = rounds.begin() + (rounds.size() - 1) / 2;
  std::nth_element(rounds.begin(), median, rounds.end());
  return PyFloat_FromDouble(*median);
}

static PyObject* py_compiled(PyObject*, PyObject*) {
  state().programs++;
  Py_RETURN_NONE;
}

static PyObject* py_scalars(PyObject*, PyObject*) {
  Ref floats(list_of(state().floats, PyFloat_FromDouble)), ints(list_of(state().ints, [](int64_t i) { return PyLong_FromLongLong(i); }));
  return Py_BuildValue("(OO[])", floats.p, ints.p);
}

static void end_barrier(std::vector<Buffer*>& snapshot) {
  auto& s = state();
  s.in_barrier = false;
  if (!s.keep_immediate) s.due.store(0);
  snapshot.swap(s.snapshot);
}

// What a barrier hands out: an array of the backend, or a CPU tensor, which is shared unless it was computed here.
static ArrayPtr array_of(PyObject* object, const Geom* layout, bool ours, std::unordered_map<PyObject*, ArrayPtr>& known) {
  ArrayPtr& found = known[object];
  if (!found && THPVariable_Check(object)) found = c10::make_intrusive<Array>(c10::Storage(THPVariable_Unpack(object).storage()), !ours);
  if (!found) return c10::make_intrusive<Array>(new_ref(object), layout);
  return found;
}

static PyObject* py_finish(PyObject*, PyObject* args) {
  PyObject* arrays;
  int ours;
  if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &arrays, &ours)) return nullptr;
  auto& s = state();
  if ((size_t)PyList_GET_SIZE(arrays) != s.snapshot.size()) return PyErr_SetString(PyExc_ValueError, "finish: as many arrays as live() gave expressions"), nullptr;
  std::vector<ArrayPtr> fresh;
  std::unordered_map<PyObject*, ArrayPtr> known;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(arrays); i++) fresh.push_back(array_of(PyList_GET_ITEM(arrays, i), s.snapshot[i]->layout, ours, known));
  known.clear();
  std::vector<Buffer*> snapshot;
  std::vector<ArrayPtr> leaves, rest;
  bool ended;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    for (size_t i = 0; i < fresh.size(); i++) set_array(s.snapshot[i], std::move(fresh[i]), s.snapshot[i]->layout);
    leaves.swap(s.leaves);
    s.floats.clear();
    s.ints.clear();
    s.epoch++;
    s.lent = false;
    end_barrier(snapshot);
    ended = !s.keep_immediate;
    if (ended) boundary(rest);
  }
  for (auto* b : snapshot) release(b);
  leaves.clear();
  drain();
  return PyBool_FromLong(ended);
}

static PyObject* py_set_tier(PyObject*, PyObject* arg) {
  const long tier = PyLong_AsLong(arg);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(state().mutex);
  state().tier = (int)tier;
  if (tier != State::AUTO || !state().run_in_trace) state().immediate = tier == State::NATIVE;
  Py_RETURN_NONE;
}

static PyObject* py_set_wake_after(PyObject*, PyObject* arg) {
  const double seconds = PyFloat_AsDouble(arg);
  if (PyErr_Occurred()) return nullptr;
  state().wake_after = seconds;
  Py_RETURN_NONE;
}

static PyObject* py_set_learn_seconds(PyObject*, PyObject* arg) {
  const double seconds = PyFloat_AsDouble(arg);
  if (PyErr_Occurred()) return nullptr;
  state().learn_seconds = seconds;
  Py_RETURN_NONE;
}

static PyObject* py_set_direct(PyObject*, PyObject* arg) {
  const int direct = PyObject_IsTrue(arg);
  if (direct < 0) return nullptr;
  state().direct = direct;
  Py_RETURN_NONE;
}

static PyObject* py_direct_names(PyObject*, PyObject*) {
  return list_of(direct_names(), [](const std::string& name) { return PyUnicode_FromString(name.c_str()); });
}

static PyObject* py_set_awake(PyObject*, PyObject*) {
  state().awake = true;
  Py_RETURN_NONE;
}

static PyObject* py_abort(PyObject*, PyObject*) {
  std::vector<Buffer*> snapshot;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    end_barrier(snapshot);
  }
  for (auto* b : snapshot) release(b);
  Py_RETURN_NONE;
}

static PyObject* py_evict(PyObject*, PyObject*) {
  auto& s = state();
  std::unordered_map<PyObject*, std::unique_ptr<Node>> nodes;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    s.followed.clear();
    s.table.clear();
    nodes.swap(s.nodes);
  }
  for (auto& item : nodes) Py_DECREF(item.first);
  Py_RETURN_NONE;
}

static PyObject* py_counters(PyObject*, PyObject*) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return Py_BuildValue("{s:K,s:K,s:n,s:n,s:n,s:n,s:K,s:K,s:K,s:d}", "recorded", (unsigned long long)s.recorded, "misses", (unsigned long long)s.misses, "live",
                       (Py_ssize_t)s.live, "fresh", (Py_ssize_t)s.fresh.load(), "entries", (Py_ssize_t)s.table.size(), "leaves", (Py_ssize_t)s.leaves.size(),
                       "immediate", (unsigned long long)s.immediate_operations, "immediate_traces", (unsigned long long)s.immediate_traces, "direct",
                       (unsigned long long)s.direct_operations, "learning_seconds", s.learning_seconds);
}

static PyObject* py_log(PyObject*, PyObject*) {
  std::vector<uint32_t> log;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    log = state().log;
  }
  return list_of(log, [](uint32_t i) { return PyLong_FromUnsignedLong(i); });
}

static PyObject* py_set_cut_at(PyObject*, PyObject* arg) {
  const size_t n = PyLong_AsSize_t(arg);
  if (PyErr_Occurred()) return nullptr;
  std::lock_guard<std::mutex> lock(state().mutex);
  state().cut_at = n;
  if (state().due.load() == 2) state().due.store(0);
  Py_RETURN_NONE;
}

static PyObject* py_set_due(PyObject*, PyObject*) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (state().first || state().run_in_trace) state().due.store(1);
  Py_RETURN_NONE;
}

// ---------------------------------------------------------------- values from outside

static PyObject* py_value(PyObject*, PyObject* arg) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(arg) && is_lazy(THPVariable_Unpack(arg)), "expected a tensor on the lazy device");
  const at::Tensor t = THPVariable_Unpack(arg);
  Buffer* b = buffer_of(t);
  ArrayPtr array;
  const Geom* layout = nullptr;
  lazytorch::Value value{nullptr, nullptr};
  with_tables([&](Missing& m) {
    if (!b->pending && b->array && b->layout && t.storage_offset() == 0 && has_geom(t.unsafeGetTensorImpl(), b->layout)) return array = b->array, layout = b->layout, true;
    return read(t, value, m);
  });
  if (array) return Py_BuildValue("(OO)", Py_None, push(*array, layout));
  state().lent = true;
  return Py_BuildValue("(OO)", value.node->expr, Py_None);
  END_HANDLE_TH_ERRORS
}

static PyObject* py_wrap(PyObject*, PyObject* args) {  // (expr or None, array or None, dims, dtype code) -> tensor; the trace's lock held
  HANDLE_TH_ERRORS
  PyObject *expr, *array, *dims;
  int code;
  if (!PyArg_ParseTuple(args, "OOO!i", &expr, &array, &PyTuple_Type, &dims, &code)) return nullptr;
  at::DimVector sizes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dims); i++) sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(dims, i)));
  if (PyErr_Occurred()) return nullptr;
  at::Tensor t;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    const Geom* geom = intern_geom((ScalarType)code, sizes, c10::contiguous_strides(sizes));
    std::unordered_map<PyObject*, ArrayPtr> known;
    if (array != Py_None) {
      ArrayPtr held = array_of(array, geom, false, known);
      auto* b = new Buffer();
      b->nbytes = geom->nbytes();
      set_array(b, held, geom);
      t = make_tensor(geom, b);
    } else {
      Node* node = intern_node(expr);
      set_producer(node, nullptr);
      t = make_tensor(geom, node);
    }
  }
  return THPVariable_Wrap(std::move(t));
  END_HANDLE_TH_ERRORS
}

static PyObject* py_pending(PyObject*, PyObject* arg) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(arg) && is_lazy(THPVariable_Unpack(arg)), "expected a tensor on the lazy device");
  std::lock_guard<std::mutex> lock(state().mutex);
  return PyBool_FromLong(buffer_of(THPVariable_Unpack(arg))->pending);
  END_HANDLE_TH_ERRORS
}

// The default generator's state as a lazy tensor u64[2]: no host read.
static PyObject* py_rng_state(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  RandomState* random = random_state(c10::IValue());
  at::Tensor t;
  with_tables([&](Missing& m) {
    if (random->fresh) upload_seed(random);
    Node* node = random->buffer->node;
    if (!random->buffer->pending && !leaf(random->buffer, node, m)) return false;
    t = make_tensor(random->buffer->layout, node);
    return true;
  });
  return THPVariable_Wrap(std::move(t));
  END_HANDLE_TH_ERRORS
}

static PyObject* py_set_rng_state(PyObject*, PyObject* arg) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(arg) && is_lazy(THPVariable_Unpack(arg)), "expected a tensor on the lazy device");
  const at::Tensor t = THPVariable_Unpack(arg);
  TORCH_CHECK(t.scalar_type() == ScalarType::UInt64 && t.dim() == 1 && t.numel() == 2, "lazy: a generator's state is u64[2]");
  RandomState* random = random_state(c10::IValue());
  with_tables([&](Missing& m) {
    lazytorch::Value value;
    if (!read(t, value, m)) return false;
    set_pending(random->buffer, value.node, value.geom);
    random->fresh = false;
    return true;
  });
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

static PyObject* py_default_generator(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  return THPGenerator_initDefaultGenerator(default_generator());
  END_HANDLE_TH_ERRORS
}

PyObject* py_take_ranges(PyObject*, PyObject*);  // ranges.cpp
void watch_ranges();

static PyObject* py_register(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  register_device();
  watch_ranges();
  register_operations();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// ---------------------------------------------------------------- the bridge

void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

PyObject* handler() {
  static PyObject* module = nullptr;
  if (!module) {
    PyObject* imported = PyImport_ImportModule("lazy_torch.tensor");
    if (!imported) throw_python_error();
    module = imported;
  }
  return module;
}

// In a frame that torch.compile runs, dynamo would take our own Python functions for the user's and trace into them.
struct WithoutDynamo {
  PyObject* before = nullptr;
  WithoutDynamo() { before = set(Py_None); }
  ~WithoutDynamo() {
    if (!before) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(set(before));
    Py_DECREF(before);
    PyErr_Restore(type, value, trace);
  }
  static PyObject* set(PyObject* callback) {
    static PyObject* function = [] {
      PyObject* module = PyImport_ImportModule("torch._C._dynamo.eval_frame");
      PyObject* f = module ? PyObject_GetAttrString(module, "set_eval_frame") : nullptr;
      PyErr_Clear();
      return f;
    }();
    PyObject* old = function ? PyObject_CallFunctionObjArgs(function, callback, nullptr) : nullptr;
    if (!old) PyErr_Clear();
    return old;
  }
};

Ref call(const char* method, PyObject* owned_args) {
  Ref args(owned_args);
  if (!args.p) throw_python_error();
  PyObject* module = handler();
  WithoutDynamo without;
  Ref function(PyObject_GetAttrString(module, method));
  if (!function.p) throw_python_error();
  PyObject* result = PyObject_Call(function.p, args.p, nullptr);
  if (!result) throw_python_error();
  return Ref(result);
}

static PyObject* trace_lock() {
  static PyObject* lock = PyObject_GetAttrString(handler(), "LOCK");
  if (!lock) throw_python_error();
  return lock;
}
TraceLock::TraceLock() {
  if (!Ref(PyObject_CallMethod(trace_lock(), "acquire", nullptr)).p) throw_python_error();
}
TraceLock::~TraceLock() { Ref done(PyObject_CallMethod(trace_lock(), "release", nullptr)); }

Node* intern_node(PyObject* expr) {
  auto& node = state().nodes[expr];
  if (!node) {
    Py_INCREF(expr);
    Ref skeleton(PyObject_GetAttrString(expr, "skeleton"));
    if (!skeleton.p) throw_python_error();
    node = std::make_unique<Node>(Node{expr, PyLong_AsUnsignedLongLong(skeleton.p)});
  }
  return node.get();
}

static PyObject* tuple_of(const std::vector<int64_t>& v) {
  PyObject* t = PyTuple_New(v.size());
  for (size_t i = 0; i < v.size(); i++) PyTuple_SET_ITEM(t, i, PyLong_FromLongLong(v[i]));
  return t;
}
PyObject* geom_object(const Geom* g, int64_t offset) { return Py_BuildValue("(NNLi)", tuple_of(g->sizes), tuple_of(g->strides), (long long)offset, (int)g->dtype); }

void flush(const char* cause, bool host_read) { call("flush", Py_BuildValue("(sO)", cause, host_read ? Py_True : Py_False)); }

// Whether a view that is recorded for the first time at this offset is at other offsets in other traces.
static bool starts_moving(const Missing& m) {
  if ((m.tag != Tag::READ && m.tag != Tag::WRITE) || m.site.empty()) return false;
  Ref answer = call("starts_moving", Py_BuildValue("(y#NN)", (const char*)m.site.data(), (Py_ssize_t)(m.site.size() * 8), geom_object(m.layout, 0), geom_object(m.view, 0)));
  if (!PyObject_IsTrue(answer.p)) return false;
  std::lock_guard<std::mutex> lock(state().mutex);
  state().table.insert(m.site, std::make_unique<Entry>());
  return state().any_moving = true;
}

void resolve(const Missing& m) {
  if (starts_moving(m)) return;
  PyObject* expr = nullptr;
  switch (m.tag) {
    case Tag::LEAF: expr = call("leaf", Py_BuildValue("(IN)", m.slot, geom_object(m.layout, 0))).release(); break;
    case Tag::ZEROS: expr = call("zeros", Py_BuildValue("(N)", geom_object(m.layout, 0))).release(); break;
    case Tag::READ: expr = call("strided_read", Py_BuildValue("(ONN)", m.base->expr, geom_object(m.layout, 0), geom_object(m.view, m.offset))).release(); break;
    case Tag::WRITE:
      expr = call("strided_write", Py_BuildValue("(OONN)", m.base->expr, m.update->expr, geom_object(m.layout, 0), geom_object(m.view, m.offset))).release();
      break;
    case Tag::READ_AT: expr = call("strided_read_at", Py_BuildValue("(ONNI)", m.base->expr, geom_object(m.layout, 0), geom_object(m.view, 0), m.slot)).release(); break;
    case Tag::WRITE_AT:
      expr = call("strided_write_at", Py_BuildValue("(OONNI)", m.base->expr, m.update->expr, geom_object(m.layout, 0), geom_object(m.view, 0), m.slot)).release();
      break;
    default: TORCH_INTERNAL_ASSERT(false, "lazy: nothing to resolve");
  }
  Ref owned(expr);
  auto entry = std::make_unique<Entry>();
  std::lock_guard<std::mutex> lock(state().mutex);
  Node* node = entry->node = intern_node(expr);
  const Entry* kept = state().table.insert(m.key, std::move(entry));
  set_producer(node, kept);
}

static PyMethodDef methods[] = {
    {"register", py_register, METH_NOARGS, "Register the device and its kernels with torch; once."},
    {"live", py_live, METH_NOARGS, "See lazy_core.trace.Source.live."},
    {"leaves", py_leaves, METH_NOARGS, "See lazy_core.trace.Source.leaves."},
    {"donatable", py_donatable, METH_NOARGS, "See lazy_core.trace.Source.donatable."},
    {"native", py_native, METH_NOARGS, "See lazy_core.trace.Source.native."},
    {"postponed", py_postponed, METH_NOARGS, "See lazy_core.trace.Source.postponed."},
    {"try_natively", py_try_natively, METH_O, "See lazy_core.trace.Source.try_natively."},
    {"tried", py_tried, METH_NOARGS, "See lazy_core.trace.Source.tried."},
    {"compiled", py_compiled, METH_NOARGS, "See lazy_core.trace.Source.compiled."},
    {"settled", py_settled, METH_O, "See lazy_core.trace.Source.settled."},
    {"reopened", py_reopened, METH_NOARGS, "See lazy_core.trace.Source.reopened."},
    {"set_tier", py_set_tier, METH_O, "0 auto, 1 compiled, 2 native."},
    {"set_learn_seconds", py_set_learn_seconds, METH_O, "What recording and compiling an operation may take: a trace must have taken as much natively."},
    {"set_direct", py_set_direct, METH_O, "Whether operations may run without boxing, which is the default; for tests."},
    {"direct_names", py_direct_names, METH_NOARGS, "The operations that can run without boxing."},
    {"set_wake_after", py_set_wake_after, METH_O, "For so many seconds after the first question lazy_torch.awake is not asked to import anything."},
    {"set_awake", py_set_awake, METH_NOARGS, "lazy_torch.tensor is imported: recording may begin."},
    {"scalars", py_scalars, METH_NOARGS, "See lazy_core.trace.Source.scalars."},
    {"finish", py_finish, METH_VARARGS, "See lazy_core.trace.Source.finish."},
    {"abort", py_abort, METH_NOARGS, "See lazy_core.trace.Source.abort."},
    {"evict", py_evict, METH_NOARGS, "See lazy_core.trace.Source.evict."},
    {"counters", py_counters, METH_NOARGS, "Counts since the start: recorded, misses, immediate (operations and traces), direct; and now: live, fresh, entries, leaves."},
    {"log", py_log, METH_NOARGS, "The numbers of the operations recorded since the last barrier."},
    {"set_cut_at", py_set_cut_at, METH_O, "Call lazy_torch.tensor.cut() when so many operations have been recorded."},
    {"set_barrier_due", py_set_due, METH_NOARGS, "Cut the trace before the next operation that is recorded."},
    {"value", py_value, METH_O, "tensor -> (expression, None) or (None, array)."},
    {"wrap", py_wrap, METH_VARARGS, "(expression or None, array or None, dims, dtype code) -> tensor."},
    {"pending", py_pending, METH_O, "Whether a lazy tensor's storage has a pending value."},
    {"rng_state", py_rng_state, METH_NOARGS, "The default generator's state as a lazy tensor u64[2]."},
    {"set_rng_state", py_set_rng_state, METH_O, "Set the default generator's state from a lazy tensor u64[2]."},
    {"default_generator", py_default_generator, METH_NOARGS, "The default generator of the device."},
    {"take_ranges", py_take_ranges, METH_NOARGS, "The named ranges that ended since the last call: [(name, begin, end)], in seconds since the epoch."},
    {nullptr, nullptr, 0, nullptr}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "The native part of lazy_torch.", -1, methods};

}  // namespace lazytorch

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&lazytorch::definition); }
