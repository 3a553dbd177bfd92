# shellcheck shell=bash
# Each kind of output, that they agree with each other, and what happens when they cannot be written.

case_all_kinds_agree() {
    clip --frames 4 clip.mkv
    track "${square[@]}" --box 60,10,90,60#9 --png png --png-objects objects --rle out.json --overlay over.mp4 clip.mkv
    equal "$(find png -name '*.png' | wc -l)" 4 "id maps"
    equal "$(find objects -name '*.png' | wc -l)" 8 "object masks"
    equal "$(json out.json .frames)" 4 frames
    equal "$(json out.json .format)" sam2track-rle
    equal "$(json out.json .video.width)" 96
    for t in 0 1 2 3; do
        equal "$(json out.json ".frames[$t].frame")" $t
        equal "$(json out.json ".frames[$t].objects")" 2 objects
        for k in 0 1; do
            id=$(json out.json ".frames[$t].objects[$k].id")
            area=$(json out.json ".frames[$t].objects[$k].area")
            equal "$(set_pixels "objects/$id/0000$t.png")" "$area" "pixels of object $id in frame $t"
        done
    done
    # An id map holds the ids themselves: after the square's pixels only 0, 1 and 9 occur.
    pixels png/00000.png pal8 | head -c $((96 * 72)) | od -An -v -tu1 | tr -s ' ' '\n' | grep . | sort -un | xargs >ids
    equal "$(cat ids)" '0 1 9' "ids in the map"
    equal "$(decodable over.mp4)" 4 "frames of the overlay"
    equal "$(size_of over.mp4)" 96,72
    equal "$(probe -show_entries stream=codec_name,pix_fmt over.mp4)" h264,yuv420p
}

case_outputs_are_the_same_bytes_again() {
    ffmpeg -v error -f lavfi -i testsrc2=size=320x240:rate=25 -frames:v 12 -pix_fmt yuv420p clip.mp4
    for i in 1 2; do
        track --box 60,10,190,160 --box 200,100,300,200#2 --png png$i --rle out$i.json --overlay over$i.mp4 clip.mp4
    done
    same over1.mp4 over2.mp4
    same out1.json out2.json
    diff -r png1 png2
}

case_the_overlay_keeps_shape_and_colours() {
    tags='color_space,color_primaries,color_transfer,sample_aspect_ratio'
    ffmpeg -v error -f lavfi -i testsrc2=size=96x72:rate=10 -frames:v 2 -vf setsar=4/3 -pix_fmt yuv420p \
        -x264-params colormatrix=bt470bg:colorprim=bt470bg:transfer=bt470bg pal.mp4
    ffmpeg -v error -f lavfi -i testsrc2=size=96x72:rate=10 -frames:v 2 -pix_fmt yuv420p plain.mp4
    track "${square[@]}" --overlay over.mp4 pal.mp4
    equal "$(probe -show_entries stream=$tags over.mp4)" 4:3,smpte170m,bt470bg,bt470bg
    track "${square[@]}" --overlay over.mkv plain.mp4
    equal "$(probe -show_entries stream=$tags over.mkv)" 1:1,smpte170m,unknown,unknown
    "$TOOLS/make-clip" --size 96x72 --frames 2 --codec mpeg4 --rotate 90 plain.mp4
    ffmpeg -v error -i plain.mp4 -c copy -aspect 16:9 turned.mp4
    track --point 30,30 --overlay turned.mkv turned.mp4
    equal "$(size_of turned.mkv)" 72,96
    equal "$(probe -show_entries stream=sample_aspect_ratio turned.mkv)" 3:4
}

case_the_hash_of_the_model_finds_its_place() {
    clip --frames 1 clip.mkv
    track "${square[@]}" --rle out.json clip.mkv
    equal "$(json out.json .model.sha256)" "$(sha256sum "$MODEL" | cut -d' ' -f1)"
    track "${square[@]}" --rle - clip.mkv
    equal "$(line 1 .model.sha256 stdout)" "$(sha256sum "$MODEL" | cut -d' ' -f1)"
}

