// The lazy device's callbacks in C++: what one operation costs in the steady state is spent here and in `lazy_core.values.record`.
//
// Owns: the way of an operation from TensorFlow's call to the handles that it gets back. Operations that were seen before go the short
// way: attributes found by their bytes, operands recorded without a Python frame of ours, or the CPU's kernel called. Everything that is
// new, or out of the ordinary, goes to the same Python functions that serve where no compiler is found (`callbacks.py`). Source:
// TensorFlow's `c_api_experimental.h` (TFE_RegisterCustomDevice).
#include "device.h"

#include <chrono>
#include <cstdlib>

#include "arrays.h"
#include "failing.h"
#include "follow.h"
#include "native.h"
#include "operations.h"

namespace lazy_tf {

Hooks hooks{};
TFE_Context* context = nullptr;
bool watching = false;
long long operations = 0;
long long live_handles = 0;

namespace {

constexpr size_t kScalars = 16384;

std::string device_name;
const char* device_name_seen = nullptr;  // TensorFlow's own copy of it
long long epoch = -1;
auto& known_scalars = *new std::unordered_map<std::string, Ref>;

PyObject* name_epoch = PyUnicode_InternFromString("epoch");
PyObject* name_current = PyUnicode_InternFromString("current");

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

// ------------------------------------------------------------------ handles

int handle_rank(void* data, TF_Status*) { return static_cast<Entry*>(data)->rank; }

int64_t handle_dim(void* data, int index, TF_Status*) { return static_cast<Entry*>(data)->sizes[index]; }

void handle_free(void* data) {
  if (!Py_IsInitialized()) return;  // the process is ending, and its memory with it
  Gil gil;
  --live_handles;
  Py_DECREF(static_cast<PyObject*>(data));
}

TFE_CustomDeviceTensorHandle handle_methods() {
  TFE_CustomDeviceTensorHandle methods;
  methods.num_dims = handle_rank;
  methods.dim = handle_dim;
  methods.deallocator = handle_free;
  return methods;
}

bool ours(TFE_TensorHandle* handle, TF_Status* status) {
  const char* name = TFE_TensorHandleDeviceName(handle, status);
  if (name == nullptr) return false;
  if (name == device_name_seen) return true;
  if (device_name != name) return false;
  device_name_seen = name;
  return true;
}

// A handle that stands for an entry, or null with an exception.
TFE_TensorHandle* handle_of(PyObject* entry, TF_Status* status) {
  if (!PyObject_TypeCheck(entry, entry_type)) {
    Ref taken(PyObject_CallOneArg(hooks.take, entry));
    return taken ? static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(taken.get())) : nullptr;
  }
  const int dtype = reinterpret_cast<Entry*>(entry)->handle_dtype;
  Py_INCREF(entry);
  ++live_handles;
  return TFE_NewCustomDeviceTensorHandle(context, device_name.c_str(), static_cast<TF_DataType>(dtype), entry, handle_methods(), status);
}

Ref host_tensor(PyObject* array, int dtype, bool foldable) {
  Ref dims = dims_of_array(array);
  if (!dims) return Ref();
  return Ref(reinterpret_cast<PyObject*>(new_tensor(dtype, dims.get(), nullptr, array, foldable)));
}

// The entry for a CPU handle; `constant` if it is of the program text.
Ref entry_outside(TFE_TensorHandle* handle, bool constant, TF_Status* status) {
  const int dtype = TFE_TensorHandleDataType(handle);
  if (is_number(dtype)) {
    Ref array = small_array(handle, dtype, status);
    if (PyErr_Occurred()) return Ref();
    if (TF_GetCode(status) != TF_OK) TF_SetStatus(status, TF_OK, "");  // the general way says what is wrong
    if (array) {
      if (!constant || !is_scalar(array.get())) return host_tensor(array.get(), dtype, constant);
      std::string key(1, static_cast<char>(dtype));
      add_bits(array.get(), &key);
      auto found = known_scalars.find(key);
      if (found == known_scalars.end()) {
        if (known_scalars.size() >= kScalars) known_scalars.clear();
        Ref made = host_tensor(array.get(), dtype, true);
        if (!made) return made;
        found = known_scalars.emplace(std::move(key), std::move(made)).first;
      }
      return Ref::borrow(found->second.get());
    }
  }
  Ref pointer = number(handle), state = number(status);
  PyObject* arguments[] = {pointer.get(), state.get()};
  return Ref(PyObject_Vectorcall(hooks.outside, arguments, 2, nullptr));
}

// ------------------------------------------------------------------ operations

// The outputs of operations that need neither attributes nor Python; false to go on.
bool shortcut(Operation* operation, const Inputs& inputs, Inputs* outputs) {
  if (operation->kind == Kind::kOther || inputs.size() != 1) return false;
  PyObject* input = inputs[0].get();
  if (operation->kind == Kind::kRead) {
    if (is_tensor(input) || !PyObject_TypeCheck(input, entry_type)) return false;
    Ref current(PyObject_GetAttr(input, name_current));
    if (!current) PyErr_Clear();
    if (!current || current.get() == Py_None) return false;
    outputs->push_back(std::move(current));
    return true;
  }
  if (operation->kind == Kind::kConstant && is_tensor(input) && as_tensor(input)->host != nullptr && !as_tensor(input)->foldable) return false;
  outputs->push_back(Ref::borrow(input));
  return true;
}

bool begin_operation() {
  Ref now(PyObject_GetAttr(hooks.sites, name_epoch));
  if (!now) return false;
  const long long number = PyLong_AsLongLong(now.get());
  if (number != epoch) {
    epoch = number;
    operations = 0;
    watching = false;
    Ref done(PyObject_CallNoArgs(hooks.restart));
    if (!done) return false;
  }
  ++operations;
  if (!watching) return true;
  Ref done(PyObject_CallNoArgs(hooks.watch));
  return static_cast<bool>(done);
}

bool run_handler(Use* use, const Inputs& inputs, Inputs* outputs) {
  Ref list = list_of(inputs);
  if (!list) return false;
  Ref answer(PyObject_CallFunctionObjArgs(hooks.run, use->operation->info.get(), use->signature.get(), list.get(), nullptr));
  return answer && take_list(answer.get(), outputs);
}

// Record an operation, the short way if there is one.
bool record(const std::shared_ptr<Use>& use, const Inputs& inputs, Inputs* outputs) {
  const std::shared_ptr<Direct> direct = use->direct;
  if (direct != nullptr) {
    if (record_directly(use.get(), direct.get(), inputs, outputs)) return true;
    outputs->clear();
    if (PyErr_Occurred()) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;  // an interrupt
      PyErr_Clear();  // the handler meets it again, and knows what to do
      use->direct = nullptr;
    }
  }
  return run_handler(use.get(), inputs, outputs);
}

