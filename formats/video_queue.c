/* video_queue.c - a bounded queue of frames between threads. */
#include "video_queue.h"

bool fmt_queue_init(struct fmt_queue *q, int ahead)
{
    q->ahead = ahead;
    if (pthread_mutex_init(&q->mutex, NULL)) return false;
    if (pthread_cond_init(&q->changed, NULL)) {
        pthread_mutex_destroy(&q->mutex);
        return false;
    }
    q->ready = true;
    for (int i = 0; i < FMT_QUEUE_SLOTS; i++)
        if (!(q->slot[i].frame = av_frame_alloc())) return false;
    return true;
}

void fmt_queue_free(struct fmt_queue *q)
{
    for (int i = 0; i < FMT_QUEUE_SLOTS; i++) av_frame_free(&q->slot[i].frame);
    if (q->ready) {
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->mutex);
    }
    q->ready = false;
}

/* Copies all but the AVFrame, whose references move. */
static void move(struct fmt_queued *to, struct fmt_queued *from)
{
    AVFrame *frame = to->frame;
    *to = *from;
    to->frame = frame;
    av_frame_unref(frame);
    av_frame_move_ref(frame, from->frame);
}

bool fmt_queue_push(struct fmt_queue *q, int64_t number, struct fmt_queued *item)
{
    pthread_mutex_lock(&q->mutex);
    while (!q->stop && !q->ended && (q->turn != number || (item && q->count >= q->ahead)))
        pthread_cond_wait(&q->changed, &q->mutex);
    bool open = !q->stop && !q->ended;
    if (open) {
        q->turn++;
        if (item) {
            move(&q->slot[(q->head + q->count) % FMT_QUEUE_SLOTS], item);
            q->count++;
            q->total++;
        }
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->mutex);
    return open;
}

void fmt_queue_end(struct fmt_queue *q, int64_t number, const struct s2_err *why)
{
    pthread_mutex_lock(&q->mutex);
    while (!q->stop && !q->ended && q->turn < number) pthread_cond_wait(&q->changed, &q->mutex);
    if (!q->ended) {
        q->ended = true;
        q->end = *why;
    }
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

void fmt_queue_verdict(struct fmt_queue *q, struct s2_err *why)
{
    pthread_mutex_lock(&q->mutex);
    *why = q->end;
    pthread_mutex_unlock(&q->mutex);
}

bool fmt_queue_pop(struct fmt_queue *q, struct fmt_queued *out)
{
    pthread_mutex_lock(&q->mutex);
    while (!q->stop && !q->ended && !q->count) pthread_cond_wait(&q->changed, &q->mutex);
    bool got = !q->stop && q->count;
    if (got) {
        move(out, &q->slot[q->head]);
        out->number = q->total - q->count;
        q->head = (q->head + 1) % FMT_QUEUE_SLOTS;
        q->count--;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->mutex);
    return got;
}

bool fmt_queue_ready(struct fmt_queue *q)
{
    pthread_mutex_lock(&q->mutex);
    const bool ready = q->stop || q->ended || q->count;
    pthread_mutex_unlock(&q->mutex);
    return ready;
}

void fmt_queue_set_ahead(struct fmt_queue *q, int ahead)
{
    pthread_mutex_lock(&q->mutex);
    q->ahead = ahead;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

int64_t fmt_queue_wait(struct fmt_queue *q, int64_t n)
{
    pthread_mutex_lock(&q->mutex);
    while (!q->stop && !q->ended && q->total < n) pthread_cond_wait(&q->changed, &q->mutex);
    int64_t total = q->total;
    pthread_mutex_unlock(&q->mutex);
    return total;
}

void fmt_queue_stop(struct fmt_queue *q)
{
    pthread_mutex_lock(&q->mutex);
    q->stop = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}
