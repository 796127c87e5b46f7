// How a Python exception leaves a callback: as TensorFlow's status, or, if it is no error, as it is once TensorFlow has returned.
#pragma once
#include "device.h"

namespace lazy_tf {

void set_main_thread(unsigned long ident);
// Hand the exception in flight to TensorFlow; nothing if there is none.
void fail(TF_Status* status);

}  // namespace lazy_tf