// Run or record, whichever is due.
bool dispatch(const std::shared_ptr<Use>& use, const Inputs& inputs, int count, Inputs* outputs, TF_Status* status) {
  Mode mode;
  if (!decide(use.get(), inputs, &mode)) return false;
  if (mode == Mode::kImmediate) {
    const bool asks = use->operation->place == Place::kAsk;
    if (!(asks ? run_handler(use.get(), inputs, outputs) : run_on_cpu(use.get(), inputs, count, outputs, status))) return false;
    note_run(use.get(), *outputs);
    return true;
  }
  Before before;
  note_before(inputs, &before);
  const auto began = std::chrono::steady_clock::now();
  if (!record(use, inputs, outputs)) return false;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  return note_recorded(use, inputs, *outputs, before, mode == Mode::kLearn ? seconds.count() : -1.0);
}

bool same_dims(const Entry* a, const Entry* b) {
  if (a->rank != b->rank || a->dtype != b->dtype) return false;
  for (int i = 0; i < a->rank; ++i)
    if (a->sizes[i] != b->sizes[i]) return false;
  return true;
}

// v += x and v -= x as additions to what the variable holds; `done` is false where that is not what they are.
bool accumulate(Operation* operation, const Inputs& inputs, bool* done, TF_Status* status) {
  PyObject* variable = inputs[0].get();
  if (is_tensor(variable) || !PyObject_TypeCheck(variable, entry_type) || !is_tensor(inputs[1].get())) return true;
  Ref current(PyObject_GetAttr(variable, name_current));
  if (!current) return false;
  if (!is_tensor(current.get())) return true;
  auto* held = reinterpret_cast<Entry*>(current.get());
  if (!same_dims(held, reinterpret_cast<Entry*>(inputs[1].get()))) return true;
  const int dtype = held->dtype;
  const bool scalar = held->rank == 0;
  Operation* sum = operation_of(operation->kind == Kind::kAdd ? "AddV2" : "Sub");
  if (sum == nullptr) return false;
  std::shared_ptr<Use> use = use_of_type(sum, 2, dtype, status);
  if (use == nullptr) return false;
  Inputs operands, outputs;
  operands.push_back(std::move(current));
  operands.push_back(Ref::borrow(inputs[1].get()));
  if (!dispatch(use, operands, 1, &outputs, status)) return false;
  if (PyObject_SetAttr(variable, name_current, outputs[0].get()) < 0) return false;
  *done = true;
  if (!scalar || dtype == TF_FLOAT) return true;
  Ref ended(PyObject_CallOneArg(hooks.step_ended, outputs[0].get()));
  return static_cast<bool>(ended);
}

