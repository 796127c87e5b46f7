// Which operations are recorded, and which run at once: the "auto" and "native" tiers.
//
// A trace begins at a barrier, or at a read of something that the trace has made. While it goes as earlier traces went that are known,
// its operations are recorded; where it leaves them, what was recorded is run, and from there to its end operations run on the CPU as
// they come. What traces began with is remembered as hashes of what came so far: a beginning that came twice is recorded the third time.
#pragma once
#include "operations.h"

namespace lazy_tf {

enum class Tier { kAuto, kCompiled, kNative };
enum class Mode { kRecord, kLearn, kImmediate };

void set_tier(int tier);
// Whether operations run at once for the moment.
bool immediate();

// What to do with an operation; false with an exception.
bool decide(Use* use, const Inputs& inputs, Mode* mode);

// What an operation was given, noted before it runs, so that it can be run natively after it was recorded.
struct Before {
  std::vector<Ref> contents;  // of the variables among the inputs, by position
  long long epoch = 0, reads = 0;
};
void note_before(const Inputs& inputs, Before* before);
// An operation was recorded; false with an exception. `seconds` is how long learning it took, negative where it was known.
bool note_recorded(const std::shared_ptr<Use>& use, const Inputs& inputs, const Inputs& outputs, const Before& before, double seconds);
// An operation has run at once, and made these.
void note_run(Use* use, const Inputs& outputs);
// The host has read a tensor that lies on the CPU.
void note_read(const Tensor* tensor);
// The host is about to read a tensor whose value the core has: a barrier if it is pending.
void note_wait();

void boundary();             // a barrier took place
void settled(bool native);   // the trace that is about to end runs natively (or compiled) from now on
void reopened();             // it is measured again
void postponed();            // it runs natively until another program is there
void compiled();             // which is so now; from any thread
void set_cut_at(size_t length);
PyObject* log_list();
PyObject* follow_counters();

// The values of expressions, computed by running the recorded operations natively: arrays, or None if some cannot be.
// `known` gives arrays for some expressions.
PyObject* replay(PyObject* wanted, PyObject* known);

}  // namespace lazy_tf
