/* Forced in front of every source file (-include) where gcc builds for a CPU with AMX.
 *
 * In many releases of gcc, _tile_loadconfig tells the compiler that ldtilecfg reads 8 bytes of its operand. It reads
 * all 64. The compiler may then move stores to the other 56 behind it, the CPU loads garbage, and the first decode ends
 * in a segmentation fault. Here the operand is the whole block. A gcc that gets it right loses nothing by this.
 *
 * Files that are not compiled for AMX see nothing of it. immintrin.h comes first, so that its own definition is behind
 * us: a later #include of it does nothing, and calls by the usual name then mean ours.
 */
#ifndef EDGESPEC_AMX_TILECONFIG_H
#define EDGESPEC_AMX_TILECONFIG_H

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__AMX_TILE__)

#include <immintrin.h>

struct edgespec_tile_config {
    unsigned char bytes[64];
} __attribute__((__may_alias__)); /* callers fill the block through a type of their own */

static __inline__ __attribute__((__always_inline__, __unused__)) void edgespec_tile_loadconfig(const void *config) {
    __asm__ volatile("ldtilecfg\t%X0" : : "m"(*(const struct edgespec_tile_config *)config));
}

#undef _tile_loadconfig
#define _tile_loadconfig(config) edgespec_tile_loadconfig(config)

#endif
#endif
