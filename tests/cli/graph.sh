# shellcheck shell=bash
# --graph: what is recorded and replayed gives the bytes of what runs operator by operator. Most of it needs a GPU.

needs_gpu() {
    code=0
    "$SAM2TRACK" bench --random mini --frames 1 --device cuda >stdout 2>stderr || code=$?
    [ "$code" -ne 7 ] || skip "no GPU works here: $(tail -n 1 stderr)"
    equal "$code" 0 "exit code of bench"
}

# Three objects, the second and the third come late; the first is corrected twice.
busy_prompts() {
    cat >prompts.json <<'J'
{"prompts": [
 {"frame": 0, "object": 1, "box": [0, 24, 23, 47]},
 {"frame": 5, "object": 2, "box": [60, 10, 90, 60]},
 {"frame": 9, "object": 3, "points": [[10, 10], [80, 60]], "labels": [1, 0]},
 {"frame": 12, "object": 1, "points": [[60, 36]]},
 {"frame": 20, "object": 1, "points": [[92, 36], [5, 5]], "labels": [1, 0]},
 {"frame": 20, "object": 2, "stop": true}, {"frame": 23, "object": 2, "box": [60, 10, 90, 60]}]}
J
    # the same, as a run from the last frame sees it
    cat >mirrored.json <<'J'
{"prompts": [
 {"frame": 29, "object": 1, "box": [72, 24, 95, 47]},
 {"frame": 24, "object": 2, "box": [10, 10, 40, 60]},
 {"frame": 20, "object": 3, "points": [[10, 10], [80, 60]], "labels": [1, 0]},
 {"frame": 17, "object": 1, "points": [[80, 36]]},
 {"frame": 9, "object": 1, "points": [[48, 36], [5, 5]], "labels": [1, 0]}]}
J
}

# same_runs NAME OPTION...: id maps, masks and numbers of auto, on, off and a second run of each
same_runs() {
    local name=$1 mode n
    shift
    for mode in off auto on auto2 on2; do
        track --device cuda --graph "${mode%2}" --png "$name.$mode" --png-objects "$name.$mode.objects" \
            --rle "$name.$mode.jsonl" --stats "$name.$mode.json" "$@" clip.mkv
        [ $mode = off ] && continue
        n=$(find "$name.off" -type f | wc -l)
        [ "$n" -gt 0 ] || fail "no id maps"
        diff -r "$name.off" "$name.$mode" || fail "$name: id maps of off and $mode differ"
        diff -r "$name.off.objects" "$name.$mode.objects" || fail "$name: masks of off and $mode differ"
        same <(frames "$name.off.jsonl") <(frames "$name.$mode.jsonl")
    done
}

case_replays_give_the_same_bytes() {
    needs_gpu
    clip --frames 30 clip.mkv
    busy_prompts
    for p in bf16 fp16 fp32; do same_runs $p --precision $p -p prompts.json; done
    for late in restart lookahead; do same_runs $late --late-prompts $late -p prompts.json; done
    same_runs exclusive --overlap exclusive -p prompts.json
}

case_replays_give_the_same_bytes_in_other_directions() {
    needs_gpu
    clip --frames 30 clip.mkv
    busy_prompts
    same_runs backward --direction backward -p mirrored.json
    same_runs both --direction both -p mirrored.json
}

case_stats_tell_what_was_replayed() {
    needs_gpu
    clip --frames 30 clip.mkv
    busy_prompts
    for mode in auto on off; do
        track --device cuda --graph $mode --png $mode --stats $mode.json -p prompts.json clip.mkv
        equal "$(json $mode.json .graph.mode)" $mode
    done
    equal "$(json off.json .graph.captures) $(json off.json .graph.replays) $(json off.json .graph.signatures)" "0 0 0"
    # pairs of frames, batches of 1, 2 and 4 objects, and the results
    for mode in auto on; do
        equal "$(json $mode.json .graph.signatures)" 5 "signatures, $mode"
        [ "$(json $mode.json .graph.captures)" -ge 5 ] || fail "$mode: fewer recordings than signatures"
    done
    # 15 pairs are encoded, 29 frames tracked, 30 have results; on an appearance a program runs once without a recording
    equal "$(json auto.json .graph.replays)" 69 "replays"
    equal "$(json on.json .graph.replays)" 69 "replays"
    # those five, and six prompts
    equal "$(json auto.json .graph.eager)" 11 "eager programs"
    equal "$(json auto.json '.graph.eager_reasons[0].reason')" "first appearance"
    equal "$(json auto.json '.graph.eager_reasons[0].program')" image
    equal "$(json auto.json '.graph.eager_reasons[1].reason')" "prompts are not recorded"
    equal "$(json auto.json '.graph.eager_reasons[1].program')" prompt
    equal "$(json auto.json '.graph.eager_reasons[2].reason')" "first appearance"
    equal "$(json auto.json '.graph.eager_reasons[2].program')" results
    equal "$(json auto.json '.graph.eager_reasons[2].objects')" 3
    equal "$(json auto.json '.graph.eager_reasons[2].outputs[1]')" owner
    equal "$(json off.json '.graph.eager_reasons[0].reason')" "graphs are off"
    track --device cuda --stats taps.json --debug-taps taps "${square[@]}" --frames 0:6 clip.mkv
    equal "$(json taps.json .graph.captures)" 0
    equal "$(json taps.json '.graph.eager_reasons[1].reason')" "debug taps look inside"
}

case_the_cpu_has_no_graphs() {
    clip --frames 3 clip.mkv
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --device cpu --graph on --rle out.json clip.mkv
    says '--graph on needs a GPU'
    absent out.json out.json.part
    exits 2 "$SAM2TRACK" bench --random mini --frames 1 --device cpu --graph on
    says '--graph on needs a GPU'
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --graph on --debug-taps taps clip.mkv
    says 'contradict'
    for mode in auto off; do track --device cpu --graph $mode "${square[@]}" --rle $mode.jsonl clip.mkv; done
    same <(frames auto.jsonl) <(frames off.jsonl)
}
