// How a Python exception leaves a callback: as TensorFlow's status, or, if it is no error, as it is once TensorFlow has returned.
#pragma once
#include "device.h"

namespace lazy_tf {

// The thread in which exceptions that are no errors are raised, and the code of the constructor in which none may be, or null.
void set_raising(unsigned long main_thread, PyObject* constructor);
// Hand the exception in flight to TensorFlow; nothing if there is none.
void fail(TF_Status* status);

}  // namespace lazy_tf
