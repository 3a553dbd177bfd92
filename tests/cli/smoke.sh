# shellcheck shell=bash
# A short run of everything, for a build that checks its memory.

case_track_two_objects() {
    "$TOOLS/make-clip" --size 64x48 --frames 3 --fps 10 --audio clip.mkv
    cat >prompts.json <<'J'
{"objects": [{"id": 1, "label": "square"}], "prompts": [
 {"frame": 0, "object": 1, "box": [0, 16, 15, 31]}, {"frame": 1, "object": 1, "points": [[10, 24]]},
 {"frame": 1, "object": 9, "points": [[40, 30], [5, 5]], "labels": [1, 0]}]}
J
    track -p prompts.json --png png --png-objects objects --rle out.json --overlay over.mp4 --stats stats.json clip.mkv
    json out.json
}

case_refusals() {
    clip --frames 1 clip.mkv
    exits 2 "$SAM2TRACK" -m "$MODEL" --box 9,9,3,12 --rle out.json clip.mkv
    exits 3 "$SAM2TRACK" -m clip.mkv "${square[@]}" --rle out.json clip.mkv
    exits 4 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json "$MODEL"
    exits 0 "$SAM2TRACK" inspect --json "$MODEL" clip.mkv
}

case_both_directions() {
    clip --frames 5 --gop 2 clip.mkv
    prompts=(--box 8,24,31,47@2 --point 75,35@3#2)
    for direction in backward both; do
        track "${prompts[@]}" --direction $direction --png $direction --rle $direction.jsonl --overlay $direction.mp4 clip.mkv
        equal "$(frames $direction.jsonl | wc -l)" 5 frames
    done
    track "${prompts[@]}" --direction both --late-prompts lookahead --stats - clip.mkv
    equal "$(json stdout .steps)" 8 steps
}
