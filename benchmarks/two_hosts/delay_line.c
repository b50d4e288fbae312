/* One direction of a cable: carries packets from one tun device to another, at a rate, each with a delay.
 * usage: delay_line NANOSECONDS BITS_PER_SECOND FD FD, with the devices' open files. Ends with whoever started it.
 *
 * Hosts pay for it with their processors, which a cable does not: most of all for timers and for being woken up, some
 * 20 us each in a virtual machine. So it looks at its device only where a packet's arrival changes when it is due, which
 * is not so while the line is busy, and gives what is due within a tick at once. What may end a message is on time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* A tick, that a packet may be late where others follow: nanoseconds, and bytes at the rate, of which the less counts. */
#define TICK 1000000.0
#define TICK_BYTES (256 << 10)
#define FULL_BYTES 50000 /* of a packet in the midst of a message */
#define RING_BYTES (32u << 20)
#define MOST_BYTES (66u << 10) /* a packet before it is cut into frames, and its header */

struct packet { int64_t due; uint32_t size, ends; };

/* Packets in the order they came. A packet never wraps: one that does not fit before the end begins at the start, and a
 * size of 0 says so. */
static char *ring;
static size_t head, tail;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static size_t slot(size_t size) { return (sizeof(struct packet) + size + 15) & ~(size_t)15; }

/* Where a packet of the largest size may be written; NULL where the line is full: the device's own queue then holds it. */
static struct packet *room(void) {
    size_t most = slot(MOST_BYTES) + sizeof(struct packet);
    if (tail >= head) {
        if (RING_BYTES - tail >= most) return (struct packet *)(ring + tail);
        if (head <= most) return NULL;
        ((struct packet *)(ring + tail))->size = 0;
        tail = 0;
        return (struct packet *)ring;
    }
    return head - tail > most ? (struct packet *)(ring + tail) : NULL;
}

static struct packet *at(size_t *place) {
    if (*place == tail) return NULL;
    struct packet *p = (struct packet *)(ring + *place);
    if (p->size) return p;
    *place = 0;
    return *place == tail ? NULL : (struct packet *)ring;
}

/* Bytes on the line of a packet with its header of virtio_net: each frame that it is cut into has headers of its own. */
static int64_t line_bytes(const struct packet *p) {
    const struct virtio_net_hdr *about = (const struct virtio_net_hdr *)(p + 1);
    int64_t size = p->size - sizeof *about, headers = about->hdr_len, data = about->gso_size;
    if (about->gso_type == VIRTIO_NET_HDR_GSO_NONE || !data || size <= headers) return size;
    return size + ((size - headers + data - 1) / data - 1) * headers;
}

/* Whether a host may wait for this packet: not one with bytes of a message that others follow, nor one without bytes. */
static int may_end(const struct packet *p) {
    const unsigned char *ip = (const unsigned char *)(p + 1) + sizeof(struct virtio_net_hdr);
    const unsigned char *tcp = ip + (ip[0] & 15) * 4;
    if (p->size < 60 || ip[0] >> 4 != 4 || ip[9] != IPPROTO_TCP) return 1;
    int64_t bytes = p->size - (tcp + (tcp[12] >> 4) * 4 - (const unsigned char *)(p + 1));
    return bytes > 0 && bytes < FULL_BYTES;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    const int64_t delay = atoll(words[1]);
    const double byte = 8e9 / atof(words[2]);
    const int64_t tick = TICK < byte * TICK_BYTES ? TICK : byte * TICK_BYTES;
    const int from = atoi(words[3]), to = atoi(words[4]);
    int64_t idle = 0; /* when the line is free again */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    if (!(ring = malloc(RING_BYTES))) return 1;
    for (;;) {
        struct packet *p;
        int64_t time = now();
        while ((p = room()) != NULL) {
            ssize_t size = read(from, p + 1, MOST_BYTES);
            if (size <= 0) break;
            p->size = (uint32_t)size;
            idle = (idle > time ? idle : time) + (int64_t)(byte * line_bytes(p));
            p->due = idle + delay;
            p->ends = may_end(p);
            tail += slot(p->size);
        }
        while ((p = at(&head)) != NULL && p->due <= time) {
            /* A packet that the device refuses is lost, as on any link. */
            while (write(to, p + 1, p->size) < 0 && errno == EINTR) {}
            head += slot(p->size);
        }
        if (!p) { /* the line is empty */
            struct pollfd file = {.fd = from, .events = POLLIN};
            if (poll(&file, 1, -1) < 0 && errno != EINTR) return 1;
            continue;
        }
        int64_t wake = p->due, latest = wake > time + tick ? wake : time + tick;
        for (size_t place = head; (p = at(&place)) != NULL && p->due <= latest; place += slot(p->size)) {
            wake = p->due;
            if (p->ends) break;
        }
        if (idle >= wake) {
            struct timespec until = {wake / 1000000000, wake % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
            continue;
        }
        int64_t left = wake - now();
        if (left <= 0) continue;
        struct timespec wait = {left / 1000000000, left % 1000000000};
        struct pollfd file = {.fd = room() ? from : -1, .events = POLLIN};
        if (ppoll(&file, 1, &wait, NULL) < 0 && errno != EINTR) return 1;
    }
}
