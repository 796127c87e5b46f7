#include "failing.h"

namespace lazy_tf {

namespace {

unsigned long main_thread = 0;
PyObject* constructor = nullptr;

// Whether Python is about to run the constructor of what TensorFlow raises: it gives up on an exception that cannot be made.
bool in_constructor() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr || constructor == nullptr) return false;
  Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  return code.get() == constructor;
}

// Raise an exception in the main thread; Python calls this as soon as it runs there again.
int raise_later(void* exception) {
  if (in_constructor() && Py_AddPendingCall(raise_later, exception) == 0) return 0;
  Ref held(static_cast<PyObject*>(exception));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(held.get())), held.get());
  return -1;
}

// An interrupt, or whatever else is no error, is not TensorFlow's to translate: it is raised as it is once TensorFlow has returned.
// False, with the exception still there, where it is an error.
bool interrupted(TF_Status* status) {
  if (PyErr_ExceptionMatches(PyExc_Exception) || PyThread_get_thread_ident() != main_thread) return false;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Ref kind(type), where(trace);
  TF_SetStatus(status, TF_CANCELLED, "interrupted");
  // The queue has room for few: what does not go in is the same kind of news as what fills it.
  if (Py_AddPendingCall(raise_later, value) < 0) Py_DECREF(value);
  return true;
}

}  // namespace

void set_raising(unsigned long ident, PyObject* code) {
  main_thread = ident;
  Py_XINCREF(code);
  Py_XSETREF(constructor, code);
}

void fail(TF_Status* status) {
  if (!PyErr_Occurred()) return;  // the status says it already
  if (interrupted(status)) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Ref kind(type), error(value), where(trace), state = number(status);
  PyObject* arguments[] = {state.get(), error ? error.get() : Py_None};
  Ref done(PyObject_Vectorcall(hooks.fail, arguments, 2, nullptr));
  if (!done) {
    if (interrupted(status)) return;
    PyErr_Clear();
    TF_SetStatus(status, TF_INTERNAL, "the lazy device failed, and failed to say why");
  }
}

}  // namespace lazy_tf
