#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/cache.h"
#include "config/config.h"
#include "dep/dependency.h"
#include "json/json_text.h"
#include "observe/exposition.h"
#include "observe/health.h"
#include "observe/process.h"
#include "query/catalog.h"
#include "query/route.h"
#include "web/admin_guard_internal.h"
#include "web/admin_purge_internal.h"
#include "web/admin_site_internal.h"
#include "web/head_internal.h"
#include "web/health_facts.h"
#include "web/problem_internal.h"
#include "web/service.h"
#include "web/status.h"

enum { MAX_REPLY_BYTES = 64 * 1024 * 1024, WORKER_LATE_US = 5000000 };

static const char health_type[] = "application/health+json";
static const char breakers_path[] = "/breakers/";
static const char purge_path[] = "/cache/purge";

struct admin_site {
    struct service *service;             /* borrowed */
    struct instant started_at;           /* immutable */
    char host_name[256];                 /* immutable; empty: unknown */
    uint64_t question_count;             /* names requests that have no id of their own */
    const char **route_labels;           /* owned array; the catalog's texts */
    const char **dependency_names;       /* owned array; the config's texts */
    const struct admission **admissions; /* owned array; borrowed admissions */
    const char **endpoints;              /* owned array: labels, grouped by their source */
    size_t *endpoint_counts;             /* owned array: a dependency's share of endpoints */
    struct health_fact *facts;           /* owned array; written anew for each health document */
};

/* A page with GET (and HEAD). */
struct page {
    const char *path;
    void (*write)(struct admin_site *site, const struct admin_question *q, struct admin_reply *out);
};

/* --- creation --- */

/* One element more than needed, so that none is not out of memory. */
static bool site_allocate(struct admin_site *site, size_t routes, size_t dependencies)
{
    site->route_labels = calloc(routes + 1, sizeof *site->route_labels);
    site->endpoints = calloc(routes + 1, sizeof *site->endpoints);
    site->dependency_names = calloc(dependencies + 1, sizeof *site->dependency_names);
    site->admissions = calloc(dependencies + 1, sizeof *site->admissions);
    site->endpoint_counts = calloc(dependencies + 1, sizeof *site->endpoint_counts);
    site->facts = calloc(dependencies + 1, sizeof *site->facts);
    return site->route_labels != NULL && site->endpoints != NULL &&
           site->dependency_names != NULL && site->admissions != NULL &&
           site->endpoint_counts != NULL && site->facts != NULL;
}

static void site_name_routes(struct admin_site *site)
{
    const struct catalog *catalog = site->service->config->catalog;

    for (size_t i = 0; i < catalog->route_count; i++)
        site->route_labels[i] = catalog->routes[i].label;
}

static void site_name_dependencies(struct admin_site *site)
{
    const struct catalog *catalog = site->service->config->catalog;
    size_t at = 0;

    for (size_t d = 0; d < site->service->config->dependency_count; d++) {
        size_t first = at;

        site->dependency_names[d] = site->service->dependencies[d]->name;
        site->admissions[d] = &site->service->dependencies[d]->admission;
        for (size_t i = 0; i < catalog->route_count; i++)
            if (catalog->routes[i].source == d)
                site->endpoints[at++] = catalog->routes[i].label;
        site->endpoint_counts[d] = at - first;
    }
}

struct admin_site *admin_site_create(struct service *service, struct instant now)
{
    const struct config *config = service->config;
    struct admin_site *site = calloc(1, sizeof *site);

    if (site == NULL)
        return NULL;
    site->service = service;
    site->started_at = now;
    if (gethostname(site->host_name, sizeof site->host_name - 1) != 0)
        site->host_name[0] = '\0';
    if (!site_allocate(site, config->catalog->route_count, config->dependency_count)) {
        admin_site_destroy(site);
        return NULL;
    }
    site_name_routes(site);
    site_name_dependencies(site);
    return site;
}

void admin_site_destroy(struct admin_site *site)
{
    if (site == NULL)
        return;
    free(site->route_labels);
    free(site->endpoints);
    free(site->dependency_names);
    free(site->admissions);
    free(site->endpoint_counts);
    free(site->facts);
    free(site);
}

