// The module `lazy_numpy._native`.
#define LAZY_NUMPY_IMPORTS_ARRAY
#include "state.h"

namespace {

PyObject* none(bool fine) { return fine ? Py_NewRef(Py_None) : nullptr; }

PyObject* configure(PyObject*, PyObject* given) {
  if (!PyDict_Check(given)) {
    PyErr_SetString(PyExc_TypeError, "configure takes a dict");
    return nullptr;
  }
  return none(lazy_numpy::configure(given));
}

PyObject* install_operators(PyObject*, PyObject* table) {
  if (!PyDict_Check(table)) {
    PyErr_SetString(PyExc_TypeError, "install_operators takes a dict");
    return nullptr;
  }
  return none(lazy_numpy::install_operators(table));
}

PyObject* install_items(PyObject*, PyObject* args) {
  PyObject *get = nullptr, *set = nullptr, *get_number = nullptr, *set_number = nullptr;
  if (!PyArg_ParseTuple(args, "OOOO", &get, &set, &get_number, &set_number)) return nullptr;
  return none(lazy_numpy::install_items(get, set, get_number, set_number));
}

PyObject* enable(PyObject*, PyObject* flag) {
  const int truth = PyObject_IsTrue(flag);
  if (truth < 0) return nullptr;
  lazy_numpy::state.on = truth != 0;
  Py_RETURN_NONE;
}

PyObject* is_on(PyObject*, PyObject*) { return PyBool_FromLong(lazy_numpy::state.on); }

PyMethodDef functions[] = {
    {"configure", configure, METH_O, "Say which classes and objects the short ways are for."},
    {"enable", enable, METH_O, "Whether the short ways are taken; the Python functions serve everything otherwise."},
    {"is_on", is_on, METH_NOARGS, "Whether they are taken."},
    {"install_operators", install_operators, METH_O, "Put the operators in their places, given functions and numbers by name."},
    {"align_memory", lazy_numpy::align_memory, METH_O,
     "Let the elements of NumPy's large arrays begin at cache lines from now on, in this context, unless it has an allocator of its own already;\n"
     "returns whether they do. Takes whether huge pages are to be asked for."},
    {"install_items", install_items, METH_VARARGS, "Put reading and writing of items in their places."},
    {},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "Lazy arrays in the immediate state, from C.", -1, functions};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  import_array();
  PyObject* module = PyModule_Create(&definition);
  if (module != nullptr && !lazy_numpy::add_calls(module)) Py_CLEAR(module);
  return module;
}
