// Shared by the three files of the extension: geometries, interned nodes, buffers, the table of hits, and the bridge to Python.
//
// Locks.  `state().mutex` guards everything here; it is held for a fraction of a microsecond and never while acquiring the GIL or running Python code.
// The order is: GIL, then the trace's lock (a Python RLock), then this mutex.  Python objects are released only under the GIL (`Deferred`).
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>
#include <c10/util/strides.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace lazytorch {

using c10::IntArrayRef;
using c10::ScalarType;
using Words = c10::SmallVector<uint64_t, 64>;

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline c10::Device device() { return c10::Device(kDeviceType, 0); }

// ---------------------------------------------------------------- data

// Sizes, strides and dtype, interned: equal geometries are one object.
struct Geom {
  ScalarType dtype;
  std::vector<int64_t> sizes, strides;
  int64_t numel;
  bool dense;  // non-overlapping and without gaps: fit to be the layout of a whole storage
  size_t nbytes() const { return numel * c10::elementSize(dtype); }
};

struct Entry;

// An expression of the core; interned, so that identity is equality.  Owns its reference; all are dropped at `evict`.
struct Node {
  PyObject* expr;
  uint64_t skeleton;  // shared by expressions that differ in numbers only (`lazy_core.ir.Expr`)
  // What computes it in the trace of this epoch: the first that did, so that producers never form a circle.  The same expression may have other
  // producers, with other inputs, in other traces.  Null if it came from another frontend.
  const Entry* producer = nullptr;
  uint64_t epoch = ~0ull;
  // While the graph is evaluated natively:
  int uses = 0;
  at::Tensor value;
};

// A materialised value: an array of the backend, or the bytes of a storage in host memory, or both.  One that somebody else refers to, or whose memory
// is shared, is never written to: the writer takes a copy.
struct Array : c10::intrusive_ptr_target {
  PyObject* object = nullptr;
  const Geom* layout = nullptr;  // how the object's dims lie in the storage
  c10::Storage host;
  bool shared = false;  // the host memory is the object's too, or an outsider's
  at::Tensor view;      // of the host memory, as it was read last; its reference is the array's own
  Array() = default;
  Array(PyObject* owned, const Geom* laid) : object(owned), layout(laid) {}
  explicit Array(c10::Storage bytes, bool foreign = false) : host(std::move(bytes)), shared(foreign) {}
  ~Array() override { let_go(); }
  // Whether nobody else refers to the host memory.
  bool alone() const { return !shared && host.use_count() == (view.defined() && view.use_count() == 1 ? 2 : 1); }
  void let_go();  // of the object, and of memory that it may own: deferred to a moment when the GIL is held and the mutex is not
};
using ArrayPtr = c10::intrusive_ptr<Array>;

// The contents of one storage as a value: pending (`node`, in the list of live buffers), or materialised (`array`), or neither: never
// written, which reads as zeros.  `layout` says how the value's logical dims lie in the storage; null where only bytes are held so far.
struct Buffer {
  std::atomic<int> refs{1};
  bool pending = false;
  size_t nbytes = 0;
  const Geom* layout = nullptr;
  Node* node = nullptr;    // pending: the value; materialised: its leaf, if `epoch` is the current one
  uint64_t epoch = ~0ull;
  uint64_t born = 0;  // the trace that wrote it natively
  ArrayPtr array;
  Buffer *prev = nullptr, *next = nullptr;
};

void retain(Buffer* buffer);
void release(Buffer* buffer);  // takes the mutex
Buffer* buffer_of(const at::Tensor& tensor);

// ---------------------------------------------------------------- the table of hits

enum class Tag : uint64_t { LEAF = 1, ZEROS, READ, WRITE, OP, SITE, META, PLACE, READ_AT, WRITE_AT };

// The state of a generator: a value u64[2] (seed, counter) that random operations read and write; `fresh` until the first of them has uploaded the seed.
struct RandomState {
  Buffer* buffer;
  bool fresh = true;
  uint64_t seed = 0, counter = 0;
};

struct Output {
  Node* node;        // null: an undefined tensor
  const Geom* geom;
};
struct Return {
  enum Kind { TENSOR, LIST, ARGUMENT, OTHER } kind;
  int index;  // first output, or the argument
  int count;
  c10::IValue other;
};