/* --- replies --- */

static void reply_begin(struct admin_reply *out, int status, const char *media_type)
{
    *out = (struct admin_reply){.status = status, .media_type = media_type};
    buffer_init(&out->body, MAX_REPLY_BYTES);
}

void admin_site_refuse(struct admin_site *site, const char *request_id, int status,
                       enum reason reason, const char *detail, struct admin_reply *out)
{
    char id[40];

    (void)snprintf(id, sizeof id, "admin-%" PRIu64, site->question_count);
    if (request_id != NULL && head_is_request_id((struct raw_text){request_id, strlen(request_id)}))
        (void)snprintf(id, sizeof id, "%s", request_id);
    reply_begin(out, status, "application/problem+json");
    problem_write(
        &out->body,
        &(struct problem){.status = status, .reason = reason, .detail = detail, .instance = id});
}

static void refuse(struct admin_site *site, const struct admin_question *q, enum reason reason,
                   const char *detail, struct admin_reply *out)
{
    admin_site_refuse(site, q->request_id, reason_http(reason), reason, detail, out);
}

/* --- health, metrics, status --- */

static size_t facts_collect(struct admin_site *site)
{
    size_t count =
        health_facts_collect(site->service, site->facts, site->service->config->dependency_count);
    const char *const *endpoints = site->endpoints;

    for (size_t i = 0; i < count; i++) {
        site->facts[i].endpoints = endpoints;
        site->facts[i].endpoint_count = site->endpoint_counts[i];
        endpoints += site->endpoint_counts[i];
    }
    return count;
}

static void health_page(struct admin_site *site, const struct admin_question *q,
                        struct admin_reply *out)
{
    size_t count = facts_collect(site);
    bool is_draining = site->service->is_draining;
    enum health_status status = health_overall(site->facts, count, is_draining);

    (void)q;
    reply_begin(out, health_status_http(status), health_type);
    health_write(&out->body, site->facts, count, is_draining, false);
}

/* {"status":"pass"}, or why not. */
static void verdict_write(struct admin_reply *out, const char *output)
{
    reply_begin(out, health_status_http(output == NULL ? HEALTH_PASS : HEALTH_FAIL), health_type);
    buffer_append_format(&out->body, "{\"status\":\"%s\"",
                         health_status_name(output == NULL ? HEALTH_PASS : HEALTH_FAIL));
    if (output != NULL) {
        buffer_append_text(&out->body, ",\"output\":");
        json_text_append(&out->body, output, strlen(output));
    }
    buffer_append_char(&out->body, '}');
}

/* The first worker whose loop has not turned for too long, and for how long; or NULL. */
static const struct thread_metrics *late_worker(const struct admin_site *site, struct instant now,
                                                int64_t *out_late_us)
{
    const struct metrics *m = site->service->metrics;

    for (size_t i = 0; i < site->service->config->server.workers && i < m->thread_count; i++) {
        int64_t beat_us = (int64_t)counter_read(&m->threads[i].heartbeat_us);
        int64_t late_us = now.us - (beat_us != 0 ? beat_us : site->started_at.us);

        if (late_us > WORKER_LATE_US) {
            *out_late_us = late_us;
            return &m->threads[i];
        }
    }
    return NULL;
}

static void live_page(struct admin_site *site, const struct admin_question *q,
                      struct admin_reply *out)
{
    int64_t late_us = 0;
    const struct thread_metrics *late = late_worker(site, q->now, &late_us);
    char output[128];

    if (late == NULL) {
        verdict_write(out, NULL);
        return;
    }
    (void)snprintf(output, sizeof output, "the loop of %s has not turned for %" PRId64 " s",
                   late->name[0] != '\0' ? late->name : "a worker", late_us / 1000000);
    verdict_write(out, output);
}

static void ready_page(struct admin_site *site, const struct admin_question *q,
                       struct admin_reply *out)
{
    (void)q;
    verdict_write(out, health_unready_reason(site->service));
}

