// What is known of how traces begin: a table of fixed size. It decides what is worth recording, never what is computed.
//
// A long trace has thousands of beginnings, and all of them must be found again, or it is never recorded as a whole. With one place
// each, two of 1,300 would nearly always fall on one of 65,536 places; so each has eight to choose from.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lazy_tf {

// One beginning of a trace, by a hash of it.
struct Sight {
  uint64_t prefix = 0;
  uint16_t times = 0;    // that a trace began like this, and was worth recording; 0 where the place is free
  bool learned = false;  // recorded once, so that recording it again is cheap
  bool native = false;   // known to run faster natively
  uint16_t waits = 0;    // it runs natively as long as this is how often all programs have come,
  uint32_t until = 0;    // but not for longer: milliseconds
  uint32_t compiled = 0; // the latest trace that ran compiled and began like this; wraps around
  uint16_t in_vain = 0;  // how many traces in a row began with this operation and were recorded only in part
  uint16_t skips = 0;    // so many of the next ones run as they come,
  uint16_t skipped = 0;  // since so many did after the latest that was recorded
};

class Sights {
 public:
  // Null if it is not known.
  Sight* find(uint64_t prefix) {
    Sight* set = set_of(prefix);
    for (size_t i = 0; i < kWays; ++i)
      if (set[i].times != 0 && set[i].prefix == prefix) return set + i;
    return nullptr;
  }

  // Note that it came once more; what came least often makes room, and what stays must come again to stay for long.
  void note(uint64_t prefix) {
    Sight* found = find(prefix);
    if (found != nullptr) {
      if (found->times < UINT16_MAX) ++found->times;
      return;
    }
    Sight *set = set_of(prefix), *least = set;
    for (size_t i = 1; i < kWays; ++i)
      if (set[i].times < least->times) least = set + i;
    if (least->times != 0)
      for (size_t i = 0; i < kWays; ++i) set[i].times = (set[i].times + 1) / 2;
    *least = Sight{prefix, 1, false, false};
  }

 private:
  static constexpr size_t kWays = 8;
  static constexpr int kSetBits = 15;

  Sight* set_of(uint64_t prefix) { return places_.data() + (prefix >> (64 - kSetBits)) * kWays; }

  std::vector<Sight> places_ = std::vector<Sight>(kWays << kSetBits);
};

}  // namespace lazy_tf