struct Entry {
  virtual ~Entry() = default;
  uint64_t hash = 0;
  std::vector<uint64_t> key;
  Node* node = nullptr;  // LEAF, ZEROS, READ, WRITE
  mutable uint64_t visited = 0;
};
struct Number {
  uint32_t word, count;  // where its bits stand in the key
  char type;             // i, f, c, b
  bool fixed, wrapped;   // wrapped: a Python number; otherwise a zero-dim CPU tensor of `dtype`
  ScalarType dtype;
  uint64_t bits[2];
  int64_t slot = -1;  // fed at run time
};
// One tensor or number among the arguments, in order.
struct Item {
  Node* node;
  int number;
  const Geom* geom;
};
// An argument as it was recorded: `value` without the tensors of the device, which are the next items.
struct Argument {
  enum Kind { LITERAL, ITEM, TENSORS, OPTIONAL_TENSORS, NUMBERS } kind = LITERAL;
  c10::IValue value;
  std::vector<bool> present;  // of a list: which elements are items
};
struct Op;
struct OpEntry;
// A trace that for a while runs as it comes, to see how long a round takes that way: from one beginning to the next, with no other trace
// between them.
struct Timed {
  using Clock = std::chrono::steady_clock;
  const OpEntry* first = nullptr;  // how it begins; only compared
  size_t operations = 0;           // that it has, about
  uint64_t trace = 0;              // the latest one that began so
  uint64_t alike = 0;              // the latest one that also had as many operations
  Clock::time_point since;         // the first one
  std::deque<Clock::time_point> beginnings;  // the latest ones
  std::vector<double> rounds;                // in seconds, each the mean of some in a row
};
// What a recorded operation gives for one key, and how to compute it natively.
struct OpEntry final : Entry {
  Op* op = nullptr;
  uint64_t signature = 0;
  bool immediate = false;  // part of a trace that runs faster natively
  uint64_t compiled = 0;   // the latest trace that ran compiled and has it
  uint64_t waits = 0;      // part of a trace that runs natively as long as this is `State::programs`,
  std::chrono::steady_clock::time_point wait_until;  // but not for longer
  uint32_t in_vain = 0;    // how many traces in a row began with it and were recorded only in part
  uint32_t skips = 0;      // so many of the next ones run as they come,
  uint32_t skipped = 0;    // since so many did after the latest that was recorded
  std::vector<Argument> arguments;
  std::vector<Item> items;
  std::vector<Number> numbers;
  bool unsupported = false;  // the builder cannot express these arguments
  std::vector<Return> returns;
  std::vector<Output> outputs;
  std::vector<Output> writes;  // one for each written tensor, in order; node null: unchanged
  Node* next_state = nullptr;
};

inline uint64_t mix(uint64_t a, uint64_t b) {
  __uint128_t m = (__uint128_t)(a ^ 0x9E3779B97F4A7C15ull) * (b ^ 0xD1B54A32D192ED03ull);
  return (uint64_t)m ^ (uint64_t)(m >> 64);
}
uint64_t hash_words(const uint64_t* words, size_t count);

class Table {  // open addressing; entries are compared word for word
 public:
  Table() : slots_(1 << 12) {}
  Entry* find(const Words& key) const;
  Entry* insert(const Words& key, std::unique_ptr<Entry> entry);
  void clear();
  size_t size() const { return count_; }

 private:
  void place(Entry* entry);
  std::vector<std::pair<uint64_t, Entry*>> slots_;
  size_t count_ = 0;
};

// ---------------------------------------------------------------- state

// What Python must add to the tables before an attempt can succeed.
struct Missing {
  Tag tag;
  Words key, site;
  uint32_t slot = 0;
  const Geom *layout = nullptr, *view = nullptr;
  int64_t offset = 0;
  Node *base = nullptr, *update = nullptr;
};

