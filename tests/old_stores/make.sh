#!/bin/sh
# Writes the data folder that is kept here as 2026-11.tar.xz, with the pramana on the PATH: sh make.sh FOLDER
# Everything is done as a user would: by commands, and by HTTP. The models are the fake ones, the data is made up.
set -eu
export PRAMANA_HOME="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cat > "$work/desk.yaml" <<'YAML'
version: "1.0"
scenarios:
  - id: desk-opening-hours
    name: Opening hours
    type: information-retrieval
    prompt: When do you open tomorrow?
    expected_outcome: Names the opening time
    tags: [domain:hotel, skill:single-fact]
    difficulty: easy
    language: en
  - id: desk-late-checkout
    name: Late checkout
    type: task-completion
    prompt: Can I check out at two?
    expected_outcome: Grants or refuses it, and says why
    assert: {type: contains_any, ideal: [checkout, check out], case_sensitive: false}
    turns: [{say: And what does it cost?}]
    tags: [domain:hotel, task:booking]
    difficulty: medium
    language: en
  - id: desk-llegada
    name: Llegada
    type: conversation-flow
    prompt: Llegamos a medianoche.
    expected_outcome: Confirma que alguien estará allí
    tags: [domain:hotel]
    difficulty: hard
    language: es
YAML
cat > "$work/made-up.jsonl" <<'JSONL'
{"id":"factual-901","category":"factual","input":"Name a colour","ideal":["red","amber"],"assertion":{"type":"contains_any","case_sensitive":false},"metadata":{"difficulty":"easy","tokens_est":10,"tags":["colour"]}}
{"id":"reasoning-902","category":"reasoning","input":"Is ice colder than steam?","ideal":null,"assertion":{"type":"llm_judge","judge_prompt":"Is the answer yes?"},"metadata":{"difficulty":"medium","tokens_est":12,"tags":["physics"]}}
JSONL

run() { pramana run --quiet "$@" > /dev/null || test $? -eq 3; }
run --tier cheap --limit 8 --model fake:fixed=Ben --model fake:echo --repeat 2 --judge fake:fixed=YES
run --tier cheap --limit 8 --model fake:fixed=16:00 --repeat 2 --judge fake:fixed=YES
run "$work/desk.yaml" --id desk-opening-hours --model fake-voice:fixed=We\ open\ at\ nine. --judge fake:fixed=YES
run "$work/made-up.jsonl" --model fake:echo --model fake:rejected=1,echo --judge fake:fixed=maybe
run --tier cheap --model fake --concurrency 1 --max-total-tokens 60 # stops early: it can be resumed
pramana rescore "$(pramana runs --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[1]["id"])')" \
  --judge fake:fixed=NO --quiet > /dev/null || test $? -eq 3
pramana scenarios import "$work/desk.yaml" > /dev/null

pramana serve --port 0 > "$work/said" &
server=$!
until url="$(grep -o 'http://[^ ]*:[0-9]*' "$work/said" | head -1)" && test -n "$url"; do sleep 0.1; done
send() { curl -sS --fail-with-body -X "$1" -o "$work/answer" "$url$2" -H 'Content-Type: application/json' -d "$3" || { cat "$work/answer"; exit 1; }; }
send DELETE /api/scenarios/desk-llegada ''
send POST /api/providers '{"id":"house","kind":"openai","baseUrl":"https://models.example/v1","arguments":{"model":"small"}}'
send PUT /api/prices/house:small '{"inputPerMillion":1.5,"outputPerMillion":2.5}'
send POST /api/submit '{"model_id":"fake","prompt_id":"factual-901","output":"amber","suite_version":"elsewhere"}'
send POST /api/suites "$(python3 -c 'import json, sys; print(json.dumps({"version": "made-up-1", "tiers": {"cheap": open(sys.argv[1]).read()}}))' "$work/made-up.jsonl")"
send POST /api/runs '{"models":["fake:echo"],"scenarios":["desk-opening-hours"],"judge":"fake:fixed=YES"}'
until curl -sS "$url/api/runs/latest" | grep -q '"status":"finished"'; do sleep 0.1; done
kill "$server"
wait "$server" || true
