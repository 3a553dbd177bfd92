# shellcheck shell=bash
# --direction: backward is forward on the mirrored clip, both adds the frames before the first prompts.

# mirrored N: frames of the clip as stills in there/, the other way round in back/
mirrored() {
    mkdir there back
    "$TOOLS/make-clip" --size 96x72 --fps 10 --frames "$1" 'made%d.png'
    for n in $(seq 0 $(($1 - 1))); do
        cp "made$((n + 1)).png" "$(printf 'there/f%03d.png' "$n")"
        mv "made$((n + 1)).png" "$(printf 'back/f%03d.png' $(($1 - 1 - n)))"
    done
}

# same_mirrored N DIR DIR: id maps of a run over there/ and of one over back/
same_mirrored() {
    for n in $(seq 0 $(($1 - 1))); do
        same "$(printf '%s/f%03d.png' "$2" "$n")" "$(printf '%s/f%03d.png' "$3" $(($1 - 1 - n)))"
    done
}

case_backward_is_forward_mirrored() {
    mirrored 10
    for late in refine restart lookahead; do
        # a start, a correction, a second object on the way, one that stops and starts again
        track_on_cpu --late-prompts $late --direction backward --png a --overwrite -p <(cat <<'J'
{"prompts": [{"frame": 8, "object": 1, "box": [32, 24, 55, 47]}, {"frame": 4, "object": 1, "points": [[27, 36]]},
 {"frame": 6, "object": 2, "box": [60, 10, 90, 60]}, {"frame": 9, "object": 3, "points": [[10, 10]]},
 {"frame": 5, "object": 3, "stop": true}, {"frame": 2, "object": 3, "points": [[80, 60]]}]}
J
        ) there
        track_on_cpu --late-prompts $late --png b --overwrite -p <(cat <<'J'
{"prompts": [{"frame": 1, "object": 1, "box": [32, 24, 55, 47]}, {"frame": 5, "object": 1, "points": [[27, 36]]},
 {"frame": 3, "object": 2, "box": [60, 10, 90, 60]}, {"frame": 0, "object": 3, "points": [[10, 10]]},
 {"frame": 4, "object": 3, "stop": true}, {"frame": 7, "object": 3, "points": [[80, 60]]}]}
J
        ) back
        same_mirrored 10 a b
    done
}

case_backward_outputs_in_display_order() {
    clip --frames 8 clip.mkv
    track --box 20,24,43,47@5 --direction backward --png png --png-objects objects --rle out.jsonl --overlay over.mp4 \
        --stats stats.json clip.mkv
    for t in 0 1 2 3 4 5 6 7; do
        equal "$(line $((t + 2)) .frame out.jsonl)" $t "frame in line $((t + 2))"
        equal "$(line $((t + 2)) .objects out.jsonl)" $((t < 6)) "objects on frame $t"
        [ -f png/0000$t.png ] || fail "no id map of frame $t"
    done
    equal "$(decodable over.mp4)" 8 "frames of the overlay"
    equal "$(json stats.json .frames)" 8 frames
    equal "$(json stats.json .direction)" backward
    # the square on its way back, 4 pixels a frame
    for t in 0 2 4; do
        x=$(line $((t + 2)) '.objects[0].bbox[0]' out.jsonl)
        [ "$x" -ge $((4 * t - 3)) ] && [ "$x" -le $((4 * t + 3)) ] || fail "frame $t: the mask starts at column $x"
    done
}

case_backward_by_range_and_stride() {
    clip --frames 12 clip.mkv
    track --box 32,24,55,47@8 --direction backward --frames 2:11 --stride 3 --rle out.jsonl clip.mkv
    equal "$(frames out.jsonl | sed 's/.*"frame": \([0-9]*\),.*/\1/' | xargs)" "2 5 8" "frames"
    equal "$(line 2 .objects out.jsonl)" 1
    exits 2 "$SAM2TRACK" -m "$MODEL" --box 32,24,55,47@9 --direction backward --frames 2:11 --stride 3 --rle o.json clip.mkv
    says 'skips frame 9'
}

# Every container reads backwards: the same masks as from stills of the same pixels.
case_backward_from_containers() {
    clip --frames 9 --gop 4 clip.mkv
    "$TOOLS/make-clip" --size 96x72 --fps 10 --frames 9 'f%03d.png'
    track --box 24,24,47,47@6 --direction backward --rle stills.jsonl 'f%03d.png'
    track --box 24,24,47,47@6 --direction backward --rle clip.jsonl clip.mkv
    same <(frames stills.jsonl | sed 's/"time": [0-9.]*//') <(frames clip.jsonl | sed 's/"time": [0-9.]*//')
}

