/* Counts what a process takes from malloc and its kin and from mmap, between start and stop, by caller.

   cc -O2 -shared -fPIC -o counter.so allocation_counter.c; LD_PRELOAD=./counter.so ...
   Memory still comes from the C library (glibc), under the names that it keeps for interposers. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

#define SITES 4096
struct site { _Atomic(uintptr_t) caller; _Atomic(uint64_t) calls, bytes, largest; };
static struct site sites[SITES];
static atomic_int counting;

static void note(void *caller, size_t size) {
    if (!atomic_load_explicit(&counting, memory_order_relaxed)) return;
    uintptr_t key = (uintptr_t)caller;
    for (size_t probe = 0; probe < SITES; probe++) {
        struct site *s = &sites[(key * 0x9E3779B97F4A7C15u + probe) % SITES];
        uintptr_t found = 0;
        if (!atomic_compare_exchange_strong(&s->caller, &found, key) && found != key) continue;
        atomic_fetch_add(&s->calls, 1);
        atomic_fetch_add(&s->bytes, size);
        uint64_t most = atomic_load(&s->largest);
        while (most < size && !atomic_compare_exchange_weak(&s->largest, &most, size)) {}
        return;
    }
}
#define HERE __builtin_return_address(0)

void *malloc(size_t n) { note(HERE, n); return __libc_malloc(n); }
void *calloc(size_t n, size_t each) { note(HERE, n * each); return __libc_calloc(n, each); }
void *realloc(void *p, size_t n) { note(HERE, n); return __libc_realloc(p, n); }
void *memalign(size_t to, size_t n) { note(HERE, n); return __libc_memalign(to, n); }
void *aligned_alloc(size_t to, size_t n) { note(HERE, n); return __libc_memalign(to, n); }
int posix_memalign(void **p, size_t to, size_t n) {
    note(HERE, n);
    *p = __libc_memalign(to, n);
    return *p || !n ? 0 : ENOMEM;
}
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t from) {
    note(HERE, n);
    return (void *)syscall(SYS_mmap, at, n, protection, flags, file, from);
}
void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

/* What Python calls. A site is four numbers of 64 bits: caller, calls, bytes, largest. */
void allocation_counter_start(void) {
    for (size_t i = 0; i < SITES; i++) {
        sites[i].calls = sites[i].bytes = sites[i].largest = 0;
    }
    atomic_store(&counting, 1);
}
size_t allocation_counter_stop(const struct site **found) {
    atomic_store(&counting, 0);
    *found = sites;
    return SITES;
}
