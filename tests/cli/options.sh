# shellcheck shell=bash
# Help, version, option syntax, the dry run.

case_help() {
    exits 0 "$SAM2TRACK" --help
    grep -q 'sam2track inspect' stdout
    equal "$(wc -c <stderr)" 0 "bytes on stderr"
    for verb in track inspect bench; do
        exits 0 "$SAM2TRACK" $verb --help
        grep -q "^Usage: sam2track .*$verb" stdout
        mv stdout by_option
        exits 0 "$SAM2TRACK" help $verb
        same stdout by_option
    done
    exits 0 "$SAM2TRACK" help
    grep -q 'sam2track inspect' stdout
}

case_mistyped_verb() {
    exits 2 "$SAM2TRACK" inspct clip.mkv
    says "no verb 'inspct'; did you mean inspect"
    exits 4 "$SAM2TRACK" -m "$MODEL" --rle out.json "${square[@]}" trakk
    says 'trakk'
}

case_version() {
    exits 0 "$SAM2TRACK" --version
    head -n 1 stdout | grep -qxE 'sam2track [0-9]+\.[0-9]+\.[0-9]+'
    sed -n 2p stdout | grep -qxE 'CUDA backend: (not in this build|CUDA [0-9]+\.[0-9]+, sm_[0-9a-z]+.*)'
    equal "$(wc -l <stdout)" 2 lines
}

case_closed_pipe() {
    for words in "--help" "bench --help" "inspect $MODEL"; do
        # shellcheck disable=SC2086
        { sleep 0.3; code=0; "$SAM2TRACK" $words 2>stderr || code=$?; echo $code >code; } | true
        equal "$(cat code)" 6 "exit code of $words"
        says 'stdout cannot be written|cannot be written to stdout'
    done
}

case_nothing_at_all() {
    exits 2 "$SAM2TRACK"
    equal "$(wc -c <stdout)" 0 "bytes on stdout"
}

case_unknown_option() {
    exits 2 "$SAM2TRACK" -m "$MODEL" --fill-hole 3 clip.mkv
    says 'fill-hole'
}

case_value_out_of_range() {
    exits 2 "$SAM2TRACK" -m "$MODEL" --stride 0 "${square[@]}" --rle out.json clip.mkv
    says 'stride'
    exits 2 "$SAM2TRACK" -m "$MODEL" --size 600 "${square[@]}" --rle out.json clip.mkv
    says 'size'
    exits 2 "$SAM2TRACK" -m "$MODEL" --frames 5:5 "${square[@]}" --rle out.json clip.mkv
    says 'frames'
}

case_missing_parts() {
    clip --frames 1 clip.mkv
    exits 2 "$SAM2TRACK" "${square[@]}" --rle out.json clip.mkv
    says 'model'
    exits 2 "$SAM2TRACK" -m "$MODEL" --rle out.json clip.mkv
    says 'prompt'
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" clip.mkv
    says 'output'
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json
    says 'INPUT'
    absent out.json
}

case_equals_sign_and_double_dash() {
    clip --frames 1 ./-clip.mkv
    exits 0 "$SAM2TRACK" track --model="$MODEL" --box=0,24,23,47 --rle=out.json --progress=none -- -clip.mkv
    json out.json
}

case_dry_run_writes_nothing() {
    clip --frames 3 clip.mkv
    track "${square[@]}" --point 50,30@2#4 --png png --rle out.json --dry-run clip.mkv
    equal "$(json stdout .input.width)" 96
    equal "$(json stdout .model.name)" sam2.1_mini
    equal "$(json stdout .model.size)" 512
    equal "$(json stdout .objects)" 2 objects
    equal "$(json stdout '.objects[1].id')" 4
    equal "$(json stdout .outputs)" 2 outputs
    absent png out.json
}

case_dry_run_finds_errors() {
    clip --frames 3 clip.mkv
    exits 2 "$SAM2TRACK" -m "$MODEL" --point 500,30 --rle out.json --dry-run clip.mkv
    says '500'
    touch out.json
    exits 6 "$SAM2TRACK" -m "$MODEL" --point 50,30 --rle out.json --dry-run clip.mkv
    says 'out.json'
}

case_no_gpu_no_cuda() {
    clip --frames 1 clip.mkv
    if nvidia-smi -L >/dev/null 2>&1; then return; fi
    exits 7 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --device cuda --rle out.json clip.mkv
    says 'CUDA'
    exits 7 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --device cuda:1 --rle out.json clip.mkv
    absent out.json
}

case_verbs_of_later_builds() {
    exits 2 "$SAM2TRACK" auto -m "$MODEL" image.png
    says 'auto'
}

case_inspect() {
    clip --frames 3 clip.mkv
    echo '{"prompts": [{"frame": 2, "object": 7, "points": [[1, 2]]}]}' >prompts.json
    exits 0 "$SAM2TRACK" inspect --json "$MODEL" clip.mkv prompts.json
    equal "$(json stdout)" "" "JSON errors"
    equal "$(json stdout '[0].name')" sam2.1_mini
    equal "$(json stdout '[0].parameters')" 9473602
    equal "$(json stdout '[1].width')" 96
    equal "$(json stdout '[2].objects[0].id')" 7
    exits 4 "$SAM2TRACK" inspect nothing.mp4
    says 'nothing.mp4'
}

case_bench_prints_json_lines() {
    exits 0 "$SAM2TRACK" bench -m "$MODEL" --frames 3
    while read -r row; do echo "$row" | json -; done <stdout
}

case_an_output_given_twice() {
    clip --frames 1 clip.mkv
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --png a --png=b clip.mkv
    says '--png is given twice, as a and as b'
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle a.json --stats s --rle a.json clip.mkv
    says '--rle is given twice'
    absent a b
    # other options: the last one counts
    track "${square[@]}" --threads 1 --threads 2 --stride 2 --stride 1 --rle out.json clip.mkv
}

case_inspect_of_nothing() {
    for name in absent.pt absent.mp4 absent.json; do
        code=0
        "$SAM2TRACK" inspect $name >stdout 2>stderr || code=$?
        [ $code -ge 2 ] && [ $code -le 4 ] || fail "exit code $code for $name"
        equal "$(wc -c <stdout)" 0 "bytes on stdout for $name"
        says "$name"
        "$SAM2TRACK" inspect --json $name >stdout 2>stderr || true
        equal "$(json stdout '[0].file')" $name
    done
}
