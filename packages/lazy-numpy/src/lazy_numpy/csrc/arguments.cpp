#include "calls.h"

namespace lazy_numpy {
namespace {

// A shape, axes and the like: a tuple of ints.
bool is_ints(PyObject* object) {
  if (!PyTuple_CheckExact(object)) return false;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(object); ++k)
    if (!PyLong_CheckExact(PyTuple_GET_ITEM(object, k))) return false;
  return true;
}

}  // namespace

bool Arguments::add(PyObject* original) {
  PyObject* taken = is_ints(original) ? original : operand(original);
  if (taken == nullptr || count_ == kMost) return false;
  has_arrays_ = has_arrays_ || (taken == original && PyArray_CheckExact(taken));
  given_[count_] = Py_NewRef(taken);
  originals_[count_++] = original;
  return true;
}

bool Arguments::add(PyObject* const* originals, size_t count) {
  for (size_t k = 0; k < count; ++k)
    if (!add(originals[k])) return false;
  return true;
}

bool Arguments::has_buffers() const {
  for (size_t k = 0; k < count_; ++k)
    if (given_[k] != originals_[k] && !is_own(originals_[k])) return true;
  return false;
}

bool Arguments::is_given(PyObject* result) const {
  for (size_t k = 0; k < count_; ++k)
    if (given_[k] == result) return true;
  return false;
}

PyObject* Arguments::shown_by(PyArrayObject* result) const {
  if (PyArray_ITEMSIZE(result) == 0) return nullptr;
  for (int d = 0; d < PyArray_NDIM(result); ++d)
    if (PyArray_STRIDE(result, d) % PyArray_ITEMSIZE(result) != 0) return nullptr;
  for (size_t k = 0; k < count_; ++k) {
    if (given_[k] == originals_[k]) continue;
    if (given_[k] == reinterpret_cast<PyObject*>(result)) return nullptr;
    PyObject* base = PyArray_BASE(result);
    if (base == given_[k] || base == PyArray_BASE(reinterpret_cast<PyArrayObject*>(given_[k]))) return originals_[k];
  }
  return nullptr;
}

PyObject* Arguments::ask(PyObject* complete, PyObject* function, PyObject* number, PyObject* result) const {
  Owned taken(PyList_New(0)), args(PyTuple_New(static_cast<Py_ssize_t>(count_)));
  if (!taken || !args) return nullptr;
  for (size_t k = 0; k < count_; ++k) {
    PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(k), Py_NewRef(originals_[k]));
    if (given_[k] == originals_[k]) continue;
    Owned pair(PyTuple_Pack(2, originals_[k], given_[k]));
    if (!pair || PyList_Append(taken.get(), pair.get()) < 0) return nullptr;
  }
  return PyObject_CallFunctionObjArgs(complete, function, number, result, taken.get(), args.get(), nullptr);
}

}  // namespace lazy_numpy
