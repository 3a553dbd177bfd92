# shellcheck shell=bash
# What the cases share. A case fails with its first failing command.

fail() {
    echo "FAILED: $*"
    exit 1
}

# Ends the case: what it tests is not to be had on this machine.
skip() {
    echo "$*"
    exit 77
}

# exits CODE command...: runs it; stdout goes to ./stdout, stderr to ./stderr
exits() {
    local want=$1 got=0
    shift
    "$@" >stdout 2>stderr || got=$?
    [ "$got" -eq "$want" ] || {
        head -n 20 stderr
        fail "exit code $got instead of $want: $*"
    }
}

# track ...: exit code 0 expected
track() { exits 0 "$SAM2TRACK" -m "$MODEL" --progress none "$@"; }

# The same where bytes are compared of runs that a GPU rounds differently, because it has other frames or objects in a
# batch, or where it would be done too soon.
track_on_cpu() { track --device cpu "$@"; }

says() { # pattern: on stderr
    grep -qE -- "$1" stderr || {
        cat stderr
        fail "stderr does not say '$1'"
    }
}

equal() { # got, want, what
    [ "$1" = "$2" ] || fail "${3:-value}: '$1' instead of '$2'"
}

same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
differ() { ! cmp -s "$1" "$2" || fail "$1 and $2 are the same"; }
absent() {
    for path in "$@"; do [ ! -e "$path" ] || fail "$path is there"; done
}

json() { "$TOOLS/json" "$@"; }
# line N PATH FILE: of JSON lines; line 1 is the header, line 2 the first frame
line() { sed -n "$1p" "$3" | json - "$2"; }
frames() { tail -n +2 "$1"; }

# A red square of a third of the height moves right by 4 pixels a frame; it starts at the left edge.
clip() { "$TOOLS/make-clip" --size 96x72 --fps 10 --codec ffv1 --pix-fmt bgr0 "$@"; }
square=(--box 0,24,23,47)

probe() { ffprobe -v error "$@" -of csv=p=0; }
size_of() { probe -select_streams v -show_entries stream=width,height "$1" | head -n 1; }
# Every frame decodes: prints how many.
decodable() { probe -select_streams v -count_frames -show_entries stream=nb_read_frames "$1"; }
frame_times() { probe -select_streams v -show_entries frame=pts_time "$1" | grep -o '^[0-9.]*'; }
# Stored values of a PNG: bytes (palette indices, or 0/255).
pixels() { ffmpeg -v error -i "$1" -f rawvideo -pix_fmt "${2:-gray}" - ; }
set_pixels() { pixels "$1" | tr -d '\0' | wc -c; }
