# shellcheck shell=bash
# Prompt files and quick prompts, and the sentences about wrong ones.

# refused JSON PATTERN: exit code 2, a sentence that names the file, nothing written
refused() {
    echo "$1" >prompts.json
    exits 2 "$SAM2TRACK" -m "$MODEL" -p prompts.json --rle out.json clip.mkv
    says 'prompts\.json'
    says "$2"
    absent out.json
}

case_quick_prompts_equal_a_file() {
    clip --frames 3 clip.mkv
    cat >prompts.json <<'J'
{"prompts": [{"frame": 0, "object": 1, "points": [[12, 36], [60, 10]], "labels": [1, 0]},
             {"frame": 1, "object": 5, "box": [60, 10, 90, 60]}]}
J
    track -p prompts.json --rle file.jsonl clip.mkv
    track --point 12,36 --point 60,10,0 --box 60,10,90,60@1#5 --rle quick.jsonl clip.mkv
    same <(frames file.jsonl) <(frames quick.jsonl)
}

case_normalized_coordinates() {
    clip --frames 1 clip.mkv
    echo '{"prompts": [{"frame": 0, "object": 1, "points": [[12, 36]]}]}' >pixels.json
    echo '{"units": "normalized", "prompts": [{"frame": 0, "object": 1, "points": [[0.125, 0.5]]}]}' >parts.json
    track -p pixels.json --rle pixels.jsonl clip.mkv
    track -p parts.json --rle parts.jsonl clip.mkv
    same <(frames pixels.jsonl) <(frames parts.jsonl)
}

case_time_instead_of_frame() {
    clip --frames 4 clip.mkv
    echo '{"prompts": [{"time": 0.25, "object": 1, "box": [8, 24, 31, 47]}]}' >prompts.json
    track -p prompts.json --rle out.jsonl clip.mkv
    # 0.25 s is shown by frame 2.
    equal "$(line 3 .objects out.jsonl)" 0 "objects on frame 1"
    equal "$(line 4 .objects out.jsonl)" 1 "objects on frame 2"
}

case_labels_round_trip() {
    clip --frames 1 clip.mkv
    echo '{"objects": [{"id": 40, "label": "red \"square\" ü"}],
           "prompts": [{"frame": 0, "object": 40, "box": [0, 24, 23, 47]}]}' >prompts.json
    track -p prompts.json --rle out.json clip.mkv
    equal "$(json out.json '.objects[0].label')" 'red "square" ü'
    equal "$(json out.json '.frames[0].objects[0].id')" 40
}

case_mask_prompts() {
    clip --frames 3 clip.mkv
    track "${square[@]}" --png-objects objects --png png --rle box.json clip.mkv
    cp objects/1/00000.png first.png
    counts=$(json box.json '.frames[0].objects[0].segmentation.counts')
    echo '{"prompts": [{"frame": 0, "object": 1, "mask": "first.png"}]}' >png.json
    echo '{"prompts": [{"frame": 0, "object": 1, "mask": "png/00000.png", "value": 1}]}' >map.json
    printf '{"prompts": [{"frame": 0, "object": 1, "mask": {"size": [72, 96], "counts": "%s"}}]}' \
        "${counts//\\/\\\\}" >rle.json
    for kind in png map rle; do track -p $kind.json --rle $kind.jsonl clip.mkv; done
    track --mask first.png --rle quick.jsonl clip.mkv
    same <(frames png.jsonl) <(frames map.jsonl)
    same <(frames png.jsonl) <(frames rle.jsonl)
    same <(frames png.jsonl) <(frames quick.jsonl)
    equal "$(line 2 '.objects[0].iou' png.jsonl)" null "iou of a mask prompt"
    # The mask of its own frame is the prompt, within the low resolution of the logits.
    area=$(line 2 '.objects[0].area' png.jsonl)
    set_pixels first.png | awk -v a="$area" '{ exit !(a > 0.8 * $1 && a < 1.2 * $1) }'
}

case_mask_of_another_size() {
    clip --frames 1 clip.mkv
    "$TOOLS/make-clip" --size 64x48 --frames 1 'small%d.png'
    exits 2 "$SAM2TRACK" -m "$MODEL" --mask "$(echo small*.png)" --rle out.json clip.mkv
    says '64'
}

