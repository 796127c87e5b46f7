// The module `lazy_tf._native`.
#include "arrays.h"
#include "device.h"
#include "follow.h"
#include "native.h"

namespace {

using lazy_tf::Ref;

struct Status {
  TF_Status* get = TF_NewStatus();
  ~Status() { TF_DeleteStatus(get); }
  // What a failure left: an exception, which it becomes if it was only a status.
  PyObject* failed() const {
    if (PyErr_Occurred()) return nullptr;
    Ref pointer = lazy_tf::number(get);
    Ref done(PyObject_CallOneArg(lazy_tf::hooks.raise, pointer.get()));
    if (done) PyErr_SetString(PyExc_RuntimeError, "TensorFlow failed without a reason");
    return nullptr;
  }
};

PyObject* none(bool fine) { return fine ? Py_NewRef(Py_None) : nullptr; }

PyObject* configure(PyObject*, PyObject* given) {
  if (!PyDict_Check(given)) {
    PyErr_SetString(PyExc_TypeError, "configure takes a dict");
    return nullptr;
  }
  return none(lazy_tf::configure(given));
}

PyObject* device_capsules(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  return text != nullptr ? lazy_tf::device_capsules(text) : nullptr;
}

PyObject* live_handles(PyObject*, PyObject*) { return PyLong_FromLongLong(lazy_tf::live_handles); }

PyObject* operations(PyObject*, PyObject*) { return PyLong_FromLongLong(lazy_tf::operations); }

PyObject* set_watching(PyObject*, PyObject* flag) {
  const int truth = PyObject_IsTrue(flag);
  if (truth < 0) return nullptr;
  lazy_tf::watching = truth;
  Py_RETURN_NONE;
}

PyObject* set_tier(PyObject*, PyObject* given) {
  const long tier = PyLong_AsLong(given);
  if (tier == -1 && PyErr_Occurred()) return nullptr;
  lazy_tf::set_tier(static_cast<int>(tier));
  Py_RETURN_NONE;
}

PyObject* set_cut_at(PyObject*, PyObject* given) {
  const size_t length = PyLong_AsSize_t(given);
  if (PyErr_Occurred()) return nullptr;
  lazy_tf::set_cut_at(length);
  Py_RETURN_NONE;
}

PyObject* immediate(PyObject*, PyObject*) { return PyBool_FromLong(lazy_tf::immediate()); }

PyObject* boundary(PyObject*, PyObject*) {
  lazy_tf::boundary();
  Py_RETURN_NONE;
}

PyObject* settled(PyObject*, PyObject* flag) {
  const int truth = PyObject_IsTrue(flag);
  if (truth < 0) return nullptr;
  lazy_tf::settled(truth);
  Py_RETURN_NONE;
}

PyObject* reopened(PyObject*, PyObject*) {
  lazy_tf::reopened();
  Py_RETURN_NONE;
}

PyObject* postponed(PyObject*, PyObject*) {
  lazy_tf::postponed();
  Py_RETURN_NONE;
}

PyObject* compiled(PyObject*, PyObject*) {
  lazy_tf::compiled();
  Py_RETURN_NONE;
}

PyObject* log(PyObject*, PyObject*) { return lazy_tf::log_list(); }

PyObject* counters(PyObject*, PyObject*) { return lazy_tf::follow_counters(); }

PyObject* replay(PyObject*, PyObject* args) {
  PyObject *wanted, *known;
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &wanted, &PyDict_Type, &known)) return nullptr;
  return lazy_tf::replay(wanted, known);
}

lazy_tf::Tensor* tensor_of(PyObject* object) {
  if (lazy_tf::is_tensor(object)) return lazy_tf::as_tensor(object);
  PyErr_Format(PyExc_TypeError, "expected a Tensor, not %.100s", Py_TYPE(object)->tp_name);
  return nullptr;
}

PyObject* note_read(PyObject*, PyObject* object) {
  lazy_tf::Tensor* tensor = tensor_of(object);
  if (tensor == nullptr) return nullptr;
  lazy_tf::note_read(tensor);
  Py_RETURN_NONE;
}

PyObject* note_wait(PyObject*, PyObject*) {
  lazy_tf::note_wait();
  Py_RETURN_NONE;
}

PyObject* view(PyObject*, PyObject* object) {
  lazy_tf::Tensor* tensor = tensor_of(object);
  if (tensor == nullptr) return nullptr;
  Status status;
  TFE_TensorHandle* handle = lazy_tf::cpu_handle(tensor, status.get);
  Ref array = handle != nullptr ? lazy_tf::view_of(handle, status.get) : Ref();
  return array ? array.release() : status.failed();
}

