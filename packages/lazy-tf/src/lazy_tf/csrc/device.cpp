// The lazy device's callbacks in C++: what one operation costs in the steady state is spent here and in `lazy_core.values.record`.
//
// Owns: reading an operation (name, attributes, inputs) through TensorFlow's C API, and the short way of operations that were seen
// before: attributes found by their bytes, operands recorded without a Python frame of ours. Everything that is new, or out of the
// ordinary, goes to the same Python functions that serve where no compiler is found (`callbacks.py`). Source: TensorFlow's
// `c_api_experimental.h` (TFE_RegisterCustomDevice).
#include "device.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <cstdlib>
#include <cstring>

#include "operations.h"

namespace lazy_tf {

Hooks hooks{};
bool watching = false;
long long operations = 0;
long long live_handles = 0;

namespace {

constexpr int kSmall = 64;        // as tensor.SMALL
constexpr size_t kScalars = 16384;
constexpr int kDtypes = 64;

PyArray_Descr* numbers[kDtypes];  // NumPy's dtype of each of TensorFlow's that the device holds
std::string device_name;
const char* device_name_seen = nullptr;  // TensorFlow's own copy of it
long long epoch = -1;
// Never destroyed: when the process ends, Python objects must not be touched any more.
auto& known_operations = *new std::unordered_map<std::string, std::unique_ptr<Operation>>;
auto& known_scalars = *new std::unordered_map<std::string, Ref>;
PyObject *name_epoch, *name_shape, *name_dims, *name_current, *name_operand;

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

Ref number(const void* pointer) { return Ref(PyLong_FromVoidPtr(const_cast<void*>(pointer))); }

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
TFE_TensorHandle* handle_of(PyObject* entry, TFE_Context* context, TF_Status* status) {
  if (!PyObject_TypeCheck(entry, entry_type)) {
    Ref taken(PyObject_CallOneArg(hooks.take, entry));
    return taken ? static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(taken.get())) : nullptr;
  }
  const int dtype = reinterpret_cast<Entry*>(entry)->handle_dtype;
  Py_INCREF(entry);
  ++live_handles;
  return TFE_NewCustomDeviceTensorHandle(context, device_name.c_str(), static_cast<TF_DataType>(dtype), entry, handle_methods(), status);
}

// ------------------------------------------------------------------ CPU handles

// The contents of a small CPU handle as a new array, or null: with an exception, or without if it is not small or carries an error.
Ref small_array(TFE_TensorHandle* handle, int dtype, TF_Status* status) {
  npy_intp dims[kSmall];
  const int rank = TFE_TensorHandleNumDims(handle, status);
  if (rank < 0 || rank > 8) return Ref();
  int64_t size = 1;
  for (int i = 0; i < rank; ++i) {
    dims[i] = TFE_TensorHandleDim(handle, i, status);
    size *= dims[i];
  }
  if (size > kSmall || TF_GetCode(status) != TF_OK) return Ref();
  TF_Tensor* tensor = TFE_TensorHandleResolve(handle, status);
  if (tensor == nullptr) return Ref();
  Py_INCREF(numbers[dtype]);
  Ref array(PyArray_NewFromDescr(&PyArray_Type, numbers[dtype], rank, dims, nullptr, nullptr, 0, nullptr));
  if (array) {
    auto* made = reinterpret_cast<PyArrayObject*>(array.get());
    std::memcpy(PyArray_DATA(made), TF_TensorData(tensor), TF_TensorByteSize(tensor));
    PyArray_CLEARFLAGS(made, NPY_ARRAY_WRITEABLE);
  }
  TF_DeleteTensor(tensor);
  return array;
}

Ref dims_of_array(PyArrayObject* array) {
  Ref dims(PyTuple_New(PyArray_NDIM(array)));
  for (int i = 0; dims && i < PyArray_NDIM(array); ++i) PyTuple_SET_ITEM(dims.get(), i, PyLong_FromLongLong(PyArray_DIM(array, i)));
  return dims;
}

Ref host_tensor(PyObject* array, int dtype, bool foldable) {
  Ref dims = dims_of_array(reinterpret_cast<PyArrayObject*>(array));
  if (!dims) return Ref();
  return Ref(reinterpret_cast<PyObject*>(new_tensor(dtype, dims.get(), nullptr, array, foldable)));
}

// The entry for a CPU handle; `constant` if it is of the program text.
Ref entry_outside(TFE_TensorHandle* handle, bool constant, TF_Status* status) {
  const int dtype = TFE_TensorHandleDataType(handle);
  if (dtype >= 0 && dtype < kDtypes && numbers[dtype] != nullptr) {
    Ref array = small_array(handle, dtype, status);
    if (PyErr_Occurred()) return Ref();
    if (TF_GetCode(status) != TF_OK) TF_SetStatus(status, TF_OK, "");  // the general way says what is wrong
    if (array) {
      auto* contents = reinterpret_cast<PyArrayObject*>(array.get());
      if (!constant || PyArray_NDIM(contents) != 0) return host_tensor(array.get(), dtype, constant);
      std::string key(1, static_cast<char>(dtype));
      key.append(static_cast<const char*>(PyArray_DATA(contents)), PyArray_NBYTES(contents));
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

// ------------------------------------------------------------------ operations and their uses

Operation* operation_of(const char* name) {
  auto found = known_operations.find(name);
  if (found != known_operations.end()) return found->second.get();
  Ref answer(PyObject_CallFunction(hooks.resolve, "y", name));
  PyObject *info, *fast;
  int arity, follows;
  if (!answer || !PyArg_ParseTuple(answer.get(), "OOip", &info, &fast, &arity, &follows)) return nullptr;
  auto made = std::make_unique<Operation>();
  made->info = Ref::borrow(info);
  if (fast != Py_None) made->fast = Ref::borrow(fast);
  made->arity = arity;
  made->follows = follows;
  if (std::strcmp(name, "_EagerConst") == 0) made->kind = Kind::kConstant;
  if (std::strcmp(name, "Identity") == 0) made->kind = Kind::kIdentity;
  if (std::strcmp(name, "ReadVariableOp") == 0) made->kind = Kind::kRead;
  return known_operations.emplace(name, std::move(made)).first->second.get();
}

std::shared_ptr<Use> use_of(Operation* operation, const TFE_Op* op, const std::vector<Ref>& inputs, TF_Status* status) {
  std::string key;
  if (operation->follows) {
    for (const Ref& input : inputs) {
      Entry* entry = reinterpret_cast<Entry*>(input.get());
      int dtype = -1;
      if (PyObject_TypeCheck(input.get(), entry_type)) {
        dtype = entry->dtype;
      } else {
        Ref given(PyObject_GetAttrString(input.get(), "dtype"));
        if (!given) return nullptr;
        dtype = static_cast<int>(PyLong_AsLong(given.get()));
      }
      key.push_back(static_cast<char>(dtype));
    }
  } else {
    TF_Buffer* buffer = TF_NewBuffer();
    TFE_OpAttrsSerialize(TFE_OpGetAttrs(op), buffer, status);
    key.assign(static_cast<const char*>(buffer->data), buffer->length);
    TF_DeleteBuffer(buffer);
  }
  auto found = operation->uses.find(key);
  if (found != operation->uses.end()) return found->second;
  auto made = std::make_shared<Use>();
  if (operation->follows) {
    Ref dtypes(PyTuple_New(key.size()));
    if (!dtypes) return nullptr;
    for (size_t i = 0; i < key.size(); ++i) PyTuple_SET_ITEM(dtypes.get(), i, PyLong_FromLong(static_cast<unsigned char>(key[i])));
    made->signature = Ref(PyObject_CallFunctionObjArgs(hooks.by_dtypes, operation->info.get(), dtypes.get(), nullptr));
  } else {
    Ref blob(PyBytes_FromStringAndSize(key.data(), key.size()));
    if (!blob) return nullptr;
    made->signature = Ref(PyObject_CallFunctionObjArgs(hooks.by_blob, operation->info.get(), blob.get(), nullptr));
  }
  if (!made->signature) return nullptr;
  if (operation->uses.size() >= kUsesLimit) operation->uses.clear();
  operation->uses.emplace(std::move(key), made);
  return made;
}

bool read_integers(PyObject* tuple, std::vector<int>* into) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) into->push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(tuple, i))));
  return !PyErr_Occurred();
}