bool all_foldable(const Inputs& inputs) {
  for (const Ref& input : inputs)
    if (!is_tensor(input.get()) || !as_tensor(input.get())->foldable) return false;
  return !inputs.empty();
}

// Compute with constants of the program text on the host, on every tier; `done` is false where that is not to be done.
bool fold(Use* use, const Inputs& inputs, Inputs* outputs, bool* done) {
  Ref list = list_of(inputs);
  Ref answer(list ? PyObject_CallFunctionObjArgs(hooks.fold, use->signature.get(), list.get(), nullptr) : nullptr);
  if (!answer) return false;
  *done = answer.get() != Py_None;
  return !*done || take_list(answer.get(), outputs);
}

bool run(const TFE_Op* op, int* count, Inputs* outputs, TF_Status* status) {
  context = TFE_OpGetContext(op, status);
  if (!begin_operation()) return false;
  Operation* operation = operation_of(TFE_OpGetName(op, status));
  if (operation == nullptr) return false;
  const int total = operation->arity >= 0 ? operation->arity : TFE_OpGetFlatInputCount(op, status);
  Inputs inputs;
  inputs.reserve(total);
  for (int i = 0; i < total; ++i) {
    TFE_TensorHandle* handle = TFE_OpGetFlatInput(op, i, status);
    if (ours(handle, status)) {
      inputs.push_back(Ref::borrow(static_cast<PyObject*>(TFE_TensorHandleDevicePointer(handle, status))));
    } else {
      inputs.push_back(entry_outside(handle, operation->kind == Kind::kConstant, status));
      if (!inputs.back()) return false;
    }
  }
  if (shortcut(operation, inputs, outputs)) return true;
  if (operation->kind == Kind::kAdd || operation->kind == Kind::kSubtract) {
    bool done = false;
    if (!accumulate(operation, inputs, &done, status)) return false;
    if (done) return true;
  }
  if (operation->fast) {
    Ref list = list_of(inputs);
    Ref answer(list ? PyObject_CallOneArg(operation->fast.get(), list.get()) : nullptr);
    if (!answer) return false;
    if (answer.get() != Py_None) return take_list(answer.get(), outputs);
  }
  std::shared_ptr<Use> use = use_of(operation, op, inputs, status);
  if (use == nullptr) return false;
  if (operation->place == Place::kHost) return run_handler(use.get(), inputs, outputs);
  if (all_foldable(inputs)) {
    bool done = false;
    if (!fold(use.get(), inputs, outputs, &done)) return false;
    if (done) return true;
  }
  return dispatch(use, inputs, *count, outputs, status);
}

void execute(const TFE_Op* op, int* count, TFE_TensorHandle** handles, TF_Status* status, void*) {
  Gil gil;
  Inputs outputs;
  if (!run(op, count, &outputs, status)) {
    fail(status);
    return;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    handles[i] = handle_of(outputs[i].get(), status);
    if (handles[i] == nullptr) {
      fail(status);
      return;
    }
  }
  *count = static_cast<int>(outputs.size());
}