static void metrics_page(struct admin_site *site, const struct admin_question *q,
                         struct admin_reply *out)
{
    const struct service *service = site->service;
    struct process_facts process;
    struct exposition e = {
        .metrics = service->metrics,
        .route_labels = site->route_labels,
        .dependency_names = site->dependency_names,
        .admissions = site->admissions,
        .process = &process,
        .version = WEIR_VERSION,
        .http_connections = service->connections,
        .log_dropped_count = log_dropped_count(),
        .now = q->now,
    };

    process_read(&process, service->started_wall_us);
    cache_read(service->cache, &e.cache);
    reply_begin(out, 200, "text/plain; version=0.0.4; charset=utf-8");
    exposition_write(&out->body, &e);
}

static void status_page(struct admin_site *site, const struct admin_question *q,
                        struct admin_reply *out)
{
    struct process_facts process;

    process_read(&process, site->service->started_wall_us);
    reply_begin(out, 200, "application/json");
    status_write(&out->body, site->service, &process, q->now, q->wall_us);
}

static const struct page pages[] = {
    {"/health", health_page},   {"/health/live", live_page}, {"/health/ready", ready_page},
    {"/metrics", metrics_page}, {"/status", status_page},
};

static const struct page *page_find(const char *path)
{
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (strcmp(pages[i].path, path) == 0)
            return &pages[i];
    return NULL;
}

/* --- changes --- */

static bool is_json(const char *content_type)
{
    static const char json[] = "application/json";

    if (content_type == NULL || strncasecmp(content_type, json, sizeof json - 1) != 0)
        return false;
    content_type += sizeof json - 1;
    content_type += strspn(content_type, " \t");
    return *content_type == '\0' || *content_type == ';';
}

/* True: the token is right, or none is asked for where only this machine can connect. */
static bool may_pass_token(struct admin_site *site, const struct admin_question *q,
                           struct admin_reply *out)
{
    const struct admin_config *config = &site->service->config->admin;
    enum token_verdict verdict;

    if (config->token_file == NULL) {
        if (admin_address_is_loopback(config->address))
            return true;
        refuse(site, q, REASON_FORBIDDEN,
               "the admin port is not on a loopback address: changes need admin.token_file", out);
        return false;
    }
    verdict = admin_token_check(q->authorization, config->token_file);
    if (verdict == TOKEN_UNREADABLE) {
        refuse(site, q, REASON_INTERNAL, "admin.token_file cannot be read, or is empty", out);
    } else if (verdict == TOKEN_WRONG) {
        refuse(site, q, REASON_UNAUTHORIZED, "the admin token is missing or wrong", out);
        out->asks_for_token = true;
    }
    return verdict == TOKEN_RIGHT;
}

static bool may_change(struct admin_site *site, const struct admin_question *q,
                       struct admin_reply *out)
{
    const struct admin_names names = {
        .address = site->service->config->admin.address,
        .host_name = site->host_name,
        .reached_at = q->reached_at,
    };

    if (!admin_host_is_known(q->host, &names)) {
        refuse(site, q, REASON_FORBIDDEN,
               "Host must be a loopback name, the address of the admin port or weir's host name",
               out);
        return false;
    }
    if (!may_pass_token(site, q, out))
        return false;
    if (!is_json(q->content_type)) {
        refuse(site, q, REASON_UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json",
               out);
        return false;
    }
    return true;
}

static struct dependency *dependency_find(const struct admin_site *site, const char *name)
{
    for (size_t i = 0; i < site->service->config->dependency_count; i++)
        if (strcmp(site->service->dependencies[i]->name, name) == 0)
            return site->service->dependencies[i];
    return NULL;
}

static void mode_log(const struct dependency *dep, enum breaker_mode from, enum breaker_mode to)
{
    struct log_line line;

    log_begin(&line, LOG_INFO, "breaker_mode");
    log_str(&line, "dependency", dep->name);
    log_str(&line, "from", breaker_mode_name(from));
    log_str(&line, "to", breaker_mode_name(to));
    log_end(&line);
}