// Ask, after the first run, whether a use can be recorded without its handler.
bool ask_direct(Use* use) {
  Ref answer(PyObject_CallOneArg(hooks.direct, use->signature.get()));
  if (!answer) return false;
  use->asked = true;
  if (answer.get() == Py_None) return true;
  PyObject *target, *operands, *hosts, *outputs;
  int check;
  if (!PyArg_ParseTuple(answer.get(), "OO!O!pO!", &target, &PyTuple_Type, &operands, &PyTuple_Type, &hosts, &check, &PyTuple_Type, &outputs))
    return false;
  auto direct = std::make_shared<Direct>();
  direct->target = Ref::borrow(target);
  direct->check = check;
  if (!read_integers(operands, &direct->operands) || !read_integers(hosts, &direct->hosts) || !read_integers(outputs, &direct->outputs))
    return false;
  use->direct = std::move(direct);
  return true;
}

Ref list_of(const std::vector<Ref>& inputs) {
  Ref list(PyList_New(inputs.size()));
  for (size_t i = 0; list && i < inputs.size(); ++i) PyList_SET_ITEM(list.get(), i, Py_NewRef(inputs[i].get()));
  return list;
}

// ------------------------------------------------------------------ recording

// The attributes that the contents of `hosts` stand for; null with an exception, or without one if the host does not know them.
Ref direct_attributes(Use* use, Direct* direct, const std::vector<Ref>& inputs) {
  std::string key;
  for (int position : direct->hosts) {
    PyObject* host = as_tensor(inputs[position].get())->host;
    if (host == nullptr || !PyArray_Check(host) || !PyArray_IS_C_CONTIGUOUS(reinterpret_cast<PyArrayObject*>(host))) return Ref();
    auto* array = reinterpret_cast<PyArrayObject*>(host);
    key.push_back(static_cast<char>(PyArray_NDIM(array)));
    key.append(reinterpret_cast<const char*>(PyArray_DIMS(array)), sizeof(npy_intp) * PyArray_NDIM(array));
    key.append(static_cast<const char*>(PyArray_DATA(array)), PyArray_NBYTES(array));
  }
  auto found = direct->attributes.find(key);
  if (found != direct->attributes.end()) return Ref::borrow(found->second.get());
  Ref list = list_of(inputs);
  if (!list) return Ref();
  Ref made(PyObject_CallFunctionObjArgs(hooks.attributes, use->signature.get(), list.get(), nullptr));
  if (!made) return made;
  if (direct->attributes.size() >= kUsesLimit) direct->attributes.clear();
  direct->attributes.emplace(std::move(key), Ref::borrow(made.get()));
  return made;
}