TFE_TensorHandle* copy_to(TFE_Context* of, TFE_TensorHandle* handle, TF_Status* status, void*) {
  Gil gil;
  context = of;
  Ref pointer = number(handle);
  Ref entry(PyObject_CallOneArg(hooks.copy_to, pointer.get()));
  TFE_TensorHandle* made = entry ? handle_of(entry.get(), status) : nullptr;
  fail(status);
  return made;
}

TFE_TensorHandle* copy_from(TFE_Context* of, TFE_TensorHandle* handle, const char*, TF_Status* status, void*) {
  Gil gil;
  context = of;
  auto* entry = static_cast<PyObject*>(TFE_TensorHandleDevicePointer(handle, status));
  if (is_tensor(entry) && as_tensor(entry)->cpu != nullptr) {
    note_read(as_tensor(entry));
    return TFE_TensorHandleCopySharingTensor(as_tensor(entry)->cpu, status);
  }
  Ref pointer(PyObject_CallOneArg(hooks.copy_from, entry));
  if (!pointer) {
    fail(status);
    return nullptr;
  }
  return static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(pointer.get()));
}

struct Wanted {
  const char* name;
  PyObject** into;
};

}  // namespace

bool configure(PyObject* given) {
  const Wanted wanted[] = {
      {"resolve", &hooks.resolve},       {"by_blob", &hooks.by_blob},   {"by_dtypes", &hooks.by_dtypes},   {"describe", &hooks.describe},
      {"run", &hooks.run},               {"record", &hooks.record},     {"attributes", &hooks.attributes}, {"outside", &hooks.outside},
      {"take", &hooks.take},             {"host_of", &hooks.host_of},   {"foreign", &hooks.foreign},       {"copy_to", &hooks.copy_to},
      {"copy_from", &hooks.copy_from},   {"fail", &hooks.fail},         {"fold", &hooks.fold},             {"raise", &hooks.raise},           {"shadow", &hooks.shadow},
      {"refresh", &hooks.refresh},       {"bundle", &hooks.bundle},     {"leaf", &hooks.leaf},             {"flush", &hooks.flush},
      {"may_learn", &hooks.may_learn},   {"cut_if_due", &hooks.cut_if_due}, {"sites", &hooks.sites},       {"restart", &hooks.restart},
      {"step_ended", &hooks.step_ended}, {"watch", &hooks.watch},
  };
  for (const Wanted& one : wanted) {
    PyObject* found = PyDict_GetItemString(given, one.name);
    if (found == nullptr) {
      PyErr_Format(PyExc_KeyError, "no hook %s", one.name);
      return false;
    }
    Py_XSETREF(*one.into, Py_NewRef(found));
  }
  PyObject* dtypes = PyDict_GetItemString(given, "numbers");
  PyObject* type = PyDict_GetItemString(given, "tensor");
  if (dtypes == nullptr || type == nullptr || !PyDict_Check(dtypes) || !PyType_Check(type)) {
    PyErr_SetString(PyExc_KeyError, "no dtypes or no class of tensors");
    return false;
  }
  PyObject* ident = PyDict_GetItemString(given, "main_thread");
  set_raising(ident != nullptr ? PyLong_AsUnsignedLong(ident) : 0, PyDict_GetItemString(given, "constructor"));
  if (PyErr_Occurred()) return false;
  Py_INCREF(type);
  tensor_class = reinterpret_cast<PyTypeObject*>(type);
  forget_operations();
  return use_numbers(dtypes);
}

PyObject* device_capsules(const char* name) {
  device_name = name;
  device_name_seen = nullptr;
  static TFE_CustomDevice device;
  device = TFE_CustomDevice();
  device.copy_tensor_to_device = copy_to;
  device.copy_tensor_from_device = copy_from;
  device.execute = execute;
  device.delete_device = std::free;
  // TensorFlow copies the struct, and frees the information, which must not be null, with `delete_device`.
  PyObject* made = PyCapsule_New(&device, "TFE_CustomDevice", nullptr);
  PyObject* information = made != nullptr ? PyCapsule_New(std::malloc(8), "TFE_CustomDevice_DeviceInfo", nullptr) : nullptr;
  return information != nullptr ? Py_BuildValue("NN", made, information) : nullptr;
}

}  // namespace lazy_tf
