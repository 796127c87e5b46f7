// What the files of the extension share: the Python functions that they call, and TensorFlow's context.
#pragma once
#include "entry.h"
#include "reference.h"

#include "tensorflow/c/eager/c_api.h"
#include "tensorflow/c/eager/c_api_experimental.h"

namespace lazy_tf {

// Python functions, set once by `configure`; callbacks.py says what each does.
struct Hooks {
  PyObject *resolve, *by_blob, *by_dtypes, *describe, *fold, *run, *attributes, *record, *outside, *take, *host_of, *foreign, *copy_to, *copy_from, *fail;
  PyObject *raise, *shadow, *refresh, *bundle, *leaf, *flush, *may_learn, *cut_if_due, *step_ended, *sites, *restart, *watch;
};

extern Hooks hooks;
extern TFE_Context* context;  // the eager context, once an operation has come

extern bool watching;           // whether `watch` is to be called
extern long long operations;    // since the trace began
extern long long live_handles;  // handles on the device that TensorFlow holds

bool configure(PyObject* given);  // a dict of the hooks, "numbers": NumPy dtype by TensorFlow's enum, and "tensor": a class
PyObject* device_capsules(const char* name);

inline Ref number(const void* pointer) { return Ref(PyLong_FromVoidPtr(const_cast<void*>(pointer))); }

}  // namespace lazy_tf
