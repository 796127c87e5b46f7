#include "native.h"

#include <cstring>

#include "arrays.h"

namespace lazy_tf {

namespace {

const char* const kCpu = "/job:localhost/replica:0/task:0/device:CPU:0";
// What TensorFlow itself names variables that belong to their handle.
const char* const kAnonymous = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";
constexpr size_t kSpare = 8;

std::vector<TFE_Op*>& spare_ops = *new std::vector<TFE_Op*>;
TFE_Context* spare_context = nullptr;

PyObject* name_handle = PyUnicode_InternFromString("handle");

// An operation to fill; threads take turns with the interpreter's lock, but not while kernels run, so there may be several.
TFE_Op* take_op(const char* name, TF_Status* status) {
  if (spare_context != context) spare_ops.clear();  // they belong to a context that was reset
  spare_context = context;
  if (spare_ops.empty()) {
    TFE_Op* made = TFE_NewOp(context, name, status);
    if (made != nullptr) TFE_OpSetDevice(made, kCpu, status);
    return made;
  }
  TFE_Op* op = spare_ops.back();
  spare_ops.pop_back();
  TFE_OpReset(op, name, kCpu, status);
  if (TF_GetCode(status) == TF_OK) return op;
  TFE_DeleteOp(op);
  return nullptr;
}

void give_op(TFE_Op* op) {
  if (spare_ops.size() < kSpare) {
    spare_ops.push_back(op);
  } else {
    TFE_DeleteOp(op);
  }
}

// Handles that an operation is given: borrowed, and made for it.
struct Handles {
  std::vector<TFE_TensorHandle*> all, made;
  ~Handles() {
    for (TFE_TensorHandle* handle : made) TFE_DeleteTensorHandle(handle);
  }
};

bool add_handle(PyObject* entry, bool changes, Handles* handles, std::vector<PyObject*>* variables, TF_Status* status) {
  if (is_tensor(entry)) {
    TFE_TensorHandle* handle = cpu_handle(as_tensor(entry), status);
    handles->all.push_back(handle);
    return handle != nullptr;
  }
  Ref pointer;
  if (!PyObject_TypeCheck(entry, entry_type)) {
    pointer = Ref(PyObject_GetAttr(entry, name_handle));
  } else if (reinterpret_cast<Entry*>(entry)->handle_dtype == TF_RESOURCE) {
    if (changes) variables->push_back(entry);
    PyObject* arguments[] = {entry, changes ? Py_True : Py_False};
    pointer = Ref(PyObject_Vectorcall(hooks.shadow, arguments, 2, nullptr));
  } else {
    pointer = Ref(PyObject_CallOneArg(hooks.bundle, entry));
    if (pointer) handles->made.push_back(static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(pointer.get())));
  }
  if (!pointer) return false;
  handles->all.push_back(static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(pointer.get())));
  return true;
}

}  // namespace

TFE_TensorHandle* cpu_handle(Tensor* tensor, TF_Status* status) {
  if (tensor->cpu != nullptr) return tensor->cpu;
  Ref array = Ref::borrow(tensor->host);
  if (!array) array = Ref(PyObject_CallOneArg(hooks.host_of, reinterpret_cast<PyObject*>(tensor)));
  if (!array) return nullptr;
  TFE_TensorHandle* made = handle_over(array.get(), tensor->entry.dtype, context, status);
  if (made == nullptr) return nullptr;
  if (tensor->cpu != nullptr) {  // another thread was first
    TFE_DeleteTensorHandle(made);
  } else {
    tensor->cpu = made;
  }
  return tensor->cpu;
}

bool run_handles(const char* name, TFE_Op* prototype, const std::vector<TFE_TensorHandle*>& inputs, int* count, TFE_TensorHandle** outputs,
                 TF_Status* status) {
  TFE_Op* op = take_op(name, status);
  if (op == nullptr) return false;
  if (prototype != nullptr) TFE_OpAddAttrs(op, TFE_OpGetAttrs(prototype));
  for (TFE_TensorHandle* input : inputs) {
    TFE_OpAddInput(op, input, status);
    if (TF_GetCode(status) != TF_OK) {
      TFE_DeleteOp(op);
      return false;
    }
  }
  Py_BEGIN_ALLOW_THREADS
  TFE_Execute(op, outputs, count, status);
  Py_END_ALLOW_THREADS
  give_op(op);
  return TF_GetCode(status) == TF_OK;
}

bool run_on_cpu(Use* use, const Inputs& inputs, int count, Inputs* outputs, TF_Status* status) {
  Handles handles;
  std::vector<PyObject*> variables;
  bool fine = true;
  for (const Ref& input : inputs) fine = fine && add_handle(input.get(), use->operation->changes, &handles, &variables, status);
  std::vector<TFE_TensorHandle*> made(count + 1);
  fine = fine && run_handles(use->operation->name.c_str(), use->prototype, handles.all, &count, made.data(), status);
  for (PyObject* variable : variables) {  // after a failure too: their contents lie in their shadows
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Ref done(PyObject_CallOneArg(hooks.refresh, variable));
    if (type != nullptr) PyErr_Restore(type, value, trace);
    fine = fine && done;
  }
  if (!fine) return false;
  for (int i = 0; i < count; ++i) {
    Ref entry;
    if (is_number(TFE_TensorHandleDataType(made[i]))) {
      entry = Ref(reinterpret_cast<PyObject*>(new_cpu_tensor(made[i], status)));
    } else {
      Ref pointer = number(made[i]);
      entry = Ref(PyObject_CallOneArg(hooks.foreign, pointer.get()));
    }
    outputs->push_back(std::move(entry));
    fine = fine && outputs->back();
  }
  return fine;
}

TFE_TensorHandle* new_resource(int dtype, TF_Status* status) {
  TFE_Op* op = take_op("VarHandleOp", status);
  if (op == nullptr) return nullptr;
  TFE_OpSetAttrType(op, "dtype", static_cast<TF_DataType>(dtype));
  TFE_OpSetAttrShape(op, "shape", nullptr, -1, status);
  TFE_OpSetAttrString(op, "shared_name", kAnonymous, std::strlen(kAnonymous));
  TFE_TensorHandle* made = nullptr;
  int count = 1;
  TFE_Execute(op, &made, &count, status);
  give_op(op);
  return TF_GetCode(status) == TF_OK ? made : nullptr;
}

bool assign_resource(TFE_TensorHandle* resource, TFE_TensorHandle* contents, TF_Status* status) {
  TFE_Op* op = take_op("AssignVariableOp", status);
  if (op == nullptr) return false;
  TFE_OpSetAttrType(op, "dtype", static_cast<TF_DataType>(TFE_TensorHandleDataType(contents)));
  TFE_OpAddInput(op, resource, status);
  TFE_OpAddInput(op, contents, status);
  int count = 0;
  TFE_TensorHandle* none[1];
  TFE_Execute(op, none, &count, status);
  give_op(op);
  return TF_GetCode(status) == TF_OK;
}

TFE_TensorHandle* read_resource(TFE_TensorHandle* resource, int dtype, TF_Status* status) {
  TFE_Op* op = take_op("ReadVariableOp", status);
  if (op == nullptr) return nullptr;
  TFE_OpSetAttrType(op, "dtype", static_cast<TF_DataType>(dtype));
  TFE_OpAddInput(op, resource, status);
  int count = 1;
  TFE_TensorHandle* made = nullptr;
  TFE_Execute(op, &made, &count, status);
  give_op(op);
  return TF_GetCode(status) == TF_OK ? made : nullptr;
}

}  // namespace lazy_tf
