/* video_stream.h - the frames of one container's video stream, in display order, with times. */
#ifndef S2_FORMATS_VIDEO_STREAM_H
#define S2_FORMATS_VIDEO_STREAM_H

#include "av_log.h"
#include "video_convert.h"
#include "video_input.h"

/* Times in ticks of the stream's time base, from the first frame, strictly increasing. */
struct fmt_clock {
    AVRational base;
    int64_t ticks;  /* of one frame at the average rate, >= 1: for frames without a time */
    int64_t second; /* ticks of about a second, >= 1 */
    int64_t offset; /* stream time of our 0, once known */
    bool known;
    int64_t last; /* what fmt_clock_next returned last, -1 at first */
};
/* stamp: the frame's time in the stream, AV_NOPTS_VALUE if it has none. A small step back becomes the least step
 * forward; from a jump back of more than a second on, time goes on from the previous frame. */
int64_t fmt_clock_next(struct fmt_clock *, int64_t stamp);

struct fmt_stream {
    struct fmt_input *in;
    AVStream *stream;
    AVCodecContext *decoder;
    AVPacket *packet;
    AVFrame *first; /* decoded when the stream was opened, until fmt_stream_read hands it out */
    int64_t first_pts;
    struct fmt_clock clock;
    bool packets_end, frames_end;
    int64_t packet_pos, packet_size; /* bytes, of the last packet; pos < 0: not known */
    /* damage */
    int read_error;                       /* FFmpeg's, 0 if reading went to the end */
    int64_t corrupt_packets, bad_packets; /* marked by the container; refused by the decoder */
    int64_t damaged_frames, frames;       /* marked by the decoder; handed out */
    struct fmt_av_watch watch;            /* what FFmpeg's messages tell */
};

/* Opens the decoder and decodes the first frame. S2_E_INPUT: no video stream, or no decodable frame. */
enum s2_status fmt_stream_open(struct fmt_stream *, struct fmt_input *, int threads, struct s2_err *);
/* Next frame into *out (blank). false at the end, or when the input's `stop` is set. */
bool fmt_stream_read(struct fmt_stream *, AVFrame *out, int64_t *pts);
/* After the end: S2_OK, or S2_E_BROKEN with a sentence about what was damaged. */
enum s2_status fmt_stream_verdict(const struct fmt_stream *, struct s2_err *);
/* The same of the frames so far, where what follows does not matter. */
enum s2_status fmt_stream_damage(const struct fmt_stream *, struct s2_err *);
/* The display matrix of the frame or else the stream, NULL if there is none. */
const int32_t *fmt_stream_matrix(const AVStream *, const AVFrame *);
void fmt_stream_close(struct fmt_stream *); /* zeroed struct allowed */

#endif