Ref tensor_of_value(PyObject* value, int dtype) {
  Ref shape(PyObject_GetAttr(value, name_shape));
  if (!shape) return Ref();
  Ref dims(PyObject_GetAttr(shape.get(), name_dims));
  if (!dims) return Ref();
  return Ref(reinterpret_cast<PyObject*>(new_tensor(dtype, dims.get(), value, nullptr, false)));
}

// Record a use without its handler; false if that is not possible (with an exception where recording raised one).
bool record_directly(Use* use, Direct* direct, const std::vector<Ref>& inputs, std::vector<Ref>* outputs) {
  bool all_foldable = !inputs.empty();
  for (const Ref& input : inputs) {
    if (!is_tensor(input.get())) return false;
    const Tensor* tensor = as_tensor(input.get());
    if (!tensor->foldable) all_foldable = false;
    if (direct->check && tensor->host != nullptr) return false;
  }
  if (all_foldable) return false;
  Ref attributes = direct_attributes(use, direct, inputs);
  if (!attributes) return false;
  Ref operands(PyTuple_New(direct->operands.size()));
  if (!operands) return false;
  for (size_t i = 0; i < direct->operands.size(); ++i) {
    PyObject* input = inputs[direct->operands[i]].get();
    PyObject* value = as_tensor(input)->value;
    value = value != nullptr ? Py_NewRef(value) : PyObject_CallMethodNoArgs(input, name_operand);
    if (value == nullptr) return false;
    PyTuple_SET_ITEM(operands.get(), i, value);
  }
  PyObject* arguments[] = {direct->target.get(), operands.get(), attributes.get()};
  Ref result(PyObject_Vectorcall(hooks.record, arguments, 3, nullptr));
  if (!result) return false;
  const bool several = PyTuple_CheckExact(result.get());
  const size_t count = several ? PyTuple_GET_SIZE(result.get()) : 1;
  if (count != direct->outputs.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    outputs->push_back(tensor_of_value(several ? PyTuple_GET_ITEM(result.get(), i) : result.get(), direct->outputs[i]));
    if (!outputs->back()) return false;
  }
  return true;
}

bool take_list(PyObject* answer, std::vector<Ref>* outputs) {
  Ref fast(PySequence_Fast(answer, "a handler must return a list of entries"));
  if (!fast) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    outputs->push_back(Ref::borrow(PySequence_Fast_GET_ITEM(fast.get(), i)));
  return true;
}

