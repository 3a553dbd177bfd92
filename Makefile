# sam2track. No configure step:
#   make            the program, build/sam2track        make demo     build, render a clip and track it
#   make test       everything below, about 10 minutes  make check    format, include rules, symbols, man pages
#   make sanitize   the tests under ASan and UBSan      make fuzz     fuzz targets with clang, FUZZ_SECONDS each
#   make bench      operator and stage timings          make install  PREFIX, DESTDIR
# V=1 shows the commands, B=DIR builds elsewhere, WERROR=-Werror makes warnings errors.
PREFIX ?= /usr/local
B ?= build
CC ?= gcc
CFLAGS ?= -O2 -g
WERROR ?=
Q := $(if $(V),,@)

PKGS := libavformat libavcodec libswscale libavutil libcjson libpng
WARN := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
base_cflags = -std=gnu11 $(CFLAGS) $(WARN) $(WERROR) -fopenmp -pthread -fno-math-errno -ffp-contract=off -MMD -MP $(EXTRA)
pkg_cflags := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null) $(cuda_libs) -lm -lz
link = $(CC) $(CFLAGS) $(EXTRA) -fopenmp -pthread

# With a CUDA toolkit (CUDA_HOME, or nvcc on the PATH) the GPU backend is built in; CUDA= leaves it out. Code for
# Ampere (and Ada) and Hopper, and PTX of the first for what comes after; CUDA_ARCH=90a builds for one GPU alone.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null)))
CUDA ?= $(if $(wildcard $(CUDA_HOME)/bin/nvcc),1)
CUDA_ARCH ?= 80 90a
cuda_src := $(if $(CUDA),$(wildcard cuda/*.cu))
cuda_gen := $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(patsubst %a,%,$(firstword $(CUDA_ARCH))),code=compute_$(patsubst %a,%,$(firstword $(CUDA_ARCH)))
cuda_flags = -std=c++17 -O3 -Xcompiler -Wall,-O2,-fno-strict-aliasing -DCUDA_ARCHS='"$(addprefix sm_,$(CUDA_ARCH))"' $(cuda_gen)
cuda_cflags := $(if $(CUDA),-DHAVE_CUDA)
cuda_libs := $(if $(CUDA),$(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a $(CUDA_HOME)/targets/x86_64-linux/lib/libcudart_static.a)) -ldl -lrt -lstdc++)

engine_src := $(wildcard engine/*.c engine/plain/*.c)
# engine/cpu/kern_*.c are compiled once per instruction set, symbols suffixed by K(); engine/cpu/amx_*.c and the table
# once per precision, where the compiler and its assembler know AMX (GCC 12, clang 14)
kern_src := $(wildcard engine/cpu/kern_*.c)
amx_src := $(wildcard engine/cpu/amx_*.c)
cpu_src := $(filter-out $(kern_src) $(amx_src),$(wildcard engine/cpu/*.c))
formats_src := $(wildcard formats/*.c)
cmd_src := $(wildcard cmd/*.c)
arch := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)
isas := base $(if $(filter x86_64,$(arch)),avx2 avx512)
isa_base :=
isa_avx2 := -mavx2 -mfma
isa_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mprefer-vector-width=512
amx_flags := $(isa_avx512) -mavx512bf16 -mamx-tile -mamx-bf16
amx_probe := void f(void); void f(void) { __asm__ volatile("tdpbf16ps %tmm1, %tmm2, %tmm0"); }
amx_isas := $(if $(filter x86_64,$(arch)),$(shell echo '$(amx_probe)' | $(CC) -Werror $(amx_flags) -x c -c -o /dev/null - 2>/dev/null && echo amx amx_bf16))
isa_amx := $(amx_flags) -DISA_avx512 -DAMX_SPLIT=1
isa_amx_bf16 := $(amx_flags) -DISA_avx512 -DAMX_SPLIT=0
kern_obj := $(foreach i,$(isas),$(patsubst %.c,$(B)/%.$(i).o,$(kern_src))) \
	$(foreach i,$(amx_isas),$(patsubst %.c,$(B)/%.$(i).o,$(amx_src) engine/cpu/kern_table.c))

obj = $(patsubst %.c,$(B)/%.o,$(1))
test_obj = $(patsubst tests/%.c,$(B)/tests/obj/%.o,$(1))
cuda_obj := $(patsubst %.cu,$(B)/%.o,$(cuda_src))
lib_obj := $(call obj,$(engine_src) $(cpu_src) $(formats_src)) $(kern_obj) $(cuda_obj)

# One Criterion binary of all suites and their helpers; the programs beside it have a main of their own.
unit_src := $(filter-out %_main.c,$(wildcard tests/*.c)) $(filter-out %/main.c,$(wildcard tests/scene/*.c))
kcheck_src := $(wildcard tests/kcheck/*.c)
scene_src := $(wildcard tests/scene/*.c)
clip_src := $(wildcard tests/make_clip.c tests/make_clip_main.c)
test_bins := $(if $(unit_src),$(B)/tests/unit) $(if $(kcheck_src),$(B)/tests/kcheck) $(if $(scene_src),$(B)/tests/scene) \
	$(if $(clip_src),$(B)/tests/make-clip) $(B)/tests/json

jobs := $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || sysctl -n hw.ncpu))

all: $(B)/sam2track
	$(Q)echo "built $(B)/sam2track ($(if $(CUDA),CPU and GPUs of compute capability $(firstword $(CUDA_ARCH)) and newer,CPU only; no CUDA backend in this build))"

$(B)/sam2track: $(call obj,$(cmd_src)) $(B)/libsam2track.a
	$(Q)echo "  LD    $@"; $(link) -o $@ $^ $(LIBS)

$(B)/libsam2track.a: $(lib_obj)
	$(Q)echo "  AR    $@"; rm -f $@; $(AR) rcs $@ $^

# Everything is compiled anew when the compiler or its flags change.
flags := $(CC) $(amx_isas) $(base_cflags) $(pkg_cflags) $(cuda_cflags) $(cuda_gen)
$(B)/flags: FORCE
	$(Q)mkdir -p $(@D); echo '$(flags)' | cmp -s - $@ || echo '$(flags)' >$@
$(lib_obj) $(call obj,$(cmd_src)) $(call test_obj,$(unit_src) $(kcheck_src) $(scene_src) $(clip_src) tests/json_main.c): $(B)/flags

$(B)/engine/%.o: engine/%.c
	$(Q)mkdir -p $(@D); echo "  CC    $<"; $(CC) $(base_cflags) $(if $(amx_isas),-DHAVE_AMX) -Iengine -c -o $@ $<
$(B)/formats/%.o: formats/%.c
	$(Q)mkdir -p $(@D); echo "  CC    $<"; $(CC) $(base_cflags) $(pkg_cflags) -c -o $@ $<
$(B)/cmd/%.o: cmd/%.c
	$(Q)mkdir -p $(@D); echo "  CC    $<"; $(CC) $(base_cflags) $(pkg_cflags) $(cuda_cflags) -c -o $@ $<
$(B)/cuda/%.o: cuda/%.cu
	$(Q)mkdir -p $(@D); echo "  NVCC  $<"; $(CUDA_HOME)/bin/nvcc $(cuda_flags) -MD -MP -MF $(B)/cuda/$*.d -c -o $@ $<
$(B)/tests/obj/%.o: tests/%.c
	$(Q)mkdir -p $(@D); echo "  CC    $<"; $(CC) $(base_cflags) $(cuda_cflags) $(pkg_cflags) -Iengine -c -o $@ $<
paste := \#\#
# GCC 14 splits some multiply-adds in two for AVX2, some not: slower, and a row's bytes would depend on its tile.
whole_fma := $(shell $(CC) -Werror --param=avoid-fma-max-bits=0 -fsyntax-only -x c /dev/null 2>/dev/null && echo --param=avoid-fma-max-bits=0)
define kern_rule
$(B)/engine/cpu/%.$(1).o: engine/cpu/%.c
	$$(Q)mkdir -p $$(@D); echo "  CC    $$< ($(1))"; $$(CC) $$(base_cflags) -O3 -ffp-contract=fast $(whole_fma) $$(isa_$(1)) '-DK(x)=x$(paste)_$(1)' -DISA_$(1) -Iengine -c -o $$@ $$<
endef
$(foreach i,$(isas) $(amx_isas),$(eval $(call kern_rule,$(i))))

# ------------------------------------------------------------------ tests

tests: $(B)/sam2track $(test_bins)

$(B)/tests/unit: $(call test_obj,$(unit_src)) $(call obj,$(filter-out cmd/main.c,$(cmd_src))) $(B)/libsam2track.a
	$(Q)echo "  LD    $@"; $(link) -o $@ $^ $(LIBS) $(shell pkg-config --libs criterion)
$(B)/tests/kcheck: $(call test_obj,$(kcheck_src)) $(B)/libsam2track.a
	$(Q)echo "  LD    $@"; $(link) -o $@ $^ $(LIBS)
$(B)/tests/scene: $(call test_obj,$(scene_src))
	$(Q)echo "  LD    $@"; $(link) -o $@ $^ $(LIBS)
$(B)/tests/make-clip: $(call test_obj,$(clip_src)) $(B)/libsam2track.a
	$(Q)echo "  LD    $@"; $(link) -o $@ $^ $(LIBS)

$(B)/tests/json: $(call test_obj,tests/json_main.c)
	$(Q)echo "  LD    $@"; $(link) -o $@ $^ $(LIBS)

demo:
	$(Q)scripts/setup build
	$(Q)$(MAKE) --no-print-directory $(jobs) all $(B)/tests/scene
	$(Q)scripts/demo $(B)

test:
	$(Q)scripts/setup test
	$(Q)B=$(B) MAKE='$(MAKE)' scripts/run-tests build unit kcheck cli check sanitize

check:
	$(Q)$(MAKE) --no-print-directory $(jobs) all
	$(Q)scripts/check $(B)

sanitize:
	$(Q)B=$(B) MAKE='$(MAKE)' scripts/run-tests sanitize

bench:
	$(Q)$(MAKE) --no-print-directory $(jobs) all $(B)/tests/kcheck
	$(B)/tests/kcheck --bench
	$(B)/sam2track bench -m tests/data/sam2track-mini.safetensors
	$(B)/sam2track bench --random tiny

# ------------------------------------------------------------------ fuzzing: clang, the parsers and their targets only

FUZZ_SECONDS ?= 20
fuzz_names := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz_flags := -std=gnu11 -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -pthread -MMD -MP
fuzz_lib := $(patsubst %.c,$(B)/fuzz/obj/%.o,$(formats_src) engine/base.c engine/yuv.c)

fuzz: $(addprefix $(B)/fuzz/,$(fuzz_names))
	$(Q)for f in $(fuzz_names); do \
		mkdir -p $(B)/fuzz/corpus_$$f; \
		$(B)/fuzz/$$f -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -timeout=10 -artifact_prefix=$(B)/fuzz/$$f- \
			$(B)/fuzz/corpus_$$f $$([ $$f != fuzz_pt ] || echo tests/data/checkpoints) >$(B)/fuzz/$$f.log 2>&1 || { tail -n 60 $(B)/fuzz/$$f.log; exit 1; }; \
		echo "$$f: $$(grep '^Done' $(B)/fuzz/$$f.log)"; done

$(B)/fuzz/obj/%.o: %.c
	$(Q)mkdir -p $(@D); echo "  FUZZ  $<"; clang $(fuzz_flags) -fsanitize=fuzzer-no-link $(pkg_cflags) -c -o $@ $<
$(B)/fuzz/%: $(B)/fuzz/obj/tests/fuzz/%.o $(fuzz_lib)
	$(Q)echo "  LD    $@"; clang $(fuzz_flags) -fsanitize=fuzzer -o $@ $^ $(LIBS)
.SECONDARY: $(patsubst %,$(B)/fuzz/obj/tests/fuzz/%.o,$(fuzz_names)) $(fuzz_lib)

# ------------------------------------------------------------------ install

install: $(B)/sam2track
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 755 $(B)/sam2track $(DESTDIR)$(PREFIX)/bin/sam2track
	install -m 644 man/sam2track.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 man/sam2track-formats.5 $(DESTDIR)$(PREFIX)/share/man/man5/

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/sam2track $(DESTDIR)$(PREFIX)/share/man/man1/sam2track.1 \
		$(DESTDIR)$(PREFIX)/share/man/man5/sam2track-formats.5

clean:
	rm -rf $(B)

-include $(shell find $(B) -name '*.d' 2>/dev/null)
FORCE:
.PHONY: all tests demo test check sanitize bench fuzz install uninstall clean FORCE
