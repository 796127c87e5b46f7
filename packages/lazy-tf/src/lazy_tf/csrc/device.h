// The lazy device's callbacks in C++; device.cpp says what they do.
#pragma once
#include "entry.h"

#include "tensorflow/c/eager/c_api.h"
#include "tensorflow/c/eager/c_api_experimental.h"

namespace lazy_tf {

// Python functions that the callbacks call; set once by `configure`.
struct Hooks {
  PyObject* resolve;         // name: bytes -> (info, fast or None, arity, follows)
  PyObject* by_blob;         // (info, bytes) -> Signature
  PyObject* by_dtypes;       // (info, tuple) -> Signature
  PyObject* run;             // (info, signature, list) -> list of entries
  PyObject* direct;          // signature -> None, or (target, operands, hosts, check, output dtypes)
  PyObject* attributes;      // (signature, list) -> Attrs
  PyObject* record;          // lazy_core.values.record
  PyObject* outside;         // (handle, status) -> entry, for a CPU handle
  PyObject* take;            // entry that is no tensor or variable -> CPU handle, owned
  PyObject* copy_to;         // CPU handle -> entry
  PyObject* copy_from;       // entry -> CPU handle, owned
  PyObject* fail;            // (status, exception)
  PyObject* sites;           // the trace's sites, whose `epoch` grows at every barrier
  PyObject* restart;         // called before the first operation of a trace
  PyObject* watch;           // called before an operation while a step's barrier is due
};

extern Hooks hooks;
extern bool watching;            // whether `watch` is to be called
extern long long operations;     // since the trace began
extern long long live_handles;   // handles on the device that TensorFlow holds

bool configure(PyObject* given);  // a dict of the hooks above, and "numbers": NumPy dtype by TensorFlow's enum
PyObject* device_capsules(const char* name);

}  // namespace lazy_tf
