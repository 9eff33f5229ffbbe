#include "dep/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct resolver {
    pthread_mutex_t lock; /* protects all below; nothing blocks under it */
    pthread_cond_t asked;
    void (*done)(void *ctx);
    void *ctx; /* borrowed; not touched once is_abandoned */
    char name[256];
    uint64_t ticket;   /* of the last question */
    bool is_asked;     /* a question waits for the thread */
    bool is_busy;      /* a lookup is under way */
    bool is_answered;  /* `answer` is new */
    bool is_abandoned; /* the owner left: whoever sees it last frees */
    struct resolved answer;
};

static void free_resolver(struct resolver *r)
{
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->asked);
    free(r);
}

static void copy_addresses(const struct addrinfo *found, struct resolved *out)
{
    for (; found != NULL && out->count < RESOLVER_MAX_ADDRESSES; found = found->ai_next)
        if (getnameinfo(found->ai_addr, found->ai_addrlen, out->addresses[out->count],
                        sizeof out->addresses[0], NULL, 0, NI_NUMERICHOST) == 0)
            out->count++;
}

static void look_up(const char *name, struct resolved *out)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(name, NULL, &hints, &found);

    if (failed != 0) {
        (void)snprintf(out->text, sizeof out->text, "%s", gai_strerror(failed));
        return;
    }
    copy_addresses(found, out);
    freeaddrinfo(found);
    if (out->count == 0)
        (void)snprintf(out->text, sizeof out->text, "no usable address");
}

/* Waits for the next question, with the lock held. False: the owner left. */
static bool wait_for_question(struct resolver *r)
{
    while (!r->is_asked && !r->is_abandoned)
        (void)pthread_cond_wait(&r->asked, &r->lock);
    r->is_asked = false;
    r->is_busy = !r->is_abandoned;
    return r->is_busy;
}

static void *run(void *arg)
{
    struct resolver *r = arg;

    (void)pthread_mutex_lock(&r->lock);
    while (wait_for_question(r)) {
        struct resolved answer = {.ticket = r->ticket};
        char name[sizeof r->name];

        memcpy(name, r->name, sizeof name);
        (void)pthread_mutex_unlock(&r->lock);
        look_up(name, &answer); /* may block for as long as the system's resolver likes */
        (void)pthread_mutex_lock(&r->lock);
        r->is_busy = false;
        r->is_answered = true;
        r->answer = answer;
        if (!r->is_abandoned)
            r->done(r->ctx);
    }
    (void)pthread_mutex_unlock(&r->lock);
    free_resolver(r);
    return NULL;
}

struct resolver *resolver_start(void (*done)(void *ctx), void *ctx, struct error *err)
{
    struct resolver *r = calloc(1, sizeof *r);
    pthread_attr_t detached;
    pthread_t thread;
    int failed;

    if (r == NULL) {
        (void)error_set(err, "resolver: out of memory");
        return NULL;
    }
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->asked, NULL);
    r->done = done;
    r->ctx = ctx;
    (void)pthread_attr_init(&detached);
    (void)pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &detached, run, r);
    (void)pthread_attr_destroy(&detached);
    if (failed != 0) {
        free_resolver(r);
        (void)error_set(err, "resolver: %s", error_of_errno(failed));
        return NULL;
    }
    (void)pthread_setname_np(thread, "resolver");
    return r;
}

void resolver_stop(struct resolver *r)
{
    if (r == NULL)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->is_abandoned = true;
    (void)pthread_cond_signal(&r->asked);
    (void)pthread_mutex_unlock(&r->lock);
}

uint64_t resolver_ask(struct resolver *r, const char *name)
{
    uint64_t ticket = 0;

    (void)pthread_mutex_lock(&r->lock);
    if (!r->is_busy && !r->is_asked) {
        (void)snprintf(r->name, sizeof r->name, "%s", name);
        ticket = ++r->ticket;
        r->is_asked = true;
        r->is_answered = false;
        (void)pthread_cond_signal(&r->asked);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return ticket;
}

bool resolver_take(struct resolver *r, struct resolved *out)
{
    bool is_new;

    (void)pthread_mutex_lock(&r->lock);
    is_new = r->is_answered;
    if (is_new)
        *out = r->answer;
    r->is_answered = false;
    (void)pthread_mutex_unlock(&r->lock);
    return is_new;
}
