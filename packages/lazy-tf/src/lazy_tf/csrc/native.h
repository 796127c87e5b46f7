// Operations run by TensorFlow's CPU kernels, now, on the memory that entries hold.
#pragma once
#include "operations.h"

namespace lazy_tf {

// In all of these a failure leaves either an exception or a status that is not OK.

// A tensor's contents as a CPU handle, which stays the tensor's; reads them from the device first if they are there.
TFE_TensorHandle* cpu_handle(Tensor* tensor, TF_Status* status);
// Run a use on entries.
bool run_on_cpu(Use* use, const Inputs& inputs, int count, Inputs* outputs, TF_Status* status);
// Run an operation on borrowed handles; the handles that it gives are the caller's. `count` is how many there may be, then how many there are.
bool run_handles(const char* name, TFE_Op* prototype, const std::vector<TFE_TensorHandle*>& inputs, int* count, TFE_TensorHandle** outputs,
                 TF_Status* status);

// A resource variable on the CPU without a name, which goes with its handle; and its contents.
TFE_TensorHandle* new_resource(int dtype, TF_Status* status);
bool assign_resource(TFE_TensorHandle* resource, TFE_TensorHandle* contents, TF_Status* status);
TFE_TensorHandle* read_resource(TFE_TensorHandle* resource, int dtype, TF_Status* status);

}  // namespace lazy_tf
