#include <unordered_map>

#include "arrays.h"
#include "items.h"
#include "native.h"

namespace lazy_tf {

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

PyObject* replay_items(const Items& recorded, PyObject* wanted, PyObject* known) {
  const size_t size = recorded.size();
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
