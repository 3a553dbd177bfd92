# shellcheck shell=bash
# Models that cannot be used.

refused() { # pattern
    exits 3 "$SAM2TRACK" -m model "${square[@]}" --rle out.json clip.mkv
    says 'model'
    says "$1"
    absent out.json
}

case_model_files() {
    clip --frames 1 clip.mkv
    refused 'No such file|not exist|opened'
    : >model
    refused 'empty|short|checkpoint'
    echo 'this is no checkpoint, only a line of text that is long enough to be read' >model
    refused 'checkpoint'
    head -c 1000 "$MODEL" >model
    refused 'ends'
    head -c 9000000 "$MODEL" >model
    refused 'ends'
    rm model
    mkdir model
    refused 'folder|directory'
}

case_model_lacks_a_tensor() {
    clip --frames 1 clip.mkv
    sed 's/"sam_mask_decoder\.iou_token\.weight"/"sam_mask_decoder.iou_tokem.weight"/' "$MODEL" >model
    equal "$(wc -c <model)" "$(wc -c <"$MODEL")" "bytes of the model"
    refused 'sam_mask_decoder\.iou_token\.weight'
}

case_names_with_control_characters_stay_on_one_line() {
    exits 4 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json $'two\nlines\033[2J.mkv'
    equal "$(cat stderr)" 'sam2track: two?lines?[2J.mkv: there is no such file or folder'
}

case_empty_input() {
    exits 2 "$SAM2TRACK" -m "$MODEL" "${square[@]}" --rle out.json ''
    says 'INPUT is empty'
}

case_a_weight_that_is_no_number() {
    clip --frames 1 clip.mkv
    for value in '\0\0\200\177' '\0\0\300\377'; do
        head -c -4 "$MODEL" >model
        # shellcheck disable=SC2059 # the bytes of a float
        printf "$value" >>model
        equal "$(wc -c <model)" "$(wc -c <"$MODEL")" "bytes of the model"
        refused 'tensor "[a-z0-9_.]+" is (infinite|not a number)'
    done
}
