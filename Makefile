# sam2track. No configure step: make, make demo, make test, make check, make sanitize, make bench,
# make install (PREFIX, DESTDIR). V=1 shows the commands.
PREFIX ?= /usr/local
B ?= build
CC ?= gcc
CFLAGS ?= -O2 -g
Q := $(if $(V),,@)

PKGS := libavformat libavcodec libavfilter libswscale libavutil libcjson libpng
WARN := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
base_cflags = -std=gnu11 $(CFLAGS) $(WARN) -fopenmp -pthread -fno-math-errno -ffp-contract=off -MMD -MP $(EXTRA)
pkg_cflags := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null) $(DNNL_LIBS) -lm -lz

# oneDNN (2.x or 3.x) does the CPU's matrix products; without it the plain C kernels do.
HAVE_DNNL := $(shell printf '\#include <dnnl.h>\nint main(void){return 0;}' | $(CC) -x c - -fsyntax-only 2>/dev/null && echo 1)
DNNL_LIBS := $(if $(HAVE_DNNL),-ldnnl)
cpu_cflags := $(if $(HAVE_DNNL),-DHAVE_DNNL)

engine_src := $(wildcard engine/*.c engine/plain/*.c)
# engine/cpu/kern_*.c are compiled once per instruction set, symbols suffixed by K()
kern_src := $(wildcard engine/cpu/kern_*.c)
cpu_src := $(filter-out $(kern_src),$(wildcard engine/cpu/*.c))
formats_src := $(wildcard formats/*.c)
cmd_src := $(wildcard cmd/*.c)
arch := $(shell $(CC) -dumpmachine | cut -d- -f1)
isas := base $(if $(filter x86_64,$(arch)),avx2 avx512)
isa_base :=
isa_avx2 := -mavx2 -mfma
isa_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mprefer-vector-width=512
kern_obj := $(foreach i,$(isas),$(patsubst %.c,$(B)/%.$(i).o,$(kern_src)))

obj = $(patsubst %.c,$(B)/%.o,$(1))
lib_obj := $(call obj,$(engine_src) $(cpu_src) $(formats_src)) $(kern_obj)

all: $(B)/sam2track
	$(Q)echo "built $(B)/sam2track ($(if $(HAVE_DNNL),CPU with oneDNN,CPU without oneDNN: slow); no CUDA backend in this build)"

$(B)/sam2track: $(call obj,$(cmd_src)) $(B)/libsam2track.a
	$(Q)echo "  LD    $@"; $(CC) $(CFLAGS) $(EXTRA) -fopenmp -pthread -o $@ $^ $(LIBS)

$(B)/libsam2track.a: $(lib_obj)
	$(Q)echo "  AR    $@"; rm -f $@; $(AR) rcs $@ $^

$(B)/engine/%.o: engine/%.c
	$(Q)mkdir -p $(@D); echo "  CC    $<"; $(CC) $(base_cflags) $(cpu_cflags) -Iengine -c -o $@ $<
$(B)/formats/%.o: formats/%.c
	$(Q)mkdir -p $(@D); echo "  CC    $<"; $(CC) $(base_cflags) $(pkg_cflags) -c -o $@ $<
$(B)/cmd/%.o: cmd/%.c
	$(Q)mkdir -p $(@D); echo "  CC    $<"; $(CC) $(base_cflags) $(pkg_cflags) -c -o $@ $<
define kern_rule
$(B)/engine/cpu/%.$(1).o: engine/cpu/%.c
	$$(Q)mkdir -p $$(@D); echo "  CC    $$< ($(1))"; $$(CC) $$(base_cflags) -O3 -ffp-contract=fast $$(isa_$(1)) '-DK(x)=x\#\#_$(1)' -DISA_$(1) -Iengine -c -o $$@ $$<
endef
$(foreach i,$(isas),$(eval $(call kern_rule,$(i))))

clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.PHONY: all clean