case_wrong_files() {
    clip --frames 3 clip.mkv
    refused '{"prompts": [' 'line|JSON'
    refused '[]' 'object'
    refused '{"prompts": []}' 'prompts: is empty'
    refused '{"promts": []}' 'promts'
    refused '{"prompts": [{"frame": 0, "object": 1, "box": [95, 0, 90, 5]}]}' 'prompts\[0\]\.box.*90.*95'
    refused '{"prompts": [{"frame": 0, "object": 1, "box": [1, 2, 3]}]}' 'prompts\[0\]\.box'
    refused '{"prompts": [{"frame": 0, "object": 1, "points": [[1, 2]], "labels": [1, 0]}]}' 'prompts\[0\]\.labels'
    refused '{"prompts": [{"frame": 0, "object": 1, "points": [[1, 2]], "labels": [2]}]}' 'prompts\[0\]\.labels\[0\]'
    refused '{"prompts": [{"frame": 0, "object": 1, "points": [[96.5, 2]]}]}' 'prompts\[0\]\.points\[0\].*96\.5'
    refused '{"prompts": [{"frame": 0, "object": 1, "points": [[1, -3]]}]}' 'prompts\[0\]\.points\[0\].*-3'
    refused '{"prompts": [{"frame": 0, "object": 1, "points": [["1", 3]]}]}' 'prompts\[0\]\.points\[0\]'
    refused '{"prompts": [{"frame": 3, "object": 1, "points": [[1, 3]]}]}' 'prompts\[0\].*3'
    refused '{"prompts": [{"frame": -1, "object": 1, "points": [[1, 3]]}]}' 'prompts\[0\]\.frame'
    refused '{"prompts": [{"frame": 0, "object": 0, "points": [[1, 3]]}]}' 'prompts\[0\]\.object'
    refused '{"prompts": [{"frame": 0, "object": 70000, "points": [[1, 3]]}]}' 'prompts\[0\]\.object'
    refused '{"prompts": [{"frame": 0, "object": 1}]}' 'prompts\[0\]'
    refused '{"prompts": [{"frame": 0, "object": 1, "points": [[1, 3]], "pionts": 1}]}' 'pionts'
    refused '{"prompts": [{"frame": 0, "object": 1, "mask": "gone.png"}]}' 'gone\.png'
    refused '{"prompts": [{"frame": 0, "object": 1, "mask": {"size": [72, 96], "counts": "12"}}]}' 'prompts\[0\]\.mask'
    refused '{"units": "inches", "prompts": [{"frame": 0, "object": 1, "points": [[1, 3]]}]}' 'units'
    refused '{"objects": [{"id": 1}, {"id": 1}], "prompts": [{"frame": 0, "object": 1, "points": [[1, 3]]}]}' \
        'objects\[1\]'
    exits 2 "$SAM2TRACK" -m "$MODEL" -p missing.json --rle out.json clip.mkv
    says 'missing\.json'
}

case_wrong_quick_prompts() {
    clip --frames 1 clip.mkv
    for prompt in '--point 5' '--point 5,a' '--point 5,5,7' '--point 5,5@x' '--point 5,5#0' '--point 5,nan' '--box 1,2,3' \
        '--box 9,9,3,12' '--point 500,5' '--point 5,5@9' '--mask gone.png'; do
        # shellcheck disable=SC2086
        exits 2 "$SAM2TRACK" -m "$MODEL" $prompt --rle out.json clip.mkv
        says "${prompt%% *}"
        absent out.json
    done
}

case_a_mask_by_time_meets_a_click_by_frame() {
    clip --frames 2 clip.mkv
    cat >p.json <<'END'
{"prompts": [{"time": 0, "object": 1, "mask": {"size": [72, 96], "counts": [10, 100, 6802]}},
             {"frame": 0, "object": 1, "points": [[12, 36]]}]}
END
    exits 2 "$SAM2TRACK" -m "$MODEL" -p p.json --rle out.json clip.mkv
    says 'p.json: prompts\[1\]: a mask stands alone, but prompts\[0\] prompts object 1 at frame 0 too'
    absent out.json out.json.part
}

# The times of stills are known before any work.
case_times_that_no_frame_has() {
    mkdir shots
    "$TOOLS/make-clip" --size 96x72 --frames 5 'shots/f%03d.png'
    refused_at() { # time, pattern, options
        echo "{\"prompts\": [{\"frame\": 0, \"object\": 1, \"points\": [[5, 5]]}, {\"time\": $1, \"object\": 1, \"points\": [[5, 5]]}]}" >p.json
        exits 2 "$SAM2TRACK" -m "$MODEL" -p p.json --rle out.json "${@:3}" --dry-run shots
        says "p\\.json: prompts\\[1\\]: $2"
        absent out.json
    }
    refused_at 3 'time 3 s is past the end: the last frame is shown at 0\.16 s'
    refused_at 0.12 '--stride 2 skips the frame shown at 0\.12 s, number 3' --stride 2
    refused_at 0.12 'the frame shown at 0\.12 s, number 3, is outside the range of --frames' --frames :2
    track -p <(echo '{"prompts": [{"time": 0.125, "object": 1, "points": [[5, 5]]}]}') --dry-run shots
    equal "$(json stdout '.prompts[0].frame')" 3
}
