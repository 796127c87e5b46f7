#include "state.h"

#include <structmember.h>

namespace lazy_numpy {

State state;

bool Slot::find(PyObject* type, const char* name) {
  Owned found(PyObject_GetAttrString(type, name));
  if (!found) return false;
  if (!Py_IS_TYPE(found.get(), &PyMemberDescr_Type)) {
    PyErr_Format(PyExc_TypeError, "%S.%s is not in __slots__", type, name);
    return false;
  }
  offset_ = reinterpret_cast<PyMemberDescrObject*>(found.get())->d_member->offset;
  return true;
}

namespace {

// The entry of a dict, borrowed; null with an exception set.
PyObject* entry(PyObject* given, const char* name) {
  PyObject* found = PyDict_GetItemString(given, name);
  if (found == nullptr) PyErr_Format(PyExc_KeyError, "configure: %s is missing", name);
  return found;
}

bool keep(PyObject*& to, PyObject* given, const char* name) {
  PyObject* found = entry(given, name);
  if (found == nullptr) return false;
  Py_XSETREF(to, Py_NewRef(found));
  return true;
}

}  // namespace

bool configure(PyObject* given) {
  PyObject* array = entry(given, "array");
  PyObject* cell = entry(given, "cell");
  PyObject* bytes = entry(given, "temporary_bytes");
  if (array == nullptr || cell == nullptr || bytes == nullptr) return false;
  if (!PyType_Check(array)) {
    PyErr_SetString(PyExc_TypeError, "configure: array is a class");
    return false;
  }
  state.temporary_bytes = PyLong_AsSsize_t(bytes);
  if (state.temporary_bytes == -1 && PyErr_Occurred()) return false;
  if (!keep(state.mode, given, "mode") || !keep(state.settings, given, "settings") || !keep(state.plain, given, "plain") ||
      !keep(state.supports, given, "supports") || !keep(state.view_of, given, "view_of") || !keep(state.add, given, "add"))
    return false;
  auto* mode = reinterpret_cast<PyObject*>(Py_TYPE(state.mode));
  auto* settings = reinterpret_cast<PyObject*>(Py_TYPE(state.settings));
  const bool found = state.np.find(array, "_np") && state.cell.find(array, "_cell") && state.value.find(array, "_value") &&
                     state.root.find(cell, "root") && state.alive.find(cell, "alive") && state.writable.find(cell, "writable") &&
                     state.arrays.find(cell, "arrays") && state.prune_at.find(cell, "_prune_at") &&
                     state.immediate.find(mode, "immediate") && state.note.find(mode, "note") && state.skip.find(mode, "skip") &&
                     state.small.find(settings, "small") && state.result.find(settings, "result") && state.part.find(settings, "part");
  if (!found) return false;
  for (int number = 0; number < NPY_NTYPES_LEGACY; ++number) {
    Owned dtype(reinterpret_cast<PyObject*>(PyArray_DescrFromType(number)));
    if (!dtype) return false;
    Owned truth(PyObject_CallOneArg(state.supports, dtype.get()));
    if (!truth) return false;
    state.supported[number] = truth.get() == Py_True;
  }
  Py_XSETREF(state.array, reinterpret_cast<PyTypeObject*>(Py_NewRef(array)));
  state.on = true;
  return true;
}

bool is_plain(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyFloat_Type || type == &PyLong_Type || type == &PyArray_Type) return true;
  static PyTypeObject* latest = nullptr;  // they live for good
  if (type == latest) return true;
  const int found = PySet_Contains(state.plain, reinterpret_cast<PyObject*>(type));
  if (found < 0) PyErr_Clear();  // a metaclass without a hash: not plain
  if (found > 0) latest = type;
  return found > 0;
}

int supports(PyArray_Descr* dtype) {
  const int number = dtype->type_num;
  if (number >= 0 && number < NPY_NTYPES_LEGACY && PyArray_ISNBO(dtype->byteorder)) return state.supported[number];
  Owned truth(PyObject_CallOneArg(state.supports, reinterpret_cast<PyObject*>(dtype)));
  return truth ? truth.get() == Py_True : -1;
}

PyObject* wrap(PyObject* array) {
  PyObject* made = PyType_GenericAlloc(state.array, 0);
  if (made == nullptr) {
    Py_DECREF(array);
    return nullptr;
  }
  state.np.of(made) = array;
  state.cell.of(made) = Py_NewRef(Py_None);
  return made;
}

PyObject* view(PyObject* lazy, PyObject* array) {
  PyObject* cell = state.cell.of(lazy);
  if (cell != nullptr && cell != Py_None && state.alive.is_true(cell)) {
    PyArray_Descr* own = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(state.root.of(cell)));
    PyArray_Descr* other = PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array));
    if (own == other) {
      Owned made(wrap(array));
      if (!made) return nullptr;
      state.cell.set(made.get(), Py_NewRef(cell));
      PyObject* arrays = state.arrays.of(cell);
      if (PyList_GET_SIZE(arrays) + 1 < state.prune_at.number(cell)) {
        Owned weak(PyWeakref_NewRef(made.get(), nullptr));
        return weak && PyList_Append(arrays, weak.get()) == 0 ? made.release() : nullptr;
      }
      Owned done(PyObject_CallFunctionObjArgs(state.add, cell, made.get(), nullptr));
      return done ? made.release() : nullptr;
    }
  }
  PyObject* made = PyObject_CallFunctionObjArgs(state.view_of, lazy, array, nullptr);
  Py_DECREF(array);
  return made;
}

bool tell(PyObject* number, PyObject* result) {
  PyObject* note = state.note.of(state.mode);
  if (note == nullptr || note == Py_None) return true;
  const Py_ssize_t skip = state.skip.number(state.mode);
  if (skip > 1) {
    PyObject* left = PyLong_FromSsize_t(skip - 1);
    if (left == nullptr) return false;
    state.skip.set(state.mode, left);
    return true;
  }
  if (skip == -1 && PyErr_Occurred()) return false;
  Owned called = owned(note);
  Owned done(PyObject_CallFunctionObjArgs(called.get(), number, result, nullptr));
  return static_cast<bool>(done);
}

PyObject* finish(PyObject* result, PyObject* number) {
  if (result == nullptr || !PyArray_CheckExact(result)) return result;
  auto* array = reinterpret_cast<PyArrayObject*>(result);
  if (PyArray_SIZE(array) <= state.result.number(state.settings)) return result;
  const int lazy = supports(PyArray_DESCR(array));
  if (lazy <= 0) {
    if (lazy == 0) return result;
    Py_DECREF(result);
    return nullptr;
  }
  Owned made(wrap(result));
  return made && tell(number, result) ? made.release() : nullptr;
}

}  // namespace lazy_numpy
