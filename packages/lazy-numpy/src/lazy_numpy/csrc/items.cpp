// `a[key]` and `a[key] = value`, read and written by NumPy at once: the short way of `mapping/items.py`.
#include "state.h"

namespace lazy_numpy {
namespace {

PyObject *slow_get = nullptr, *slow_set = nullptr, *get_number = nullptr, *set_number = nullptr;

bool is_simple(PyObject* key) { return PyTuple_CheckExact(key) || PyLong_CheckExact(key) || PySlice_Check(key); }

// An index into one dimension, counted from its beginning; -1 if it is outside or no plain int.
inline npy_intp place(PyObject* index, npy_intp size) {
  if (!PyLong_CheckExact(index)) return -1;
  npy_intp found = PyLong_AsSsize_t(index);
  if (found == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return -1;
  }
  if (found < 0) found += size;
  return found < size ? found : -1;
}

// Where the element lies that a key of plain ints names; null if it names none, about which NumPy has more to say.
inline char* element(PyArrayObject* x, PyObject* key) {
  char* at = PyArray_BYTES(x);
  const int ndim = PyArray_NDIM(x);
  if (PyTuple_CheckExact(key)) {
    if (ndim != PyTuple_GET_SIZE(key) || ndim == 0) return nullptr;
    for (int d = 0; d < ndim; ++d) {
      const npy_intp index = place(PyTuple_GET_ITEM(key, d), PyArray_DIM(x, d));
      if (index < 0) return nullptr;
      at += index * PyArray_STRIDE(x, d);
    }
    return at;
  }
  if (ndim != 1) return nullptr;
  const npy_intp index = place(key, PyArray_DIM(x, 0));
  return index < 0 ? nullptr : at + index * PyArray_STRIDE(x, 0);
}

PyObject* subscript(PyObject* self, PyObject* key) {
  PyArrayObject* x = short_way() ? shown(self) : nullptr;
  if (x != nullptr) {
    char* at = element(x, key);
    if (at != nullptr) return PyArray_Scalar(at, PyArray_DESCR(x), reinterpret_cast<PyObject*>(x));
  }
  PyObject* taken = x == nullptr ? nullptr : is_simple(key) ? key : operand(key);
  if (taken == nullptr) {
    PyObject* stack[] = {self, key};
    return PyObject_Vectorcall(slow_get, stack, 2, nullptr);
  }
  Owned held = owned(reinterpret_cast<PyObject*>(x)), used = owned(taken == key ? nullptr : taken);
  PyObject* result = Py_TYPE(x)->tp_as_mapping->mp_subscript(held.get(), taken);
  if (result == nullptr || !PyArray_CheckExact(result)) return result;
  auto* array = reinterpret_cast<PyArrayObject*>(result);
  const npy_intp size = PyArray_SIZE(array);
  PyObject* settings = state.settings;
  if (size <= state.part.number(settings) && (size < PyArray_SIZE(x) || size <= state.small.number(settings)) &&
      (PyArray_ISWRITEABLE(array) || is_own(self)))
    return result;  // a small part: NumPy's own
  PyObject* base = PyArray_BASE(array);
  if (base != nullptr && (base == held.get() || base == PyArray_BASE(x))) return view(self, result);
  Owned made(wrap(result));
  return made && tell(get_number, result) ? made.release() : nullptr;
}

int store(PyObject* self, PyObject* key, PyObject* value) {
  PyArrayObject* x = value != nullptr && short_way() ? shown(self) : nullptr;
  if (x != nullptr && PyArray_ISWRITEABLE(x) && is_own(self)) {
    char* at = PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyArray_IsScalar(value, Number) ? element(x, key) : nullptr;
    if (at != nullptr) return PyArray_Pack(PyArray_DESCR(x), at, value);
    PyObject* taken = is_simple(key) ? key : operand(key);
    PyObject* given = taken != nullptr ? operand(value) : nullptr;
    if (given != nullptr) {
      Owned held = owned(reinterpret_cast<PyObject*>(x));
      Owned used = owned(taken == key ? nullptr : taken), written = owned(given == value ? nullptr : given);
      if (Py_TYPE(x)->tp_as_mapping->mp_ass_subscript(held.get(), taken, given) < 0) return -1;
      if (!PyArray_CheckExact(given)) return 0;
      const bool large = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(given)) > state.result.number(state.settings);
      return !large || tell(set_number, given) ? 0 : -1;
    }
  }
  if (value == nullptr) {
    PyErr_SetString(PyExc_ValueError, "cannot delete array elements");
    return -1;
  }
  PyObject* stack[] = {self, key, value};
  Owned done(PyObject_Vectorcall(slow_set, stack, 3, nullptr));
  return done ? 0 : -1;
}

PyObject* get_method(PyObject* self, PyObject* key) { return subscript(self, key); }

PyObject* set_method(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) return PyErr_Format(PyExc_TypeError, "__setitem__ takes a key and a value, and got %zd arguments", count);
  return store(self, args[0], args[1]) == 0 ? Py_NewRef(Py_None) : nullptr;
}

// What the class has by name: no Python functions, which interpreters call without asking for the class's slots.
PyMethodDef methods[] = {
    {"__getitem__", get_method, METH_O | METH_COEXIST, "Return self[key]."},
    {"__setitem__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&set_method)), METH_FASTCALL | METH_COEXIST, "Set self[key] to value."},
};

}  // namespace

bool install_items(PyObject* get, PyObject* set, PyObject* number_of_get, PyObject* number_of_set) {
  Py_XSETREF(slow_get, Py_NewRef(get));
  Py_XSETREF(slow_set, Py_NewRef(set));
  Py_XSETREF(get_number, Py_NewRef(number_of_get));
  Py_XSETREF(set_number, Py_NewRef(number_of_set));
  for (PyMethodDef& method : methods) {
    Owned descriptor(PyDescr_NewMethod(state.array, &method));
    if (!descriptor || PyObject_SetAttrString(reinterpret_cast<PyObject*>(state.array), method.ml_name, descriptor.get()) < 0) return false;
  }
  PyMappingMethods& to = reinterpret_cast<PyHeapTypeObject*>(state.array)->as_mapping;
  to.mp_subscript = subscript;
  to.mp_ass_subscript = store;
  PyType_Modified(state.array);
  return true;
}

}  // namespace lazy_numpy
