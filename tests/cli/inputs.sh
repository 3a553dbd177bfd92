# shellcheck shell=bash
# What can be tracked: containers, sizes, depths, stills, streams, and broken files.

case_h264_in_mp4() {
    ffmpeg -v error -f lavfi -i testsrc2=size=96x72:rate=10 -frames:v 4 -pix_fmt yuv420p clip.mp4
    track "${square[@]}" --rle out.jsonl clip.mp4
    equal "$(frames out.jsonl | wc -l)" 4 frames
    equal "$(line 5 .time out.jsonl)" 0.3
}

case_uneven_times() {
    clip --frames 5 --vfr clip.mkv
    track "${square[@]}" --rle out.jsonl clip.mkv
    for t in 0 1 2 3 4; do line $((t + 2)) .time out.jsonl; done >got
    frame_times clip.mkv >want
    paste got want | awk '{ d = $1 - $2; if (d > 0.0006 || d < -0.0006) bad = 1 } END { exit bad || NR != 5 }' ||
        fail "times: $(xargs <got), of the clip: $(xargs <want)"
}

case_rotated() {
    "$TOOLS/make-clip" --size 96x72 --frames 2 --codec mpeg4 --rotate 90 clip.mp4
    # Turned clockwise the frame is 72x96, and the square lies at the top.
    track --box 24,0,47,23 --png png --rle out.jsonl --overlay over.mp4 clip.mp4
    equal "$(line 1 .video.width out.jsonl)x$(line 1 .video.height out.jsonl)" 72x96
    equal "$(size_of png/00000.png)" 72,96
    equal "$(size_of over.mp4)" 72,96
    y=$(line 2 '.objects[0].bbox[1]' out.jsonl)
    [ "$y" -lt 8 ] || fail "the mask starts at row $y, not at the top"
    exits 2 "$SAM2TRACK" -m "$MODEL" --point 90,30 --rle two.json clip.mp4
    says '90'
}

case_ten_bit() {
    "$TOOLS/make-clip" --size 96x72 --frames 2 --codec ffv1 --pix-fmt yuv420p10le clip.mkv
    track "${square[@]}" --rle out.jsonl --overlay over.mp4 clip.mkv
    [ "$(line 3 '.objects[0].area' out.jsonl)" -gt 300 ]
    equal "$(probe -select_streams v -show_entries stream=pix_fmt over.mp4)" yuv420p
}

case_odd_size() {
    "$TOOLS/make-clip" --size 101x75 --frames 2 --codec ffv1 --pix-fmt yuv444p clip.mkv
    track "${square[@]}" --png png --png-objects objects --rle out.jsonl --overlay over.mp4 clip.mkv
    equal "$(size_of png/00001.png)" 101,75
    equal "$(size_of objects/1/00001.png)" 101,75
    equal "$(line 2 '.objects[0].segmentation.size[1]' out.jsonl)" 101
    size_of over.mp4 | awk -F, '{ exit !($1 % 2 == 0 && $2 % 2 == 0 && $1 >= 100 && $2 >= 74) }'
}

case_one_frame() {
    clip --frames 1 clip.mkv
    track "${square[@]}" --png png --rle out.json --overlay over.mp4 clip.mkv
    equal "$(json out.json .frames)" 1 frames
    equal "$(decodable over.mp4)" 1 "frames of the overlay"
}

case_stream_on_stdin() {
    clip --frames 4 clip.mkv
    track_on_cpu "${square[@]}" --rle file.jsonl --overlay file.mp4 clip.mkv
    track_on_cpu "${square[@]}" --rle pipe.jsonl --overlay pipe.mp4 - < <(cat clip.mkv)
    same <(frames file.jsonl) <(frames pipe.jsonl)
    equal "$(decodable pipe.mp4)" 4 "frames of the overlay"
}

case_prompts_on_stdin() {
    clip --frames 2 clip.mkv
    track "${square[@]}" --rle quick.jsonl clip.mkv
    echo '{"prompts": [{"frame": 0, "object": 1, "box": [0, 24, 23, 47]}]}' | track -p - --rle file.jsonl clip.mkv
    same <(frames quick.jsonl) <(frames file.jsonl)
}

