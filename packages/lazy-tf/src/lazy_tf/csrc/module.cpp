// The module `lazy_tf._native`.
#include "device.h"

namespace {

PyObject* configure(PyObject*, PyObject* given) {
  if (!PyDict_Check(given)) {
    PyErr_SetString(PyExc_TypeError, "configure takes a dict");
    return nullptr;
  }
  if (!lazy_tf::configure(given)) return nullptr;
  Py_RETURN_NONE;
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

PyMethodDef methods[] = {
    {"configure", configure, METH_O, "Set the Python functions that the callbacks call."},
    {"device_capsules", device_capsules, METH_O, "What `register_custom_device` takes for a device of this name."},
    {"live_handles", live_handles, METH_NOARGS, "How many handles on the device TensorFlow holds."},
    {"operations", operations, METH_NOARGS, "How many operations came since the trace began."},
    {"set_watching", set_watching, METH_O, "Whether `watch` is to be called before each operation."},
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
