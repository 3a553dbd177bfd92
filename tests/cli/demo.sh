# shellcheck shell=bash
# The whole demo clip through the program: as good as the reference, and as sure of itself.

case_demo_equals_the_reference() {
    "$TOOLS/scene" .
    track --precision fp32 -p prompts.json --fill-holes 0 --png-objects objects --rle out.jsonl scene.mkv
    equal "$("$TOOLS/scene" --iou objects)" "ball 0.833  van 0.859  bird 0.736" "mean IoU"
    golden=$ROOT/tests/data/golden/mini/golden.json
    for t in 0 1 10 39 41 45 54 55 70 95; do
        for k in 0 1 2; do
            got=$(line $((t + 2)) ".objects[$k].score" out.jsonl)
            want=$(json "$golden" ".object_score_logits.$((k + 1))[$t]")
            awk -v a="$got" -v b="$want" 'BEGIN { d = a - b; exit !(d < 0.05 && d > -0.05) }' ||
                fail "frame $t, object $((k + 1)): score $got, the reference's $want"
        done
    done
}