case_folder_of_stills() {
    mkdir shots
    clip --frames 12 clip.mkv
    "$TOOLS/make-clip" --size 96x72 --frames 12 "shots/shot_%d.png"
    echo 'not a frame' >shots/notes.txt
    track "${square[@]}" --frames :4 --rle clip.jsonl clip.mkv
    track "${square[@]}" --frames :4 --rle shots.jsonl --png png shots
    # shot_10 comes after shot_9, not after shot_1, and names stay.
    find png -name '*.png' | sort | xargs >names
    first=$(find shots -name '*.png' | sort -V | head -n 4 | sed 's,shots,png,' | xargs)
    equal "$(cat names)" "$first" "names of the id maps"
    same <(frames clip.jsonl | sed 's/"time": [0-9.]*//') <(frames shots.jsonl | sed 's/"time": [0-9.]*//')
}

case_pattern() {
    mkdir shots
    "$TOOLS/make-clip" --size 96x72 --frames 3 "shots/f%03d.png"
    track "${square[@]}" --rle folder.jsonl shots
    track "${square[@]}" --rle pattern.jsonl --png png 'shots/f%03d.png'
    same <(frames folder.jsonl) <(frames pattern.jsonl)
    equal "$(find png -name 'f*.png' | wc -l)" 3 "id maps under the frames' names"
}

case_range_and_stride() {
    clip --frames 8 clip.mkv
    track --box 8,24,31,47@2 --frames 2:7 --stride 2 --rle out.jsonl --png png clip.mkv
    equal "$(for n in 2 3 4; do line $n .frame out.jsonl; done | xargs)" '2 4 6' "source frame numbers"
    equal "$(find png -name '*.png' | sort | xargs)" 'png/00002.png png/00004.png png/00006.png'
    exits 2 "$SAM2TRACK" -m "$MODEL" --box 8,24,31,47@3 --frames 2:7 --stride 2 --rle two.json clip.mkv
    says '3'
}

case_cannot_be_opened() {
    exits 4 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json nothing.mp4
    says 'nothing.mp4'
    echo 'this is no video' >text.mp4
    exits 4 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json text.mp4
    says 'text.mp4'
    mkdir empty
    exits 4 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json empty
    says 'empty'
    exits 4 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json - </dev/null
    absent out.json
}

case_urls_need_permission() {
    code=0
    "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json http://localhost:9/clip.mp4 2>stderr || code=$?
    [ $code -eq 2 ] || [ $code -eq 4 ] || fail "exit code $code"
    says 'allow-network'
}

case_truncated_clip_keeps_its_frames() {
    "$TOOLS/make-clip" --size 96x72 --frames 10 --fps 10 --codec ffv1 --pix-fmt bgr0 whole.mkv
    head -c $(($(stat -c %s whole.mkv) * 6 / 10)) whole.mkv >clip.mkv
    exits 5 "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --rle out.jsonl --overlay over.mp4 clip.mkv
    says 'clip.mkv'
    kept=$(frames out.jsonl | wc -l)
    [ "$kept" -ge 4 ] && [ "$kept" -le 7 ] || fail "$kept frames of the first 60%"
    track "${square[@]}" --frames ":$kept" --rle whole.jsonl whole.mkv
    same <(frames out.jsonl) <(frames whole.jsonl)
    equal "$(decodable over.mp4)" "$kept" "frames of the overlay"
    exits 5 "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --box 0,24,23,47@9#2 --late-prompts lookahead \
        --rle look.jsonl clip.mkv
    equal "$(frames look.jsonl | wc -l)" "$kept" "frames with lookahead"
}

case_cut_yuv4mpeg_stream() {
    ffmpeg -v error -f lavfi -i testsrc2=size=96x72:rate=10 -frames:v 3 -pix_fmt yuv420p clip.y4m
    exits 5 "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --rle out.jsonl - < <(head -c -100 clip.y4m)
    says 'standard input: broke off after 2 frames, in the middle of the next one'
    equal "$(frames out.jsonl | wc -l)" 2 "frames kept"
}
