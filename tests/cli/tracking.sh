# shellcheck shell=bash
# What happens over the frames: late objects, corrections, stops, and that results do not depend on chance.

case_late_object_changes_nothing_else() {
    clip --frames 5 clip.mkv
    track_on_cpu "${square[@]}" --rle one.jsonl clip.mkv
    track_on_cpu "${square[@]}" --box 60,10,90,60@3#2 --png-objects objects --rle two.jsonl clip.mkv
    for t in 0 1 2; do equal "$(line $((t + 2)) .objects two.jsonl)" 1 "objects on frame $t"; done
    for t in 3 4; do equal "$(line $((t + 2)) .objects two.jsonl)" 2 "objects on frame $t"; done
    for t in 0 1 2 3 4; do
        for path in '.objects[0].score' '.objects[0].segmentation.counts'; do
            equal "$(line $((t + 2)) "$path" two.jsonl)" "$(line $((t + 2)) "$path" one.jsonl)" "frame $t, $path"
        done
    done
    # Before its first prompt an object's masks are there and empty.
    equal "$(set_pixels objects/2/00002.png)" 0 "pixels before the object starts"
}

case_correction_sticks() {
    clip --frames 5 clip.mkv
    # A click gives a mask that is too large; from frame 2 on a box gives the square, 576 pixels.
    track --point 12,36 --rle without.jsonl clip.mkv
    track --point 12,36 --box 8,24,31,47@2 --rle refine.jsonl clip.mkv
    track --point 12,36 --box 8,24,31,47@2 --late-prompts restart --rle restart.jsonl clip.mkv
    for mode in refine restart; do
        same <(sed -n 2,3p without.jsonl) <(sed -n 2,3p $mode.jsonl)
        for n in 4 5 6; do differ <(sed -n ${n}p without.jsonl) <(sed -n ${n}p $mode.jsonl); done
        for n in 4 5 6; do
            area=$(line $n '.objects[0].area' $mode.jsonl)
            [ "$area" -gt 450 ] && [ "$area" -lt 700 ] || fail "$mode, frame $((n - 2)): $area pixels"
        done
    done
    differ <(sed -n 4p refine.jsonl) <(sed -n 4p restart.jsonl)
}

case_restart_equals_a_new_start() {
    clip --frames 4 clip.mkv
    track --point 80,60 --box 8,24,31,47@2 --late-prompts restart --rle restart.jsonl clip.mkv
    track --box 8,24,31,47@2 --rle start.jsonl clip.mkv
    equal "$(line 4 '.objects[0].segmentation.counts' restart.jsonl)" \
        "$(line 4 '.objects[0].segmentation.counts' start.jsonl)" "the prompted frame's mask"
}

case_lookahead() {
    clip --frames 4 clip.mkv
    track "${square[@]}" --rle refine.jsonl clip.mkv
    track "${square[@]}" --late-prompts lookahead --rle lookahead.jsonl clip.mkv
    same <(frames refine.jsonl) <(frames lookahead.jsonl)
    # A later prompt is known from the start: already frame 1 sees it.
    track "${square[@]}" --box 12,24,35,47@3 --rle refine.jsonl --overwrite clip.mkv
    track "${square[@]}" --box 12,24,35,47@3 --late-prompts lookahead --rle lookahead.jsonl --overwrite clip.mkv
    same <(sed -n 2p refine.jsonl) <(sed -n 2p lookahead.jsonl)
    differ <(sed -n 3p refine.jsonl) <(sed -n 3p lookahead.jsonl)
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --box 12,24,35,47@3 --late-prompts lookahead --rle stdin.jsonl - \
        < <(cat clip.mkv)
    says 'lookahead'
    absent stdin.jsonl
}

case_stop_and_start_again() {
    clip --frames 6 clip.mkv
    cat >prompts.json <<'J'
{"prompts": [{"frame": 0, "object": 1, "box": [0, 24, 23, 47]}, {"frame": 0, "object": 2, "box": [60, 10, 90, 60]},
             {"frame": 2, "object": 1, "stop": true}, {"frame": 4, "object": 1, "box": [16, 24, 39, 47]}]}
J
    track -p prompts.json --png-objects objects --rle out.jsonl clip.mkv
    for t in 0 1 4 5; do [ "$(set_pixels objects/1/0000$t.png)" -gt 200 ] || fail "frame $t is empty"; done
    for t in 2 3; do equal "$(set_pixels objects/1/0000$t.png)" 0 "pixels of the stopped object on frame $t"; done
    for t in 0 1 2 3 4 5; do [ "$(set_pixels objects/2/0000$t.png)" -gt 0 ] || fail "object 2 is lost on frame $t"; done
}

case_nothing_before_the_first_prompt() {
    clip --frames 3 clip.mkv
    track --box 4,24,27,47@1 --png png --rle out.jsonl clip.mkv
    equal "$(line 2 .objects out.jsonl)" 0 "objects on frame 0"
    equal "$(pixels png/00000.png pal8 | head -c $((96 * 72)) | tr -d '\0' | wc -c)" 0 "set pixels of frame 0"
    equal "$(frames out.jsonl | wc -l)" 3 frames
}

case_same_bytes_again_and_on_any_number_of_threads() {
    clip --frames 4 clip.mkv
    prompts=("${square[@]}" --box 60,10,90,60#2 --point 50,30@2#3)
    for run in a b; do
        track "${prompts[@]}" --rle $run.jsonl --overlay $run.mp4 --png $run clip.mkv
    done
    same a.jsonl b.jsonl
    same a.mp4 b.mp4
    for t in 0 1 2 3; do same a/0000$t.png b/0000$t.png; done
    for n in 1 2 3; do
        track "${prompts[@]}" --threads $n --rle $n.jsonl clip.mkv
        same <(frames a.jsonl) <(frames $n.jsonl)
    done
}

case_hole_filling_only_adds() {
    clip --frames 1 clip.mkv
    track --point 80,60 --fill-holes 0 --rle none.jsonl clip.mkv
    track --point 80,60 --fill-holes 1000000 --rle all.jsonl clip.mkv
    [ "$(line 2 '.objects[0].area' all.jsonl)" -ge "$(line 2 '.objects[0].area' none.jsonl)" ]
}

case_size_1024() {
    clip --frames 1 clip.mkv
    track "${square[@]}" --size 1024 --rle out.jsonl clip.mkv
    equal "$(line 1 .model.size out.jsonl)" 1024
}