static void mode_set(struct dependency *dep, enum breaker_mode mode, struct admin_reply *out)
{
    enum breaker_mode before = admission_read(&dep->admission).mode;
    struct admission_view view;

    admission_set_mode(&dep->admission, mode);
    mode_log(dep, before, mode);
    view = admission_read(&dep->admission);
    reply_begin(out, 200, "application/json");
    buffer_append_text(&out->body, "{\"name\":");
    json_text_append(&out->body, dep->name, strlen(dep->name));
    buffer_append_format(&out->body, ",\"mode\":\"%s\",\"state\":\"%s\"}",
                         breaker_mode_name(view.mode), breaker_state_name(view.state));
}

static void breaker_post(struct admin_site *site, const struct admin_question *q,
                         struct admin_reply *out)
{
    struct dependency *dep;
    enum breaker_mode mode;
    struct error err;

    if (!may_change(site, q, out))
        return;
    dep = dependency_find(site, q->path + sizeof breakers_path - 1);
    if (dep == NULL)
        refuse(site, q, REASON_NOT_FOUND, "no such dependency", out);
    else if (!admin_mode_parse(q->body, q->body_bytes, &mode, &err))
        refuse(site, q, REASON_BAD_BODY, err.text, out);
    else
        mode_set(dep, mode, out);
}

static void purge_log(const struct purge *purge)
{
    struct log_line line;

    log_begin(&line, LOG_INFO, "cache_purged");
    log_str(&line, "route", purge->route != NULL ? purge->route->label : "all");
    log_int(&line, "entries", (int64_t)purge->entry_count);
    log_end(&line);
}

static void purge_post(struct admin_site *site, const struct admin_question *q,
                       struct admin_reply *out)
{
    const struct purge_place place = {.cache = site->service->cache,
                                      .catalog = site->service->config->catalog,
                                      .route_labels = site->route_labels};
    struct purge purge;
    enum reason reason;
    struct error err;

    if (!may_change(site, q, out))
        return;
    reason = admin_purge(&place, (struct raw_text){q->body, q->body_bytes}, &purge, &err);
    if (reason != REASON_NONE) {
        refuse(site, q, reason, err.text, out);
        return;
    }
    purge_log(&purge);
    reply_begin(out, 200, "application/json");
    buffer_append_format(&out->body, "{\"entries\":%" PRIu64 "}", purge.entry_count);
}

/* --- which page? --- */

typedef void post_fn(struct admin_site *site, const struct admin_question *q,
                     struct admin_reply *out);

/* What a POST to this path changes; NULL: nothing does. */
static post_fn *post_find(const char *path)
{
    if (strncmp(path, breakers_path, sizeof breakers_path - 1) == 0)
        return breaker_post;
    return strcmp(path, purge_path) == 0 ? purge_post : NULL;
}

static void refuse_method(struct admin_site *site, const struct admin_question *q,
                          const char *allow, struct admin_reply *out)
{
    refuse(site, q, REASON_METHOD_NOT_ALLOWED, NULL, out);
    out->allow = allow;
}

static void question_route(struct admin_site *site, const struct admin_question *q,
                           struct admin_reply *out)
{
    const struct page *page = page_find(q->path);
    post_fn *post = post_find(q->path);
    bool is_read = strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0;

    if (page != NULL && is_read)
        page->write(site, q, out);
    else if (page != NULL)
        refuse_method(site, q, "GET, HEAD", out);
    else if (post == NULL)
        refuse(site, q, REASON_NOT_FOUND, NULL, out);
    else if (strcmp(q->method, "POST") == 0)
        post(site, q, out);
    else
        refuse_method(site, q, "POST", out);
}

void admin_site_answer(struct admin_site *site, const struct admin_question *q,
                       struct admin_reply *out)
{
    site->question_count++;
    question_route(site, q, out);
    if (out->body.failed) {
        buffer_fini(&out->body);
        refuse(site, q, REASON_INTERNAL, "the answer does not fit in memory", out);
    }
}
