// Host memory that programs ask to be pinned.  Leaves are made from any host memory alike, so that it is plain memory; but who asked for it is told so again:
// `is_pinned` is true of it, and pinning it once more gives the same tensor and no copy.
#include "common.h"

#include <unordered_set>

namespace lazytorch {

namespace {

// Neither is ever destroyed: tensors outlive the interpreter's end.
std::mutex& lock() {
  static auto* m = new std::mutex;
  return *m;
}
std::unordered_set<const void*>& blocks() {
  static auto* s = new std::unordered_set<const void*>;
  return *s;
}

void forget(void* context) {
  auto* plain = static_cast<at::DataPtr*>(context);
  {
    std::lock_guard guard(lock());
    blocks().erase(plain->get());
  }
  delete plain;
}

struct Pinned final : at::Allocator {
  at::DataPtr allocate(size_t n) override {
    auto plain = std::make_unique<at::DataPtr>(c10::GetAllocator(c10::kCPU)->allocate(n));
    void* data = plain->get();
    if (!data) return std::move(*plain);
    std::lock_guard guard(lock());
    blocks().insert(data);
    return {data, plain.release(), &forget, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
};

}  // namespace

at::Allocator* pinned_allocator() {
  static auto* allocator = new Pinned;
  return allocator;
}

bool is_pinned(const void* data) {
  std::lock_guard guard(lock());
  return blocks().count(data) > 0;
}

}  // namespace lazytorch
