/* bytes.h - little-endian numbers at any address, as ZIP, pickle and safetensors store them. */
#ifndef S2_FORMATS_BYTES_H
#define S2_FORMATS_BYTES_H

#include <stdint.h>

static inline uint16_t fmt_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t fmt_le32(const uint8_t *p)
{
    return fmt_le16(p) | (uint32_t)fmt_le16(p + 2) << 16;
}
static inline uint64_t fmt_le64(const uint8_t *p)
{
    return fmt_le32(p) | (uint64_t)fmt_le32(p + 4) << 32;
}

#endif
