/* stills.h - frames that are files of their own: a folder, a printf pattern, or a single picture. */
#ifndef S2_FORMATS_STILLS_H
#define S2_FORMATS_STILLS_H

#include "formats.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

struct fmt_stills {
    char *folder; /* ends with '/', or is empty */
    char **name;  /* [count], in frame order */
    size_t count;
};

/* The PNG and JPEG files of a folder (by extension; names that start with a dot are hidden files), ordered as
 * people count: runs of digits compare as numbers. Other files are left out with one note in the log. */
enum s2_status fmt_stills_folder(struct fmt_stills *out, const char *path, struct s2_err *);
/* path holds one %d or %0Nd in its last part (%% is a percent sign). The frames are the numbers from the smallest
 * that exists up to the first gap. false without an error: path is no such pattern. */
bool fmt_stills_is_pattern(const char *path);
enum s2_status fmt_stills_pattern(struct fmt_stills *out, const char *path, struct s2_err *);
/* One picture. */
enum s2_status fmt_stills_single(struct fmt_stills *out, const char *path, struct s2_err *);
void fmt_stills_free(struct fmt_stills *); /* zeroed struct allowed */

/* File name without folder and extension, cut to size. */
void fmt_stem(const char *path, char *stem, size_t size);

/* Decodes pictures one after another, keeping the decoder while the codec stays the same. Zeroed at first. */
struct fmt_still_reader {
    AVCodecContext *decoder;
    AVPacket *packet;
};
/* Into *out, blank. damaged: decoded, but not all of it. S2_E_INPUT and a sentence without the path if it cannot be
 * decoded at all. */
enum s2_status fmt_still_read(struct fmt_still_reader *, const char *path, AVFrame *out, bool *damaged,
                              struct s2_err *);
void fmt_still_reader_free(struct fmt_still_reader *);

#endif
