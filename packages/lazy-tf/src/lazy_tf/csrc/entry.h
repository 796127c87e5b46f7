// What a TensorFlow handle on the lazy device stands for, as C++ sees it.
//
// Owns: the Python types `Entry` (dtype and dimensions) and `Tensor` (an entry of numbers), from which tensor.py derives its classes.
// TensorFlow asks for dimensions without holding the interpreter's lock, so they are kept as plain integers beside the Python tuple.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "tensorflow/c/eager/c_api.h"

namespace lazy_tf {

constexpr int kInlineRank = 6;

struct Entry {
  PyObject_HEAD
  PyObject* dims;  // a tuple, or null until somebody asks
  int64_t* sizes;  // the same numbers; `inline_sizes` or memory of its own
  int64_t inline_sizes[kInlineRank];
  int rank;
  int dtype;         // TensorFlow's enum
  int handle_dtype;  // of the handle that stands for it: another one for a variable, whose handle is a resource
};

// Each object is null where the Python attribute is None. At least one of value, host and cpu is there.
struct Tensor {
  Entry entry;
  PyObject* value;        // a lazy_core Value or constant
  PyObject* host;         // a NumPy array
  TFE_TensorHandle* cpu;  // a CPU handle with the contents, owned
  PyObject* statics;      // the contents as tuples
  PyObject* bits;         // a key of the contents
  uint64_t born;          // the trace that it was made in, 0 if it was not made by an operation; see follow.h
  uint32_t number;        // of the operation that made it, within that trace
  char foldable;
};

extern PyTypeObject* entry_type;   // the base of whatever a handle may stand for
extern PyTypeObject* tensor_type;  // the base of `tensor.Tensor`
extern PyTypeObject* tensor_class;  // `tensor.Tensor` itself, once it is known

bool make_types(PyObject* module);

// A new `tensor.Tensor` that owns this CPU handle of numbers; null with an exception.
Tensor* new_cpu_tensor(TFE_TensorHandle* handle, TF_Status* status);

// The dimensions as a tuple, a new reference.
PyObject* dims_of(Entry* entry);

// A new `tensor.Tensor`; steals nothing. `value` and `host` may be null. Null with an exception if `dims` is no tuple of integers.
Tensor* new_tensor(int dtype, PyObject* dims, PyObject* value, PyObject* host, bool foldable);

inline bool is_tensor(PyObject* object) { return Py_TYPE(object) == tensor_class; }
inline Tensor* as_tensor(PyObject* object) { return reinterpret_cast<Tensor*>(object); }

}  // namespace lazy_tf