// The outputs of operations that need neither attributes nor Python; false to go on.
bool shortcut(Operation* operation, const std::vector<Ref>& inputs, std::vector<Ref>* outputs) {
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

bool run(const TFE_Op* op, std::vector<Ref>* outputs, bool* variadic, TF_Status* status) {
  if (!begin_operation()) return false;
  Operation* operation = operation_of(TFE_OpGetName(op, status));
  if (operation == nullptr) return false;
  *variadic = operation->arity == -2;
  const int total = operation->arity >= 0 ? operation->arity : TFE_OpGetFlatInputCount(op, status);
  std::vector<Ref> inputs;
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
  if (operation->fast) {
    Ref list = list_of(inputs);
    Ref answer(list ? PyObject_CallOneArg(operation->fast.get(), list.get()) : nullptr);
    if (!answer) return false;
    if (answer.get() != Py_None) return take_list(answer.get(), outputs);
  }
  std::shared_ptr<Use> use = use_of(operation, op, inputs, status);
  if (use == nullptr) return false;
  const std::shared_ptr<Direct> direct = use->direct;
  if (direct != nullptr) {
    if (record_directly(use.get(), direct.get(), inputs, outputs)) return true;
    outputs->clear();
    if (PyErr_Occurred()) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
      PyErr_Clear();  // the handler meets it again, and knows what to do
      use->direct = nullptr;
    }
  }
  Ref list = list_of(inputs);
  if (!list) return false;
  Ref answer(PyObject_CallFunctionObjArgs(hooks.run, operation->info.get(), use->signature.get(), list.get(), nullptr));
  if (!answer) return false;
  if (!use->asked && !ask_direct(use.get())) return false;
  return take_list(answer.get(), outputs);
}

// Hand the exception in flight to TensorFlow.
void fail(TF_Status* status) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Ref kind(type), error(value), where(trace), state = number(status);
  PyObject* arguments[] = {state.get(), error ? error.get() : Py_None};
  Ref done(PyObject_Vectorcall(hooks.fail, arguments, 2, nullptr));
  if (!done) {
    PyErr_Clear();
    TF_SetStatus(status, TF_INTERNAL, "the lazy device failed, and failed to say why");
  }
}

void execute(const TFE_Op* op, int* count, TFE_TensorHandle** handles, TF_Status* status, void*) {
  Gil gil;
  std::vector<Ref> outputs;
  bool variadic = false;
  if (!run(op, &outputs, &variadic, status)) {
    fail(status);
    return;
  }
  TFE_Context* context = TFE_OpGetContext(op, status);
  for (size_t i = 0; i < outputs.size(); ++i) {
    handles[i] = handle_of(outputs[i].get(), context, status);
    if (handles[i] == nullptr && PyErr_Occurred()) {
      fail(status);
      return;
    }
  }
  if (variadic) *count = static_cast<int>(outputs.size());
}

TFE_TensorHandle* copy_to(TFE_Context* context, TFE_TensorHandle* handle, TF_Status* status, void*) {
  Gil gil;
  Ref pointer = number(handle);
  Ref entry(PyObject_CallOneArg(hooks.copy_to, pointer.get()));
  TFE_TensorHandle* made = entry ? handle_of(entry.get(), context, status) : nullptr;
  if (PyErr_Occurred()) fail(status);
  return made;
}

TFE_TensorHandle* copy_from(TFE_Context*, TFE_TensorHandle* handle, const char*, TF_Status* status, void*) {
  Gil gil;
  Ref pointer(PyObject_CallOneArg(hooks.copy_from, static_cast<PyObject*>(TFE_TensorHandleDevicePointer(handle, status))));
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
  if (PyArray_ImportNumPyAPI() < 0) return false;
  const Wanted wanted[] = {
      {"resolve", &hooks.resolve}, {"by_blob", &hooks.by_blob},     {"by_dtypes", &hooks.by_dtypes}, {"run", &hooks.run},
      {"direct", &hooks.direct},   {"attributes", &hooks.attributes}, {"record", &hooks.record},       {"outside", &hooks.outside},
      {"take", &hooks.take},       {"copy_to", &hooks.copy_to},     {"copy_from", &hooks.copy_from}, {"fail", &hooks.fail},
      {"sites", &hooks.sites},     {"restart", &hooks.restart},     {"watch", &hooks.watch},
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
  Py_INCREF(type);
  tensor_class = reinterpret_cast<PyTypeObject*>(type);
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(dtypes, &place, &key, &value)) {
    const long number = PyLong_AsLong(key);
    if (number < 0 || number >= kDtypes || !PyArray_DescrCheck(value)) {
      PyErr_SetString(PyExc_ValueError, "a dtype with a number that TensorFlow has not");
      return false;
    }
    Py_INCREF(value);
    numbers[number] = reinterpret_cast<PyArray_Descr*>(value);
  }
  name_epoch = PyUnicode_InternFromString("epoch");
  name_shape = PyUnicode_InternFromString("shape");
  name_dims = PyUnicode_InternFromString("dims");
  name_current = PyUnicode_InternFromString("current");
  name_operand = PyUnicode_InternFromString("operand");
  return true;
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
