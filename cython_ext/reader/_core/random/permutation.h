// A keyed bijection of 0 .. count - 1, which computes any value without the others, in any order.
//
// Plain C++ with no Python and no state of its own; the caller owns the struct, which nothing
// changes once it is set up, so that any number of threads may read it.
//
// Large counts: a Feistel network of alternating rounds over pairs (left, right), left below
// `lefts` and right below `rights`, whose product is `count` or a little more; a value outside
// walks on along its cycle until it is inside again (Black and Rogaway, "Ciphers with arbitrary
// finite domains", 2002, their methods 2 and 3; Luby and Rackoff, 1988, for the rounds). The
// product exceeds count by less than its square root, so a walk is rare and a long one rarer.
// Small counts: a table, shuffled by Fisher and Yates, since a network cannot mix few values well.
// Only integers of fixed width: the order is the same on every machine.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    RD_PERMUTATION_ROUNDS = 8,    // even; twice what the proof of Luby and Rackoff asks for
    RD_PERMUTATION_TABLE = 1024,  // counts up to this have a table
};

struct rd_permutation {
    uint64_t count;   // how many values there are
    uint64_t lefts;   // values of the left half, below 2**32; 0: the table holds the order
    uint64_t rights;  // values of the right half, below 2**32
    uint64_t keys[RD_PERMUTATION_ROUNDS];
    uint16_t table[RD_PERMUTATION_TABLE];
};

// The mixing step of splitmix64 (Steele, Lea and Flood 2014, with the constants of Stafford).
static inline uint64_t rd_mixed(uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

// The n-th number, from 0, of the stream that the two words of a key give.
static inline uint64_t rd_key_stream(uint64_t low, uint64_t high, uint64_t n) {
    uint64_t bits = rd_mixed(low + (n + 1) * UINT64_C(0x9e3779b97f4a7c15));
    return rd_mixed(bits ^ high);
}

// Scale 64 random bits down to 0 .. below - 1; the high bits matter most.
static inline uint64_t rd_scaled(uint64_t bits, uint64_t below) {
    return (uint64_t)((unsigned __int128)bits * below >> 64);
}

// What a round adds to one half: a number below `below` that looks random in the other half.
static inline uint64_t rd_round(uint64_t half, uint64_t key, uint64_t below) {
    uint64_t bits = (half ^ key) * UINT64_C(0xff51afd7ed558ccd);
    bits = (bits ^ (bits >> 32)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return rd_scaled(bits, below);
}

// One pass of the network over several pairs at a time: each round waits for the one before, and
// independent pairs fill the time (measured: 10 ns for each value instead of 18).
template <int LANES>
static inline void rd_rounds(const rd_permutation* self, uint64_t* left, uint64_t* right) {
    const uint64_t lefts = self->lefts, rights = self->rights;
    for (int i = 0; i < RD_PERMUTATION_ROUNDS; i += 2) {
        for (int lane = 0; lane < LANES; lane++) {
            left[lane] += rd_round(right[lane], self->keys[i], lefts);
            left[lane] -= left[lane] >= lefts ? lefts : 0;
        }
        for (int lane = 0; lane < LANES; lane++) {
            right[lane] += rd_round(left[lane], self->keys[i + 1], rights);
            right[lane] -= right[lane] >= rights ? rights : 0;
        }
    }
}

// Set up for `count` values, from 0 to 2**63 - 1; `root` is the least number whose square is
// count or more.
static inline void rd_permutation_init(rd_permutation* self, uint64_t count, uint64_t root,
                                       uint64_t low, uint64_t high) {
    self->count = count;
    if (count <= RD_PERMUTATION_TABLE) {
        self->lefts = self->rights = 0;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t other = rd_scaled(rd_key_stream(low, high, i), i + 1);
            self->table[i] = self->table[other];  // if other is i, the next line corrects it
            self->table[other] = (uint16_t)i;
        }
        return;
    }
    self->lefts = root;
    self->rights = (count + root - 1) / root;
    for (int i = 0; i < RD_PERMUTATION_ROUNDS; i++)
        self->keys[i] = rd_key_stream(low, high, (uint64_t)i);
}

// Write the values at places start, start + step, ... to `values`. All places are below count.
static inline void rd_permutation_take(const rd_permutation* self, uint64_t start, uint64_t step,
                                       size_t length, int64_t* values) {
    if (self->lefts == 0) {
        for (size_t i = 0; i < length; i++)
            values[i] = self->table[start + i * step];
        return;
    }
    const uint64_t rights = self->rights;
    const uint64_t left_step = step / rights, right_step = step % rights;
    uint64_t left = start / rights, right = start % rights;
    for (size_t done = 0; done < length;) {
        enum { LANES = 4 };
        uint64_t l[LANES], r[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            l[lane] = left;  // lanes past the end compute too: any pair below the product will do
            r[lane] = right;
            if (done + lane + 1 >= length)
                continue;
            left += left_step;
            right += right_step;
            left += right >= rights;
            right -= right >= rights ? rights : 0;
        }
        rd_rounds<LANES>(self, l, r);
        for (int lane = 0; lane < LANES && done < length; lane++, done++) {
            while (l[lane] * rights + r[lane] >= self->count)
                rd_rounds<1>(self, &l[lane], &r[lane]);
            values[done] = (int64_t)(l[lane] * rights + r[lane]);
        }
    }
}