case_masks_lie_on_the_square() {
    clip --frames 4 clip.mkv
    track "${square[@]}" --rle out.jsonl clip.mkv
    for t in 0 1 2 3; do
        area=$(line $((t + 2)) '.objects[0].area' out.jsonl)
        x=$(line $((t + 2)) '.objects[0].bbox[0]' out.jsonl)
        [ "$area" -gt 350 ] && [ "$area" -lt 800 ] || fail "frame $t: $area pixels of the square's 576"
        [ "$x" -ge $((4 * t - 3)) ] && [ "$x" -le $((4 * t + 3)) ] || fail "frame $t: the mask starts at column $x"
    done
}

case_json_lines_on_stdout() {
    clip --frames 3 clip.mkv
    track "${square[@]}" --rle - clip.mkv
    equal "$(wc -l <stdout)" 4 lines
    while read -r row; do echo "$row" | json -; done <stdout
    equal "$(line 1 .model.name stdout)" sam2.1_mini
    cp stdout lines
    track "${square[@]}" --rle out.jsonl clip.mkv
    same lines out.jsonl
}

case_json_and_json_lines_say_the_same() {
    clip --frames 2 clip.mkv
    track "${square[@]}" --rle out.json clip.mkv
    track "${square[@]}" --rle out.jsonl clip.mkv
    for path in .frame '.objects[0].score' '.objects[0].segmentation.counts' '.objects[0].segmentation.size[0]'; do
        equal "$(json out.json ".frames[1]$path")" "$(line 3 "$path" out.jsonl)" "$path"
    done
}

case_exclusive_masks_do_not_overlap() {
    clip --frames 2 clip.mkv
    track --box 0,24,23,47 --box 0,24,30,50#2 --overlap exclusive --png-objects exclusive clip.mkv
    for t in 0 1; do
        both=$(paste <(pixels exclusive/1/0000$t.png | od -An -v -tu1 -w1) <(pixels exclusive/2/0000$t.png |
            od -An -v -tu1 -w1) | awk '$1 && $2' | wc -l)
        equal "$both" 0 "pixels that two objects own"
    done
}

case_overlay_keeps_uneven_times() {
    clip --frames 6 --vfr clip.mkv
    track "${square[@]}" --overlay over.mp4 clip.mkv
    paste <(frame_times clip.mkv) <(frame_times over.mp4) | awk '
        { d = $1 - $2; if (d > 0.002 || d < -0.002) exit 1; n++ } END { exit n != 6 }' ||
        fail "times: $(frame_times clip.mkv | xargs), overlay: $(frame_times over.mp4 | xargs)"
}

case_overlay_keeps_audio() {
    "$TOOLS/make-clip" --size 96x72 --frames 10 --fps 10 --audio clip.mkv
    equal "$(probe -select_streams a -show_entries stream=index clip.mkv | wc -l)" 1 "audio streams of the clip"
    track "${square[@]}" --frames :10 --overlay over.mkv clip.mkv
    equal "$(probe -select_streams a -show_entries stream=index over.mkv | wc -l)" 1 "audio streams of the overlay"
}

case_existing_outputs_are_kept() {
    clip --frames 1 clip.mkv
    mkdir png && touch png/00000.png
    for output in '--png png' '--rle out.json' '--overlay over.mp4' '--stats stats.json'; do
        [ -e "${output#* }" ] || echo kept >"${output#* }"
        # shellcheck disable=SC2086
        exits 6 "$SAM2TRACK" -m "$MODEL" "${square[@]}" $output clip.mkv
        says "${output#* }"
    done
    equal "$(cat out.json over.mp4 stats.json | sort -u)" kept
    track "${square[@]}" --rle out.json --overwrite clip.mkv
    json out.json
}

case_no_temporary_files_stay() {
    clip --frames 2 clip.mkv
    track "${square[@]}" --png png --rle out.json --overlay over.mp4 --stats stats.json clip.mkv
    equal "$(find . -name 'std*' -o -type f -print | sort | xargs)" \
        './clip.mkv ./out.json ./over.mp4 ./png/00000.png ./png/00001.png ./stats.json'
}

case_stats() {
    clip --frames 4 clip.mkv
    track "${square[@]}" --stats stats.json clip.mkv
    equal "$(json stats.json .frames)" 4
    equal "$(json stats.json .status)" 0
    awk -v fps="$(json stats.json .fps)" -v mib="$(json stats.json .peak_memory_mib)" \
        'BEGIN { exit !(fps > 0 && mib > 10 && mib < 4000) }'
}

