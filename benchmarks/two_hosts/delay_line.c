/* Carries packets between two tun devices, each so many nanoseconds after it came: a cable's delay, where the kernel has
 * no netem. usage: delay_line NANOSECONDS FD FD, with the devices' open files. Ends with whoever started it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES (32u << 20)
#define MOST_BYTES (66u << 10) /* a packet before it is cut into frames, and its header */

struct packet { int64_t due; uint32_t size; };

/* Packets of one direction in the order they came. A packet never wraps: one that does not fit before the end begins
 * at the start, and a size of 0 says so. */
struct ring { char *bytes; size_t head, tail; int from, to; };

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static size_t slot(size_t size) { return (sizeof(struct packet) + size + 15) & ~(size_t)15; }

/* Where a packet of the largest size may be written; NULL where the line is full: the device's own queue then holds it. */
static struct packet *room(struct ring *r) {
    size_t most = slot(MOST_BYTES) + sizeof(struct packet);
    if (r->tail >= r->head) {
        if (RING_BYTES - r->tail >= most) return (struct packet *)(r->bytes + r->tail);
        if (r->head <= most) return NULL;
        ((struct packet *)(r->bytes + r->tail))->size = 0;
        r->tail = 0;
        return (struct packet *)r->bytes;
    }
    return r->head - r->tail > most ? (struct packet *)(r->bytes + r->tail) : NULL;
}

static struct packet *first(struct ring *r) {
    if (r->head == r->tail) return NULL;
    struct packet *p = (struct packet *)(r->bytes + r->head);
    if (p->size) return p;
    r->head = 0;
    return r->head == r->tail ? NULL : (struct packet *)r->bytes;
}

static void take(struct ring *r, int64_t delay) {
    struct packet *p;
    while ((p = room(r)) != NULL) {
        ssize_t size = read(r->from, p + 1, MOST_BYTES);
        if (size <= 0) return;
        p->size = (uint32_t)size;
        p->due = now() + delay;
        r->tail += slot(p->size);
    }
}

static void give(struct ring *r) {
    struct packet *p;
    while ((p = first(r)) != NULL && p->due <= now()) {
        /* A packet that the device refuses is lost, as on any link. */
        while (write(r->to, p + 1, p->size) < 0 && errno == EINTR) {}
        r->head += slot(p->size);
    }
}

int main(int count, char **words) {
    if (count != 4) return 2;
    int64_t delay = atoll(words[1]);
    struct ring rings[2] = {{.from = atoi(words[2]), .to = atoi(words[3])},
                            {.from = atoi(words[3]), .to = atoi(words[2])}};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    for (int n = 0; n < 2; n++)
        if (!(rings[n].bytes = malloc(RING_BYTES))) return 1;
    for (;;) {
        int64_t due = INT64_MAX;
        struct pollfd files[2];
        for (int n = 0; n < 2; n++) {
            give(&rings[n]);
            struct packet *p = first(&rings[n]);
            if (p && p->due < due) due = p->due;
            /* While there is no room nothing can be read, and the file would be ready all the time. */
            files[n] = (struct pollfd){.fd = room(&rings[n]) ? rings[n].from : -1, .events = POLLIN};
        }
        struct timespec wait = {0}, *limit = NULL;
        if (due != INT64_MAX) {
            int64_t left = due - now();
            if (left < 0) left = 0;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
            limit = &wait;
        }
        if (ppoll(files, 2, limit, NULL) < 0 && errno != EINTR) return 1;
        for (int n = 0; n < 2; n++)
            if (files[n].fd >= 0 && (files[n].revents & POLLIN)) take(&rings[n], delay);
    }
}
