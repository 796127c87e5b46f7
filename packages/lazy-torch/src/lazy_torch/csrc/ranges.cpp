// Ranges that the program names (`torch.profiler.record_function`), for the report's timeline.  Torch calls back for named ranges only, never for
// operations, so that nothing is slower where there are none.
#include "common.h"

#include <ATen/record_function.h>

#include <deque>

namespace lazytorch {

namespace {

using Clock = std::chrono::system_clock;

struct Range {
  std::string name;
  Clock::time_point begin, end;
};
struct Ranges {
  std::mutex mutex;
  std::deque<Range> done;
};
Ranges& ranges() {
  static auto* kept = new Ranges();
  return *kept;
}
constexpr size_t kMost = 4096;

struct Begun : at::ObserverContext {
  Clock::time_point when = Clock::now();
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) { return std::make_unique<Begun>(); }

void end(const at::RecordFunction& range, at::ObserverContext* context) {
  const std::string name = range.name();
  if (name.find('#') != std::string::npos) return;  // torch's own: every step of an optimizer, every batch of a loader
  auto& kept = ranges();
  std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.done.size() == kMost) kept.done.pop_front();
  kept.done.push_back({name, static_cast<Begun*>(context)->when, Clock::now()});
}

double seconds(Clock::time_point t) { return std::chrono::duration<double>(t.time_since_epoch()).count(); }

}  // namespace

void watch_ranges() { at::addGlobalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::USER_SCOPE})); }

PyObject* py_take_ranges(PyObject*, PyObject*) {
  std::deque<Range> done;
  {
    std::lock_guard<std::mutex> lock(ranges().mutex);
    done.swap(ranges().done);
  }
  Ref list(PyList_New(0));
  for (auto& range : done) {
    Ref item(Py_BuildValue("(sdd)", range.name.c_str(), seconds(range.begin), seconds(range.end)));
    if (!item.p || PyList_Append(list.p, item.p)) return nullptr;
  }
  return list.release();
}

}  // namespace lazytorch
