// Arguments on their way to NumPy, and results on their way back: the short way of `immediate.run` and `immediate.bring`.
#pragma once
#include "state.h"

namespace lazy_numpy {

// The arguments of one call as NumPy takes them.
class Arguments {
 public:
  static constexpr size_t kMost = 16;

  Arguments() = default;
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() {
    for (size_t k = 0; k < count_; ++k) Py_DECREF(given_[k]);
  }

  // Adds one; false if it is not for a short way. The original must live as long as this.
  bool add(PyObject* original);
  bool add(PyObject* const* originals, size_t count);

  PyObject* const* given() const { return given_; }

  // A result as a lazy array: wrapped if it has more elements than `limit`, a view if it shows the memory of an argument. `complete` is
  // called with (function, number, result, pairs of lazy arrays and what they show, originals) for what else may come, and tells by itself.
  // Takes the reference to the result; `number` is called for the number to tell the call by.
  template <class Number>
  PyObject* bring(PyObject* result, PyObject* function, Number number, const Slot& limit, PyObject* complete, bool views) const {
    if (result == nullptr) return nullptr;
    if (!PyArray_CheckExact(result) && !PyTuple_Check(result) && !PyList_CheckExact(result)) return result;
    Owned held(result);
    if (PyArray_CheckExact(result)) {
      auto* array = reinterpret_cast<PyArrayObject*>(result);
      const int lazy = supports(PyArray_DESCR(array));
      if (lazy < 0) return nullptr;
      if (lazy == 0) return held.release();
      if (PyArray_BASE(array) == nullptr && !has_arrays_ && !is_given(result)) {
        const npy_intp size = PyArray_SIZE(array);
        if (size <= limit.number(state.settings)) return held.release();
        Owned made(wrap(held.release()));
        if (!made || size <= state.result.number(state.settings)) return made.release();
        Owned told(number());
        return told && tell(told.get(), result) ? made.release() : nullptr;
      }
      if (views && PyArray_BASE(array) != nullptr && !has_arrays_) {
        PyObject* owner = shown_by(array);
        if (owner != nullptr) {
          if (PyArray_SIZE(array) <= state.small.number(state.settings) && is_own(owner)) return held.release();
          return view(owner, held.release());
        }
      }
    }
    Owned told(number());
    return told ? ask(complete, function, told.get(), held.get()) : nullptr;
  }

  // Whether a call may have failed because it writes into the buffer of a value.
  bool has_buffers() const;

  // The lazy argument whose memory a result shows in a way that a layout can say: borrowed, or null.
  PyObject* shown_by(PyArrayObject* result) const;

 private:
  bool is_given(PyObject* result) const;
  PyObject* ask(PyObject* complete, PyObject* function, PyObject* number, PyObject* result) const;

  PyObject* given_[kMost];
  PyObject* originals_[kMost];
  size_t count_ = 0;
  bool has_arrays_ = false;  // NumPy's own are among them
};

}  // namespace lazy_numpy
