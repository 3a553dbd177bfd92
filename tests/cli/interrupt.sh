# shellcheck shell=bash
# Ctrl-C and termination: the frames so far are whole and playable.

# interrupted SIGNAL CODE
interrupted() {
    clip --frames 400 --gop 1 clip.mkv
    set -m # so that the program gets the default SIGINT
    "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --rle - --overlay over.mp4 --png png clip.mkv >out.jsonl 2>stderr &
    for _ in $(seq 600); do
        [ "$(wc -l <out.jsonl)" -ge 4 ] && break
        sleep 0.1
    done
    kill "-$1" $!
    code=0
    wait $! || code=$?
    equal "$code" "$2" "exit code"
    says 'interrupted'
    kept=$(frames out.jsonl | wc -l)
    [ "$kept" -ge 3 ] && [ "$kept" -lt 400 ] || fail "$kept frames kept"
    while read -r row; do echo "$row" | json -; done <out.jsonl
    equal "$(decodable over.mp4)" "$kept" "frames of the overlay"
    equal "$(find png -name '*.png' | wc -l)" "$kept" "id maps"
}

case_interrupt() { interrupted INT 130; }
case_terminate() { interrupted TERM 143; }
case_hang_up() { interrupted HUP 129; }

case_hang_up_under_nohup() {
    clip --frames 30 --gop 1 clip.mkv
    nohup "$SAM2TRACK" -m "$MODEL" --device cpu --progress none "${square[@]}" --rle out.jsonl clip.mkv >stdout 2>stderr </dev/null &
    for _ in $(seq 600); do
        [ -s out.jsonl.part ] && break
        sleep 0.1
    done
    kill -HUP $!
    wait $! || fail "exit code $?"
    equal "$(frames out.jsonl | wc -l)" 30 frames
}