case_full_disk() {
    clip --frames 6 clip.mkv
    # Beyond 1 KiB every write fails, as on a full disk.
    trap '' XFSZ
    (
        ulimit -f 1
        exits 6 "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --overlay over.mp4 clip.mkv
    )
    says 'over.mp4'
}

case_full_stdout() {
    clip --frames 3 clip.mkv
    code=0
    "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle - clip.mkv >/dev/full 2>stderr || code=$?
    equal $code 6 "exit code"
    says 'standard output: cannot be written'
}

case_closed_pipe() {
    clip --frames 8 clip.mkv
    set +o pipefail
    { "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle - clip.mkv 2>stderr || echo $? >code; } | head -n 1 >first
    json first
    equal "$(cat code)" 6 "exit code"
}

case_impossible_place() {
    clip --frames 1 clip.mkv
    touch file
    exits 6 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --png file/png clip.mkv
    says 'file/png'
    exits 6 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle missing/out.json clip.mkv
    says 'missing/out.json'
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.txt clip.mkv
    says 'out.txt'
}

case_large_ids_do_not_fit_an_id_map() {
    clip --frames 1 clip.mkv
    exits 2 "$SAM2TRACK" -m "$MODEL" --box 0,24,23,47#300 --png png clip.mkv
    says '300'
    track --box 0,24,23,47#300 --png-objects objects clip.mkv
    [ -s objects/300/00000.png ]
}

# The number of a closed stream is free: the next file opened would get the messages.
case_closed_streams_do_not_write_into_outputs() {
    clip --frames 2 clip.mkv
    mkdir frames
    ffmpeg -v error -i clip.mkv frames/%02d.png
    track "${square[@]}" --rle want.jsonl frames
    exits 0 bash -c '"$@" 2>&-' - "$SAM2TRACK" -m "$MODEL" --progress json "${square[@]}" --rle got.jsonl frames
    same want.jsonl got.jsonl
    exits 6 bash -c '"$@" >&-' - "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle - frames
    says 'stdout|standard output'
}

case_greatest_file_size() {
    clip --frames 2 clip.mkv
    exits 6 bash -c 'ulimit -f 1; exec "$@"' - "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --overlay over.mp4 clip.mkv
    says 'over.mp4: cannot be written: File too large'
    absent over.mp4 over.mp4.part
}

case_taps_leave_no_cut_file() {
    clip --frames 2 clip.mkv
    exits 6 bash -c 'ulimit -f 20; exec "$@"' - "$SAM2TRACK" -m "$MODEL" --progress none "${square[@]}" --debug-taps taps clip.mkv
    says 'cannot be written: File too large'
    find taps -type f -size +18k >large
    equal "$(wc -l <large)" 0 "files at the limit: $(xargs <large)"
}

case_taps_need_a_folder_of_their_own() {
    clip --frames 1 clip.mkv
    for option in --png --png-objects; do
        exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" $option out --debug-taps ./out/ clip.mkv
        says "given to $option and to --debug-taps"
        absent out
    done
}

case_a_missing_folder_is_not_blamed_on_the_audio() {
    clip --frames 2 --audio clip.mkv
    exits 6 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --progress none --overlay nowhere/out.mp4 clip.mkv
    says 'nowhere/out.mp4: cannot be written'
    ! grep -q audio stderr || fail "a warning about the audio"
}

case_every_failing_output_is_named() {
    "$TOOLS/make-clip" --size 320x240 --frames 40 --fps 10 --codec ffv1 --pix-fmt bgr0 clip.mkv
    # shellcheck disable=SC2016 # the inner shell expands its own arguments
    exits 6 bash -c 'ulimit -f 4; exec "$@"' - "$SAM2TRACK" -m "$MODEL" --progress none --box 0,80,80,160 \
        --rle out.jsonl --overlay over.mp4 clip.mkv
    says '^sam2track: (warning: )?out.jsonl: cannot be written: .*[0-9]+ frames before it are kept$'
    says '^sam2track: (warning: )?over.mp4: cannot be written: .*; nothing of it is kept$'
    absent over.mp4
    [ "$(frames out.jsonl | wc -l)" -gt 1 ]
}