PyObject* of_handle(PyObject*, PyObject* pointer) {
  auto* handle = static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(pointer));
  if (handle == nullptr) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "no handle");
  Status status;
  return reinterpret_cast<PyObject*>(lazy_tf::new_cpu_tensor(handle, status.get));
}

PyObject* cpu_handle(PyObject*, PyObject* object) {
  lazy_tf::Tensor* tensor = tensor_of(object);
  if (tensor == nullptr) return nullptr;
  Status status;
  TFE_TensorHandle* handle = lazy_tf::cpu_handle(tensor, status.get);
  return handle != nullptr ? PyLong_FromVoidPtr(handle) : status.failed();
}

PyObject* new_resource(PyObject*, PyObject* dtype) {
  const long number = PyLong_AsLong(dtype);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  Status status;
  TFE_TensorHandle* made = lazy_tf::new_resource(static_cast<int>(number), status.get);
  return made != nullptr ? PyLong_FromVoidPtr(made) : status.failed();
}

PyObject* assign_resource(PyObject*, PyObject* args) {
  PyObject *pointer, *object;
  if (!PyArg_ParseTuple(args, "OO", &pointer, &object)) return nullptr;
  auto* resource = static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(pointer));
  lazy_tf::Tensor* tensor = tensor_of(object);
  if (resource == nullptr || tensor == nullptr) return nullptr;
  Status status;
  TFE_TensorHandle* contents = lazy_tf::cpu_handle(tensor, status.get);
  if (contents == nullptr || !lazy_tf::assign_resource(resource, contents, status.get)) return status.failed();
  Py_RETURN_NONE;
}

PyObject* read_resource(PyObject*, PyObject* args) {
  PyObject* pointer;
  int dtype;
  if (!PyArg_ParseTuple(args, "Oi", &pointer, &dtype)) return nullptr;
  auto* resource = static_cast<TFE_TensorHandle*>(PyLong_AsVoidPtr(pointer));
  if (resource == nullptr) return nullptr;
  Status status;
  TFE_TensorHandle* contents = lazy_tf::read_resource(resource, dtype, status.get);
  if (contents == nullptr) return status.failed();
  return reinterpret_cast<PyObject*>(lazy_tf::new_cpu_tensor(contents, status.get));
}

PyMethodDef methods[] = {
    {"configure", configure, METH_O, "Set the Python functions that the callbacks call."},
    {"device_capsules", device_capsules, METH_O, "What `register_custom_device` takes for a device of this name."},
    {"live_handles", live_handles, METH_NOARGS, "How many handles on the device TensorFlow holds."},
    {"operations", operations, METH_NOARGS, "How many operations came since the trace began."},
    {"set_watching", set_watching, METH_O, "Whether `watch` is to be called before each operation."},
    {"set_tier", set_tier, METH_O, "0 for auto, 1 for compiled, 2 for native."},
    {"set_cut_at", set_cut_at, METH_O, "The length of the log at which `cut_if_due` is called."},
    {"immediate", immediate, METH_NOARGS, "Whether operations run at once for the moment."},
    {"boundary", boundary, METH_NOARGS, "A barrier took place."},
    {"postponed", postponed, METH_NOARGS, "The trace that is about to end runs natively until another program is there."},
    {"compiled", compiled, METH_NOARGS, "Another program is there."},
    {"settled", settled, METH_O, "The trace that is about to end runs natively from now on, or compiled."},
    {"reopened", reopened, METH_NOARGS, "The trace that is about to end is measured again."},
    {"log", log, METH_NOARGS, "A number for each operation since the trace began: the same for the same operation and attributes."},
    {"counters", counters, METH_NOARGS, "How many operations ran at once, and in how many traces some did."},
    {"replay", replay, METH_VARARGS, "The values of a list of expressions, from the recorded operations run natively; None if that cannot be."},
    {"note_read", note_read, METH_O, "The host has read this tensor, which lies on the CPU."},
    {"note_wait", note_wait, METH_NOARGS, "The host is about to read what may be pending."},
    {"view", view, METH_O, "A read-only array over a tensor's memory on the CPU."},
    {"of_handle", of_handle, METH_O, "A tensor that owns this CPU handle of numbers."},
    {"cpu_handle", cpu_handle, METH_O, "A CPU handle with a tensor's contents, which stays the tensor's."},
    {"new_resource", new_resource, METH_O, "A handle of a CPU variable of this dtype, which goes with its handle."},
    {"assign_resource", assign_resource, METH_VARARGS, "Let a CPU variable hold a tensor's contents."},
    {"read_resource", read_resource, METH_VARARGS, "What a CPU variable holds, as a tensor."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "lazy_tf._native", "The lazy device's callbacks.", -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&definition);
  if (module != nullptr && !lazy_tf::make_types(module)) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