inline constexpr float kUsualLearnSeconds = 5e-3f;
struct State {
  std::mutex mutex;
  Table table;
  std::unordered_map<PyObject*, std::unique_ptr<Node>> nodes;
  std::unordered_multimap<uint64_t, std::unique_ptr<Geom>> geoms;
  uint64_t epoch = 0;              // of slots and producers
  bool lent = false;               // other frontends may have expressions that read this epoch's slots
  bool in_barrier = false;
  Buffer *first = nullptr, *last = nullptr;  // pending buffers, in the order in which they became so
  size_t live = 0;
  std::vector<ArrayPtr> leaves;
  std::vector<double> floats;      // fed at run time in this trace
  std::vector<int64_t> ints;
  std::vector<double> planned_floats;  // what the attempt under way will add to them
  std::vector<int64_t> planned_ints;
  bool any_moving = false;         // whether some view is read or written at an offset that is fed at run time
  std::vector<Buffer*> snapshot;  // between live() and finish()
  std::vector<uint32_t> log;      // operations recorded since the barrier
  size_t cut_at = ~0ull;
  // Tiers.
  enum Tier : int { AUTO = 0, COMPILED = 1, NATIVE = 2 };
  std::atomic<int> tier{AUTO};
  std::atomic<bool> immediate{false};  // operations run natively as they come, until the trace ends
  bool keep_immediate = false;         // a barrier that is not the trace's end is under way
  uint64_t watch_one_in = 1;           // trace of so many is watched
  std::atomic<uint64_t> watched_in_vain{0};  // traces since something was learned
  std::atomic<bool> watched{true};     // whether what runs immediately in this trace may be worth recording another time
  uint64_t prefix = 0;                 // of the trace so far
  std::vector<uint64_t> prefixes;      // of the part that ran as it came
  std::atomic<int64_t> spent{0};       // nanoseconds that it took, without what the program did between operations
  std::atomic<uint64_t> trace{1};
  std::atomic<size_t> fresh{0};        // buffers alive that this trace wrote natively
  std::vector<OpEntry*> followed;      // what this trace found in the table
  std::vector<at::Tensor> computed;    // between native() and finish()
  uint64_t immediate_operations = 0, immediate_traces = 0, direct_operations = 0, run_in_trace = 0;
  double learning_seconds = 0;
  std::atomic<double> wake_after{0};   // seconds from the first wish to record until importing it begins
  std::atomic<bool> awake{false};      // the Python part is imported
  std::atomic<uint64_t> programs{1};   // how often all that was being compiled has come
  std::atomic<float> learn_seconds{kUsualLearnSeconds};  // that an operation's recording and compiling may take
  std::atomic<bool> direct{true};      // operations may run without boxing
  Timed timed;                         // mutex held
  bool examine = false;                // this trace is recorded although it is known to run faster natively
  std::atomic<int> due{0};        // a barrier before the next recorded operation: 1 after an optimizer's step, 2 where the log is long
  uint64_t recorded = 0, misses = 0;
};
State& state();

const Geom* intern_geom(ScalarType dtype, IntArrayRef sizes, IntArrayRef strides);
bool has_geom(const c10::TensorImpl* tensor, const Geom* geom);  // sizes, dtype and the strides that matter; not the offset

// The node of a tensor's value, or false and what is missing.  Mutex held.
struct Value {
  Node* node;
  const Geom* geom;
};
bool read(const at::Tensor& tensor, Value& value, Missing& missing);
bool zeros(const Geom* geom, Node*& node, Missing& missing);
bool leaf(Buffer* buffer, Node*& node, Missing& missing);
bool base_value(Buffer* buffer, const Geom* own, bool whole, Node*& node, Missing& missing);

// A write that has been planned, and is applied by `commit`.
struct Write {
  Buffer* buffer;
  Node* node;
  const Geom* layout;
};
using Writes = c10::SmallVector<Write, 4>;
bool plan_write(const at::Tensor& tensor, Node* value, Writes& writes, Missing& missing);
void commit(const Writes& writes);
void set_pending(Buffer* buffer, Node* node, const Geom* layout);
inline void set_producer(Node* node, const Entry* entry) {
  if (node && node->epoch != state().epoch) node->epoch = state().epoch, node->producer = entry;
}
void set_array(Buffer* buffer, ArrayPtr array, const Geom* layout);
at::Tensor make_tensor(const Geom* geom, Buffer* buffer);
at::Tensor make_tensor(const Geom* geom, Node* node);
at::Tensor make_bare_tensor(ScalarType dtype, Buffer* buffer);  // of no size yet
void resize_for_overwrite(const at::Tensor& tensor, const Geom* geom);