case_both_is_forward_and_what_lies_before() {
    clip --frames 9 clip.mkv
    prompts=(--box 12,24,35,47@3 --point 75,35@6#2)
    track_on_cpu "${prompts[@]}" --png png1 --rle forward.jsonl clip.mkv
    track_on_cpu "${prompts[@]}" --direction both --png png2 --png-objects objects --rle both.jsonl --overlay over.mp4 clip.mkv
    # from the last first prompt on, nothing differs
    same <(sed -n '8,$p' forward.jsonl) <(sed -n '8,$p' both.jsonl)
    for t in 6 7 8; do same png1/0000$t.png png2/0000$t.png; done
    for t in 0 1 2 3 4 5; do
        equal "$(line $((t + 2)) .objects both.jsonl)" 2 "objects on frame $t"
        [ "$(set_pixels objects/1/0000$t.png)" -gt 300 ] || fail "object 1 is lost on frame $t"
    done
    for t in 3 4 5; do
        equal "$(line $((t + 2)) '.objects[0].segmentation.counts' both.jsonl)" \
            "$(line $((t + 2)) '.objects[0].segmentation.counts' forward.jsonl)" "object 1 on frame $t"
        equal "$(line $((t + 2)) '.objects[0].iou' both.jsonl)" "$(line $((t + 2)) '.objects[0].iou' forward.jsonl)"
    done
    equal "$(decodable over.mp4)" 9 "frames of the overlay"
    # an object is the same whatever others there are
    track_on_cpu --box 12,24,35,47@3 --direction both --rle alone.jsonl clip.mkv
    for t in 0 1 2 3 4 5 6 7 8; do
        for path in '.objects[0].score' '.objects[0].segmentation.counts'; do
            equal "$(line $((t + 2)) "$path" both.jsonl)" "$(line $((t + 2)) "$path" alone.jsonl)" "frame $t, $path"
        done
    done
}

case_both_from_the_first_frame_is_forward() {
    clip --frames 4 clip.mkv
    track "${square[@]}" --rle forward.jsonl clip.mkv
    track "${square[@]}" --direction both --rle both.jsonl clip.mkv
    same <(frames forward.jsonl) <(frames both.jsonl)
}

# Where two objects meet, the one pass knows what the other gave: pixels have one owner, and the union stays.
case_both_applies_the_overlap_rule_across_passes() {
    clip --frames 8 clip.mkv
    prompts=(--box 0,20,60,60 --box 20,24,43,47@5#2 --direction both)
    track "${prompts[@]}" --rle allow.jsonl --png allow clip.mkv
    track "${prompts[@]}" --overlap exclusive --png-objects objects --rle exclusive.jsonl --png maps clip.mkv
    for t in 0 2 4 6; do
        same allow/0000$t.png maps/0000$t.png
        a=$(line $((t + 2)) '.objects[0].area' exclusive.jsonl) b=$(line $((t + 2)) '.objects[1].area' exclusive.jsonl)
        map=$(pixels maps/0000$t.png pal8 | head -c $((96 * 72)) | tr -d '\0' | wc -c)
        equal "$((a + b))" "$map" "owned pixels of frame $t"
        [ $((a + b)) -lt $(($(line $((t + 2)) '.objects[0].area' allow.jsonl) + $(line $((t + 2)) '.objects[1].area' allow.jsonl))) ] ||
            fail "frame $t: the objects do not overlap, the test says nothing"
    done
}

case_both_with_stops() {
    clip --frames 9 clip.mkv
    cat >prompts.json <<'J'
{"prompts": [{"frame": 1, "object": 1, "stop": true}, {"frame": 4, "object": 1, "box": [16, 24, 39, 47]},
             {"frame": 6, "object": 1, "stop": true}, {"frame": 8, "object": 1, "box": [32, 24, 55, 47]}]}
J
    track -p prompts.json --direction both --rle out.jsonl clip.mkv
    # the first stop ends the way back, the second the way on, until the object is prompted again
    equal "$(for t in 0 1 2 3 4 5 6 7 8; do line $((t + 2)) .objects out.jsonl; done | xargs)" "0 0 1 1 1 1 0 0 1"
    exits 2 "$SAM2TRACK" -m "$MODEL" -p prompts.json --rle o.json clip.mkv
    says 'prompts\.json: prompts\[0\].*not prompted before frame 1'
    sed -i 's/"frame": 8/"frame": 5/' prompts.json
    exits 2 "$SAM2TRACK" -m "$MODEL" -p prompts.json --direction backward --rle o.json clip.mkv
    says 'prompts\.json: prompts\[2\].*not prompted behind frame 6'
}

case_prompts_by_time() {
    clip --frames 8 clip.mkv
    cat >time.json <<'J'
{"prompts": [{"time": 0.45, "object": 1, "box": [16, 24, 39, 47]}, {"time": 0.1, "object": 1, "points": [[16, 36]]}]}
J
    cat >frame.json <<'J'
{"prompts": [{"frame": 4, "object": 1, "box": [16, 24, 39, 47]}, {"frame": 1, "object": 1, "points": [[16, 36]]}]}
J
    for d in backward both; do
        track -p time.json --direction $d --rle time.$d.jsonl clip.mkv
        track -p frame.json --direction $d --rle frame.$d.jsonl clip.mkv
        same <(frames time.$d.jsonl) <(frames frame.$d.jsonl)
    done
    sed -i 's/0\.45/0.95/' time.json
    exits 2 "$SAM2TRACK" -m "$MODEL" -p time.json --direction backward --rle o.json clip.mkv
    says 'time\.json: prompts\[0\]: time 0\.95 s is past the end'
    absent o.json o.json.part
}

case_no_way_back_on_a_stream() {
    clip --frames 3 clip.mkv
    for d in backward both; do
        exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --direction $d --rle o.json - <clip.mkv
        says "direction $d reads INPUT from its end.*stdin"
        exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --direction $d --rle o.json <(cat clip.mkv)
        says "direction $d reads INPUT from its end"
    done
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --direction up --rle o.json clip.mkv
    says 'forward\|backward\|both'
    absent o.json
}

case_a_damaged_clip_is_tracked_to_its_end() {
    clip --frames 12 --gop 3 whole.mkv
    head -c $(($(wc -c <whole.mkv) * 6 / 10)) whole.mkv >clip.mkv
    exits 5 "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --rle forward.jsonl clip.mkv
    n=$(frames forward.jsonl | wc -l)
    [ "$n" -gt 3 ] && [ "$n" -lt 12 ]
    exits 5 "$SAM2TRACK" -m "$MODEL" --progress none --box 8,24,31,47@2 --direction backward --rle backward.jsonl clip.mkv
    says 'broke off'
    equal "$(frames backward.jsonl | wc -l)" "$n" frames
    exits 5 "$SAM2TRACK" -m "$MODEL" --progress none --box 8,24,31,47@2 --direction both --rle both.jsonl clip.mkv
    equal "$(frames both.jsonl | wc -l)" "$n" frames
    equal "$(line 2 .objects both.jsonl)" 1
}

# interrupted_in DIRECTION PATTERN FRAME...: what was complete by then is there, in order
interrupted_in() {
    clip --frames 60 --gop 5 clip.mkv
    set -m
    "$SAM2TRACK" -m "$MODEL" --device cpu --progress json --box 20,24,43,47@"$3" --direction "$1" --rle out.jsonl --overlay over.mp4 \
        clip.mkv 2>stderr &
    for _ in $(seq 1200); do
        grep -q "$2" stderr && break
        sleep 0.05
    done
    kill -INT $!
    code=0
    wait $! || code=$?
    equal "$code" 130 "exit code"
    kept=$(frames out.jsonl | wc -l)
    [ "$kept" -gt 0 ] && [ "$kept" -lt 60 ] || fail "$kept frames kept"
    equal "$(decodable over.mp4)" "$kept" "frames of the overlay"
    says 'interrupted; writing'
}

case_interrupted_backward() {
    interrupted_in backward '"stage": "track", "done": [3-9]' 55
    equal "$(tail -n 1 out.jsonl | json - .frame)" 59
}

case_interrupted_on_the_way_back() {
    interrupted_in both '"stage": "back", "done": [2-9]' 40
    equal "$(tail -n 1 out.jsonl | json - .frame)" 59
    [ "$(line 2 .frame out.jsonl)" -lt 40 ]
}

case_interrupted_before_anything_is_complete() {
    clip --frames 60 clip.mkv
    set -m
    "$SAM2TRACK" -m "$MODEL" --device cpu --progress json "${square[@]}" --box 60,10,90,60@58#2 --direction both --rle out.jsonl \
        clip.mkv 2>stderr &
    for _ in $(seq 1200); do
        grep -q '"stage": "track", "done": [3-9]' stderr && break
        sleep 0.05
    done
    kill -TERM $!
    code=0
    wait $! || code=$?
    equal "$code" 143 "exit code"
    says 'before any frame was complete'
    absent out.jsonl out.jsonl.part
}

case_no_room_for_waiting_results() {
    clip --frames 6 clip.mkv
    exits 6 env TMPDIR=/nowhere/at/all "$SAM2TRACK" -m "$MODEL" --progress none --box 8,24,31,47@2 --direction backward \
        --rle out.jsonl clip.mkv
    says '/nowhere/at/all: no file for results.*TMPDIR'
    absent out.jsonl out.jsonl.part
    # a limit of 2 KiB a file stands for a full disk; what fitted is written
    code=0
    (ulimit -f 2 && "$SAM2TRACK" -m "$MODEL" --progress none --point 75,35@5 --box 20,24,43,47@5#2 --box 0,0,80,70@5#3 \
        --point 10,10@5#4 --point 40,60@5#5 --direction backward --rle - clip.mkv 2>stderr) | cat >out.jsonl || code=$?
    says 'results that wait for the way back cannot be kept there.*TMPDIR'
    n=$(frames out.jsonl | wc -l)
    [ "$n" -ge 1 ] && [ "$n" -lt 6 ] || fail "$n frames kept"
    equal "$(tail -n 1 out.jsonl | json - .frame)" 5
}

case_the_plan_names_the_passes() {
    clip --frames 6 clip.mkv
    track --box 8,24,31,47@2 --direction both --late-prompts lookahead --dry-run clip.mkv
    equal "$(json stdout '.passes[0]') $(json stdout '.passes[3]') $(json stdout '.passes[4]')" "index back write"
    equal "$(json stdout .options.direction)" both
    equal "$(json stdout .frames_to_process)" 6
}
