// What the immediate state of lazy arrays looks like from C, and what every short way through it shares.
//
// The classes, their attributes and the policy are Python's (`tensor`, `cells`, `recording`); their attributes are read in place, where
// `__slots__` put them. A short way serves only what is common, and does exactly what the Python function beside it does, which is called
// for everything else: `LAZY_NUMPY_EXTENSION=off` changes nothing but the time.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL lazy_numpy_array_api
#ifndef LAZY_NUMPY_IMPORTS_ARRAY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <memory>

namespace lazy_numpy {

struct Decref {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Decref>;

inline Owned owned(PyObject* borrowed) { return Owned(Py_XNewRef(borrowed)); }

// An attribute that `__slots__` keeps in the object itself.
class Slot {
 public:
  bool find(PyObject* type, const char* name);
  PyObject*& of(PyObject* object) const { return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_); }
  bool is_true(PyObject* object) const { return of(object) == Py_True; }
  Py_ssize_t number(PyObject* object) const { return PyLong_AsSsize_t(of(object)); }
  void set(PyObject* object, PyObject* stolen) const {
    PyObject* old = of(object);
    of(object) = stolen;
    Py_XDECREF(old);
  }

 private:
  Py_ssize_t offset_ = 0;
};

struct State {
  bool on = false;  // whether the short ways are taken
  PyTypeObject* array = nullptr;
  PyObject *mode = nullptr, *settings = nullptr;
  PyObject *plain = nullptr, *supports = nullptr, *view_of = nullptr, *add = nullptr;
  bool supported[NPY_NTYPES_LEGACY] = {};
  Py_ssize_t temporary_bytes = 0;  // results may take an operand's memory from this size on, which Python sees to
  Slot np, cell, value;
  Slot root, alive, writable, arrays, prune_at;
  Slot immediate, note, skip;
  Slot small, result, part;
};
extern State state;

// Reads what Python says of the above; false with an exception set.
bool configure(PyObject* given);

inline bool short_way() { return state.on && state.immediate.is_true(state.mode); }

inline bool is_lazy(PyObject* object) { return Py_TYPE(object) == state.array; }

// NumPy's array that a lazy one shows, if it lies in NumPy's memory now: borrowed, or null.
inline PyArrayObject* shown(PyObject* lazy) {
  PyObject* array = state.np.of(lazy);
  if (array == nullptr || array == Py_None || !PyArray_CheckExact(array)) return nullptr;
  PyObject* cell = state.cell.of(lazy);
  if (cell != nullptr && cell != Py_None && !state.alive.is_true(cell)) return nullptr;
  return reinterpret_cast<PyArrayObject*>(array);
}

// Whether what it shows may be written to, as far as we are concerned: it is not the buffer of a value.
inline bool is_own(PyObject* lazy) {
  PyObject* cell = state.cell.of(lazy);
  return cell == nullptr || cell == Py_None ? state.value.of(lazy) == nullptr : state.writable.is_true(cell);
}

// Whether NumPy takes an argument as it is.
bool is_plain(PyObject* object);

// An operand as NumPy takes it: borrowed, or null if that is not for a short way.
inline PyObject* operand(PyObject* object) {
  if (is_lazy(object)) return reinterpret_cast<PyObject*>(shown(object));
  return is_plain(object) ? object : nullptr;
}

inline PyObject* operand(PyObject* object, PyArrayObject*& array) {
  PyObject* found = operand(object);
  array = found != nullptr && PyArray_CheckExact(found) ? reinterpret_cast<PyArrayObject*>(found) : nullptr;
  return found;
}

// Whether an operand may be one that nobody but the expression holds, with memory of its own that is worth taking.
inline bool may_be_temporary(PyObject* operand, PyArrayObject* array) {
  if (Py_REFCNT(operand) != 1 || array == nullptr || !is_lazy(operand) || Py_REFCNT(array) != 1) return false;
  return PyArray_NBYTES(array) >= state.temporary_bytes && state.cell.of(operand) == Py_None && state.value.of(operand) == nullptr;
}

// Whether arrays of a dtype are lazy: 1, 0, or -1 with an exception set.
int supports(PyArray_Descr* dtype);

// A lazy array over memory that nobody else holds; takes the reference.
PyObject* wrap(PyObject* array);

// A lazy view of what a lazy array shows; takes the reference.
PyObject* view(PyObject* lazy, PyObject* array);

// Tells the policy of a call, unless it has asked not to be told of so many; false with an exception set.
bool tell(PyObject* number, PyObject* result);

// What an operator returned, as a lazy array if it is large: wrapped, and told of. Takes the reference.
PyObject* finish(PyObject* result, PyObject* number);

// operators.cpp: puts the operators of the table in their places in the class; false with an exception set.
bool install_operators(PyObject* table);

// items.cpp: `a[key]`, `a[key] = value`.
bool install_items(PyObject* get, PyObject* set, PyObject* get_number, PyObject* set_number);

// memory.cpp: the function `align_memory`.
PyObject* align_memory(PyObject*, PyObject* use_huge_pages);

// calls.cpp: the types `Function`, `Method`, `Attribute`.
bool add_calls(PyObject* module);

}  // namespace lazy_numpy