// ---------------------------------------------------------------- the bridge to Python

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
  Gil() = default;
  Gil(const Gil&) = delete;
};
struct Ref {  // an owned reference; only under the GIL
  PyObject* p;
  explicit Ref(PyObject* owned) : p(owned) {}
  Ref(Ref&& other) noexcept : p(other.p) { other.p = nullptr; }
  Ref(const Ref&) = delete;
  ~Ref() { Py_XDECREF(p); }
  PyObject* release() { auto* q = p; p = nullptr; return q; }
};
[[noreturn]] void throw_python_error();
Ref call(const char* method, PyObject* owned_args);  // lazy_torch.tensor.<method>(*args); throws
PyObject* handler();                                  // the module lazy_torch.tensor
void drain();                                         // release what was deferred; GIL held, mutex not held
struct TraceLock {                                    // the trace's lock; GIL held
  TraceLock();
  ~TraceLock();
};
Node* intern_node(PyObject* expr);  // GIL and mutex held
PyObject* geom_object(const Geom* geom, int64_t offset);  // (sizes, strides, offset, dtype code)
void resolve(const Missing& missing);  // GIL and trace lock held, mutex not held
void flush(const char* cause, bool host_read);

// An attempt that succeeds feeds the numbers that it planned.
template <class Attempt>
bool try_planned(Attempt& attempt, Missing& missing) {
  State& s = state();
  s.planned_floats.clear(), s.planned_ints.clear();
  if (!attempt(missing)) return false;
  s.floats.insert(s.floats.end(), s.planned_floats.begin(), s.planned_floats.end());
  s.ints.insert(s.ints.end(), s.planned_ints.begin(), s.planned_ints.end());
  return true;
}
// Try under the mutex; on a miss let Python fill the tables, under the GIL and the trace's lock so that no barrier comes between, and try again.
template <class Attempt, class Resolve>
void with_tables(Attempt&& attempt, Resolve&& fill) {
  Missing missing;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    if (C10_LIKELY(!state().in_barrier) && try_planned(attempt, missing)) return;
  }
  Gil gil;
  TraceLock trace;
  drain();
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(state().mutex);
      TORCH_CHECK(!state().in_barrier, "lazy: an operation was recorded while a barrier runs on the same thread, as by a finaliser or a callback");
      missing.key.clear();
      if (try_planned(attempt, missing)) return;
    }
    fill(missing);
  }
}
template <class Attempt>
void with_tables(Attempt&& attempt) {
  with_tables(attempt, resolve);
}

// ---------------------------------------------------------------- transfers and the rest

at::Tensor to_cpu(const at::Tensor& tensor);             // a host read; may share memory with the device: copy before writing
ArrayPtr upload(const at::Tensor& cpu, IntArrayRef strides);  // copies
bool pull(const ArrayPtr& array);                        // make the bytes available in host memory; takes the GIL
PyObject* push(Array& array, const Geom* layout);        // make the backend's array available (borrowed); GIL held
RandomState* random_state(const c10::IValue& generator);  // of a Generator argument, or the default one
void upload_seed(RandomState* random);                   // mutex held
uint64_t draw_seed(const c10::IValue& generator);        // for a kernel that runs on the host: reads and advances the state
bool is_lazy(const at::Tensor& tensor);

// ---------------------------------------------------------------- native execution

at::Tensor alias(const at::Tensor& tensor, const c10::Storage& host);  // the same view of host memory
const at::Tensor& view_on_host(const at::Tensor& tensor, Array* array);  // likewise, but kept for the next time; mutex held
void make_writable(Buffer* buffer, bool keep);                          // bytes of its own in host memory; mutex held, bytes pulled
void ensure_bytes(const at::Tensor& tensor);                            // nothing pending, and bytes in host memory
void boundary(std::vector<ArrayPtr>& released);                        // the trace ends; mutex held, what is released dies later
void forget_leaves(std::vector<ArrayPtr>& released);                   // of what was begun and not recorded; as above
void run_pending();                                                     // natively, and not as the trace's end
void note_read(Buffer* buffer, std::vector<ArrayPtr>& released);       // the host has read it; as above
bool evaluate(const std::vector<Node*>& roots, const std::vector<const Geom*>& layouts, std::vector<at::Tensor>& results);

void register_device();
void register_operations();
void copy_recorded(const at::Tensor& self, const at::Tensor& src);

}  // namespace lazytorch
