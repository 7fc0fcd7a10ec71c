// Finds what a batch refers to twice: objects by address, memory by extent. Imports nothing of ours. One
// walk over one batch owns each of these; no other thread sees it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// Objects met in one walk: the first few in an array, the others in an open-addressing hash table.
struct rd_met {
  enum { FEW = 8, FIRST_SIZE = 64 };
  size_t count = 0;
  const void* few[FEW];
  std::vector<const void*> table;  // a power of two, at most half full; empty until there are more than FEW

  // Note an object; returns whether it was met before. May throw bad_alloc.
  bool add(const void* object) {
    if (table.empty()) {
      for (size_t i = 0; i < count; i++)
        if (few[i] == object) return true;
      if (count < FEW) {
        few[count++] = object;
        return false;
      }
      table.assign(FIRST_SIZE, nullptr);
      for (const void* each : few) put(each);
    }
    if (!put(object)) return true;
    if (++count * 2 > table.size()) grow();
    return false;
  }

 private:
  bool put(const void* object) {
    size_t at = (size_t)(((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 20) & (table.size() - 1);
    for (; table[at]; at = (at + 1) & (table.size() - 1))
      if (table[at] == object) return false;
    table[at] = object;
    return true;
  }

  void grow() {
    std::vector<const void*> old(table.size() * 2, nullptr);
    old.swap(table);
    for (const void* each : old)
      if (each) put(each);
  }
};

// Memory of the tensors of one batch.
struct rd_spans {
  enum { FEW = 8 };
  typedef std::pair<uintptr_t, uintptr_t> span;  // the first byte, and the one behind the last
  size_t count = 0;
  span few[FEW];
  std::vector<span> more;

  // Note the memory of a tensor. May throw bad_alloc.
  void add(const void* begin, uint64_t nbytes) {
    if (!nbytes) return;
    span made((uintptr_t)begin, (uintptr_t)begin + nbytes);
    if (count < FEW)
      few[count] = made;
    else
      more.push_back(made);
    count++;
  }

  // Whether two of them share bytes. Sorts `more`.
  bool overlap() {
    if (more.empty()) {
      for (size_t i = 1; i < count; i++)
        for (size_t k = 0; k < i; k++)
          if (few[i].first < few[k].second && few[k].first < few[i].second) return true;
      return false;
    }
    more.insert(more.end(), few, few + FEW);
    std::sort(more.begin(), more.end());
    for (size_t i = 1; i < more.size(); i++)
      if (more[i].first < more[i - 1].second) return true;
    return false;
  }
};
